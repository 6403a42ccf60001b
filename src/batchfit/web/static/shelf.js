// Search as you type on the shelf: entries that hold every word typed stay, and groups that have any of these.

const box = document.querySelector("[data-shelf-search]");
const groups = [...document.querySelectorAll(".shelf")];

box.addEventListener("input", () => {
  const wanted = box.value.toLowerCase().split(/[\s/_-]+/).filter(Boolean);
  let left = 0;
  for (const group of groups) {
    const title = group.querySelector("h2").textContent.toLowerCase();
    let shown = 0;
    for (const entry of group.querySelectorAll("li")) {
      const text = `${title} ${entry.textContent.toLowerCase()}`;
      entry.hidden = !wanted.every((word) => text.includes(word));
      shown += !entry.hidden;
    }
    group.hidden = !shown;
    left += shown;
  }
  box.toggleAttribute("data-nothing", !left);
});
