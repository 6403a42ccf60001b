// Stepping a value: by the arrow keys in its text field, and by the slider beside it.

import { readField } from "./fields.js";
import { entryText, readNumber } from "./numbers.js";

const WHOLE = [1, 1.5]; // times powers of two: 1, 2, 3, 4, 6, 8, 12, 16, ...
const SIZES = [1, 1.5, 2, 3, 5, 7.5]; // times powers of ten

/** Positions that people choose: powers of two and halves between them, or round numbers about the default. */
function stops(field) {
  if (field.kind === "share") return Array.from({ length: 21 }, (_, at) => 5 * at);
  if (field.kind === "whole") {
    const top = Math.min(field.maximum, Math.max(512, 64 * Number(field.default ?? 64)));
    const all = Array.from({ length: 42 }, (_, power) => WHOLE.map((part) => part * 2 ** power)).flat();
    return all.filter((stop) => Number.isInteger(stop) && stop >= field.minimum && stop <= top);
  }
  const middle = Math.floor(Math.log10(Number(field.default) || 1));
  return [-1, 0, 1, 2].flatMap((power) => SIZES.map((part) => Number((part * 10 ** (middle + power)).toPrecision(3))));
}

/** What one of a unit is in what a field's bounds are in. */
function scaleOf(field, unit, { units }) {
  if (field.kind === "bytes") return units[unit];
  const [times, power] = field.scales?.[unit] ?? [1, 0];
  return times * 10 ** power;
}

/** Ties a slider, where there is one, and the arrow keys to a text field. `follow` moves the slider to the field's value. */
export function attachSlider(field, box, slider, calculator, unitOf) {
  const positions = slider ? stops(field) : [];
  if (slider) slider.max = positions.length - 1;

  const current = () => {
    try {
      return readField(field, box.value, unitOf(), calculator);
    } catch {
      return null;
    }
  };
  const write = (value, unit = "") => {
    box.value = entryText(readNumber(String(value), "en").value, calculator.lang) + unit;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  };

  slider?.addEventListener("input", (event) => {
    event.stopPropagation();
    write(positions[slider.value]);
  });
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    if (!steps || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const reading = current();
    if (!reading && box.value.trim()) return;
    const scale = scaleOf(field, reading?.unit ?? unitOf(), calculator);
    const size = Number(field.step ?? 1);
    const before = reading ? Number(reading.exact) : 0;
    // Rounded, so that ten steps of a tenth make a whole.
    const after = Number((before + steps * size).toPrecision(12));
    const bounded = Math.min(Math.max(after, field.minimum / scale), field.maximum / scale);
    write(bounded, reading && !field.units && reading.unit !== field.unit ? reading.unit : "");
  });

  const follow = () => {
    const reading = current();
    if (!reading || !slider) return;
    const value = Number(reading.exact);
    slider.value = positions.findIndex((stop, at) => value <= (stop + (positions[at + 1] ?? Infinity)) / 2);
  };
  return { follow };
}
