// Search as you type in a long list: a search field above a <select>, <input data-filter="the select's id">.

const words = (text) => text.toLowerCase().split(/[\s/_-]+/).filter(Boolean);

/** Ties a search field to its list: only what holds every word typed stays in it, and the first of that is chosen. */
export function attachFilter(box) {
  const list = document.getElementById(box.dataset.filter);
  const all = [...list.children].map((group) => ({ group, options: [...group.children] }));

  const holds = (text, wanted) => wanted.every((word) => text.includes(word));
  const narrow = () => {
    const wanted = words(box.value);
    const chosen = list.value;
    const left = [];
    for (const { group, options } of all) {
      if (!options.length) continue;
      const name = `${group.label} `.toLowerCase();
      const fitting = options.filter((option) => holds(name + `${option.textContent} ${option.value}`.toLowerCase(), wanted));
      group.replaceChildren(...fitting);
      if (fitting.length) left.push(group);
    }
    box.toggleAttribute("data-nothing", !left.length);
    if (!left.length) return widen();
    list.replaceChildren(...left);
    list.value = chosen;
    if (list.selectedIndex >= 0) return;
    list.selectedIndex = 0;
    list.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const widen = () => {
    const chosen = list.value;
    for (const { group, options } of all) group.replaceChildren(...options);
    list.replaceChildren(...all.map(({ group }) => group));
    list.value = chosen;
  };

  box.addEventListener("input", (event) => {
    event.stopPropagation();
    narrow();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    list.focus();
  });
  return { clear() { box.value = ""; widen(); } };
}
