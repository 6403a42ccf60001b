// "Was this helpful?": what sends it is loaded once somebody answers. Where that fails, the form sends itself.

const form = document.querySelector("[data-feedback]");
const load = () => import("./feedback-form.js").catch(() => ({ send: () => form.submit() }));
form.addEventListener("change", load, { once: true });
form.addEventListener("submit", (event) => {
  event.preventDefault();
  load().then(({ send }) => send());
});
