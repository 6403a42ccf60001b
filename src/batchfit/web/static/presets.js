// Presets: a choice that fills several fields. What it fills in stands for their defaults.

const lists = () => [...document.querySelectorAll("[data-preset]")];

/** The entry chosen of each preset that is offered, by the preset's name. */
export function chosen() {
  return Object.fromEntries(lists().filter((list) => list.value && !list.disabled).map((list) => [list.name, list.value]));
}

/** What the presets chosen fill in, by field, as addresses carry it. */
export function filled(calculator) {
  return Object.assign({}, ...Object.entries(chosen()).map(([name, entry]) => calculator.presets[name][entry]));
}

/** Chooses none. */
export function clear() {
  for (const list of lists()) list.value = "";
}

/** Calls `fill` with what an entry fills in, when one is chosen. */
export function attach(calculator, fill) {
  for (const list of lists()) {
    list.addEventListener("input", (event) => {
      event.stopPropagation();
      fill(calculator.presets[list.name][list.value] ?? {});
    });
  }
}
