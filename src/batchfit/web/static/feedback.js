// "Was this helpful?": an answer opens the form in the page. Where that fails, it leads to the form's own page.

const asking = document.querySelector(".feedback");
asking.addEventListener("submit", (event) => {
  event.preventDefault();
  const address = `${asking.action}?${new URLSearchParams(new FormData(asking, event.submitter))}`;
  import("./feedback-form.js").then(({ open }) => open(asking, address)).catch(() => location.assign(address));
});
