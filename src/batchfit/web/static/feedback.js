// "Was this page helpful?": sends the answer and stays on the page. What was typed is there until it has been kept.

const form = document.querySelector("[data-feedback]");
const button = form.querySelector("button");
const outcome = form.querySelector("[data-outcome]");
const agreed = form.elements.inputs;
const label = button.textContent;

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

async function send() {
  const response = await fetch(form.dataset.feedback, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(fields()),
  });
  if (response.ok) return undefined;
  const { errors } = await response.json();
  return { errors, again: response.status === 503 || response.status === 429 };
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  let problem;
  try {
    problem = await send();
  } catch {
    problem = { errors: [{ message: form.dataset.unreached }], again: true };
  }
  button.disabled = false;
  button.textContent = problem?.again ? form.dataset.again : label;
  if (problem) {
    complain(problem.errors);
    return;
  }
  show(form.dataset.thanks);
  form.classList.add("sent");
  form.reset();
  outcome.focus();
});
