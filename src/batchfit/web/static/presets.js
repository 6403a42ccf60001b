// Presets: a choice that fills several fields. What it fills in stands for their defaults. A list has the names of the
// fields, each of its options their texts, as addresses carry them.

const presetLists = () => [...document.querySelectorAll("[data-preset]")];
const filledBy = (list) => list.dataset.preset.split(" ");

/** The entry chosen of each preset that is offered, by the preset's name. */
export function chosenEntries() {
  return Object.fromEntries(presetLists().filter((list) => list.value && !list.disabled).map((list) => [list.name, list.value]));
}

/** What the presets chosen fill in, by field. */
export function filled(of = presetLists().filter((list) => !list.disabled)) {
  return Object.fromEntries(of.filter((list) => list.value).flatMap((list) => {
    const texts = list.selectedOptions[0].dataset.texts.split(" ");
    return filledBy(list).map((name, at) => [name, texts[at]]);
  }));
}

/** Offers a preset while any field that it fills applies. */
export function offerPresets(use, applies) {
  for (const list of presetLists()) use(list.name, filledBy(list).some(applies));
}

/** Chooses none. */
export function clearPresets() {
  for (const list of presetLists()) list.value = "";
}

/** Calls `fill` with what an entry fills in, when one is chosen. */
export function attachPresets(fill) {
  for (const list of presetLists()) {
    list.addEventListener("input", (event) => {
      event.stopPropagation();
      fill(filled([list]));
    });
  }
}
