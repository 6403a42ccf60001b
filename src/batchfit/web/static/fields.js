// What a person typed into a field -> a value. The twin of Field.read in batchfit/fields.py.

import { readNumber, toBytes } from "./numbers.js";

/** Thrown where a value cannot be used; `empty` where there is none. The message is in the page's language. */
export class Unusable extends Error {
  constructor(message, empty) {
    super(message);
    this.name = "Unusable";
    this.empty = empty;
  }
}

/**
 * What `text` means in a language: {value: a number (bytes for sizes), exact: the number typed, as decimal digits,
 * unit, note: whether others may read the text otherwise, echo: what it was read as}. Throws Unusable.
 */
export function readField(field, text, unit, { lang, units }) {
  const typed = text.trim();
  if (!typed) throw new Unusable(field.empty, true);
  const refused = () => new Unusable(field.wrong.replace("{typed}", () => typed), false);
  let number = text;
  let chosen = field.unit;
  if (field.kind === "bytes") [number, chosen] = splitUnit(text, unit, units);
  let read;
  try {
    read = readNumber(number, lang);
  } catch {
    throw refused();
  }
  const value = field.kind === "bytes" ? toBytes(read.value, units[chosen]) : read.number;
  if (field.kind === "whole" && read.value.includes(".")) throw refused();
  if (!(field.minimum <= value && value <= field.maximum)) throw refused();
  return { value, exact: read.value, unit: chosen, ambiguous: read.ambiguous, echo: read.echo };
}

/**
 * The number's text and its unit: "0.5GiB" is ["0.5", "GiB"], and so is the French "0,5 Gio"; a bare number has the
 * unit chosen beside it.
 */
function splitUnit(text, chosen, units) {
  const found = /^(.*?)\s*([A-Za-z]+)$/s.exec(text.trim());
  if (found) {
    const wanted = found[2].toLowerCase().replace(/^(byte|octet)s?$|o$/, "b");
    const unit = Object.keys(units).find((name) => name.toLowerCase() === wanted);
    if (unit) return [found[1], unit];
  }
  return [text.trim(), chosen];
}

/** A value as addresses carry it. Three decimals get a fourth, since "1.125" is 1125 to German readers. */
export function canonical(field, reading) {
  const decimals = reading.exact.split(".")[1] ?? "";
  return reading.exact + (decimals.length === 3 ? "0" : "") + (reading.unit === field.unit ? "" : reading.unit);
}
