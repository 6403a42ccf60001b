// Sends feedback and stays on the page. What was typed is there until it has been kept.

const form = document.querySelector("[data-feedback]");
const button = form.querySelector("button");
const outcome = form.querySelector("[data-outcome]");
const agreed = form.elements.inputs;

// Sending again what may have arrived after all makes no second entry.
const id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function fields() {
  // The values in the address are those of the moment, not those that the page came with.
  if (agreed && "live" in agreed.dataset) agreed.value = location.search.slice(1);
  return { ...Object.fromEntries(new FormData(form)), id };
}

function show(text, wrong = false) {
  outcome.textContent = text;
  outcome.classList.toggle("error", wrong);
}

/** Puts each complaint beside its field. What belongs to none of them is said below. */
function complain(errors) {
  const rest = errors.filter(({ field }) => !form.querySelector(`[data-error="${CSS.escape(field ?? "")}"]`));
  for (const place of form.querySelectorAll("[data-error]")) {
    const error = errors.find(({ field }) => field === place.dataset.error);
    place.textContent = error?.message ?? "";
    place.hidden = !error;
  }
  const text = form.elements.text;
  if (errors.some(({ field }) => field === "text")) {
    text.setAttribute("aria-invalid", "true");
    text.focus();
  } else {
    text.removeAttribute("aria-invalid");
  }
  show(rest.map(({ message }) => message).join(" "), true);
}

async function post() {
  const response = await fetch(`${form.action}.json`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields()),
  });
  return response.json();
}

/** Sends what stands in the form, and says what came of it. */
export async function send() {
  button.disabled = true;
  let answer;
  try {
    answer = await post();
  } catch {
    answer = { errors: [{ message: form.dataset.unreached }] };
  }
  button.disabled = false;
  if (answer.errors) {
    complain(answer.errors);
    return;
  }
  show(answer.message);
  form.classList.add("sent");
  form.reset();
  outcome.focus();
}
