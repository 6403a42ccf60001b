// Buttons that copy the text of a field: <button data-copy="its id" data-done="what the button says then">.

const QUIET = 2500; // milliseconds until the button says again what it does

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const label = button.textContent;
  const source = document.getElementById(button.dataset.copy);
  source.select();
  try {
    await navigator.clipboard.writeText(source.value);
  } catch {
    document.execCommand("copy"); // where there is no clipboard to write to, as on plain http
  }
  if (label === button.dataset.done) return;
  button.textContent = button.dataset.done;
  document.querySelector("[data-announcement]").textContent = button.dataset.done;
  setTimeout(() => { button.textContent = label; }, QUIET);
});
