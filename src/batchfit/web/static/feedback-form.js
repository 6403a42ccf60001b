// Sends feedback and stays on the page. What was typed is there until it has been kept.

// Sending again what may have arrived after all makes no second entry.
const id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Puts the form at an address in the place of the question. Fails where it cannot be had. */
export async function open(asking, address) {
  const there = await get(address);
  const form = document.adoptNode(there.querySelector(".feedback"));
  for (const style of there.querySelectorAll("link[rel=stylesheet]")) {
    if (!document.querySelector(`link[href="${style.getAttribute("href")}"]`)) {
      const loaded = new Promise((resolve) => { style.onload = style.onerror = resolve; });
      document.head.append(document.adoptNode(style));
      await loaded;
    }
  }
  asking.replaceWith(form);
  attach(form, () => location.search.slice(1));
  form.elements.text.focus();
}

/** A page. A string could not be made into one: the security policy forbids that. */
function get(address) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.responseType = "document";
    request.onload = () => (request.response?.querySelector(".feedback") ? resolve(request.response) : reject());
    request.onerror = reject;
    request.open("GET", address);
    request.send();
  });
}

/** `inputs` says the values of the moment, where those that the form came with may be others. */
function attach(form, inputs) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    if (inputs && form.elements.inputs) form.elements.inputs.value = inputs();
    let answer;
    try {
      answer = await post(form);
    } catch {
      answer = { errors: [{ message: form.dataset.unreached }] };
    }
    button.disabled = false;
    if (answer.errors) complain(form, answer.errors);
    else thank(form, answer.message);
  });
}

async function post(form) {
  const { back, ...fields } = Object.fromEntries(new FormData(form)); // here one does not go away
  const response = await fetch(`${form.action}.json`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...fields, id }),
  });
  return response.json();
}

/** Puts each complaint beside its field. What belongs to none of them is said below. */
function complain(form, errors) {
  const places = [...form.querySelectorAll("[data-error]")];
  for (const place of places) {
    const error = errors.find(({ field }) => field === place.dataset.error);
    place.textContent = error?.message ?? "";
    place.hidden = !error;
  }
  const { text } = form.elements;
  if (errors.some(({ field }) => field === "text")) {
    text.setAttribute("aria-invalid", "true");
    text.focus();
  } else {
    text.removeAttribute("aria-invalid");
  }
  const rest = errors.filter(({ field }) => !places.some((place) => place.dataset.error === field));
  show(form, rest.map(({ message }) => message).join(" "), true);
}

function thank(form, message) {
  show(form, message, false);
  form.classList.add("sent");
  form.querySelector("[data-outcome]").focus();
}

function show(form, text, wrong) {
  const outcome = form.querySelector("[data-outcome]");
  outcome.textContent = text;
  outcome.classList.toggle("error", wrong && text !== "");
}

const whole = document.querySelector("form.feedback[method=post]");
if (whole) attach(whole);
