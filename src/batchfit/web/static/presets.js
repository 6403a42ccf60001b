// Presets: a choice that fills several fields. What it fills in stands for their defaults. A list has the names of the
// fields, each of its options their texts, as addresses carry them.

const lists = () => [...document.querySelectorAll("[data-preset]")];
const fields = (list) => list.dataset.preset.split(" ");

/** The entry chosen of each preset that is offered, by the preset's name. */
export function chosen() {
  return Object.fromEntries(lists().filter((list) => list.value && !list.disabled).map((list) => [list.name, list.value]));
}

/** What the presets chosen fill in, by field. */
export function filled(of = lists().filter((list) => !list.disabled)) {
  return Object.fromEntries(of.filter((list) => list.value).flatMap((list) => {
    const texts = list.selectedOptions[0].dataset.texts.split(" ");
    return fields(list).map((name, at) => [name, texts[at]]);
  }));
}

/** Offers a preset while any field that it fills applies. */
export function offer(use, applies) {
  for (const list of lists()) use(list.name, fields(list).some(applies));
}

/** Chooses none. */
export function clear() {
  for (const list of lists()) list.value = "";
}

/** Calls `fill` with what an entry fills in, when one is chosen. */
export function attach(fill) {
  for (const list of lists()) {
    list.addEventListener("input", (event) => {
      event.stopPropagation();
      fill(filled([list]));
    });
  }
}
