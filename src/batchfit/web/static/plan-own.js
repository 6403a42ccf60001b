// A model of one's own in the planner's form: pasted, chosen or dropped, kept in this tab, traced where the server does.

const KEPT = "batchfit.own"; // under this name the tab keeps the text, until it is closed

/** Ties the field of one's own model to the form. `changed` is called when a file or a trace has filled it in. */
export function attachOwn(form, changed) {
  const box = form.elements.own;
  if (!box) return { text: () => "", keep() {} };
  const field = box.closest("[data-field]");

  const own = {
    /** The model's text: what stands in the field, or what this tab has kept. */
    text() {
      if (!box.value.trim()) box.value = kept();
      return box.value;
    },
    /** Keeps the text, so that a reload or the way back finds it. */
    keep() {
      try { sessionStorage.setItem(KEPT, box.value); } catch { /* full, or not allowed: then only this page has it */ }
    },
  };

  function fill(text) {
    form.querySelector("[name=from][value=own]").checked = true;
    box.value = text;
    changed();
  }

  function complain(text) {
    const error = field.querySelector("[data-error]");
    error.textContent = text;
    error.hidden = !text;
    box.toggleAttribute("aria-invalid", false);
    if (text) box.setAttribute("aria-invalid", "true");
  }

  async function read(file) {
    if (!file) return;
    if (file.size > box.maxLength) return complain(field.dataset.large);
    fill(await file.text());
  }

  form.querySelector("[data-file]").addEventListener("change", (event) => {
    event.stopPropagation();
    read(event.target.files[0]);
    event.target.value = "";
  });
  form.querySelector("[data-file]").addEventListener("input", (event) => event.stopPropagation());
  form.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    form.setAttribute("data-over", "");
  });
  form.addEventListener("dragleave", (event) => {
    if (!form.contains(event.relatedTarget)) form.removeAttribute("data-over");
  });
  form.addEventListener("drop", (event) => {
    form.removeAttribute("data-over");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    read(event.dataTransfer.files[0]);
  });
  form.addEventListener("click", (event) => {
    const button = event.target.closest("[data-trace]");
    if (!button) return;
    event.preventDefault();
    trace(button);
  });

  /** Traces the config on the server and puts the profiles in its place; says how far it is. */
  async function trace(button) {
    const shown = form.querySelector("[data-tracing]");
    const bar = shown.querySelector("progress");
    const stop = new AbortController();
    const stopped = () => stop.abort();
    shown.querySelector("[data-tracing-stop]").addEventListener("click", stopped, { once: true });
    shown.hidden = false;
    button.disabled = true;
    bar.value = 0;
    complain("");
    try {
      const body = new URLSearchParams({ own: box.value });
      const response = await fetch(button.dataset.trace, { method: "POST", body, signal: stop.signal });
      if (!response.ok) throw new Error(response.statusText);
      for await (const step of lines(response.body)) {
        if (step.error) complain(step.error);
        else if (step.own) fill(step.own);
        else {
          bar.value = step.done;
          shown.querySelector("[data-tracing-what]").textContent = step.what;
        }
      }
    } catch {
      if (!stop.signal.aborted) complain(field.closest("[data-planner]").dataset.unreached);
    }
    shown.hidden = true;
    button.disabled = false;
  }

  return own;
}

function kept() {
  try { return sessionStorage.getItem(KEPT) ?? ""; } catch { return ""; }
}

/** Lines of JSON as they arrive. */
async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}
