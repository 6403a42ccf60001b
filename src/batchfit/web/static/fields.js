// What a person typed into a field -> a value. The twin of Field.read in batchfit/fields.py.

import { formatNumber, readNumber, toBytes } from "./numbers.js";

const MANY = 1_000_000; // from here on a count is hard to read

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
 * unit, ambiguous: whether others may read the text otherwise, echo: the number as it stands in the field, spelled: the
 * number in full, where it was shortened}. Throws Unusable.
 */
export function readField(field, text, unit, { lang, units }) {
  const typed = text.trim();
  const refused = () => new Unusable(field.wrong.replace("{typed}", () => typed), false);
  if (field.choices) return readChoice(field, typed, refused);
  if (!typed && "whenEmpty" in field) return { value: null, exact: "", unit: field.unit, ambiguous: false, echo: "", spelled: "" };
  if (!typed) throw new Unusable(field.empty, true);
  let number = text;
  let chosen = field.unit;
  if (field.kind === "bytes") [number, chosen] = splitUnit(text, unit, units);
  else if (field.scales) [number, chosen] = splitMixed(text, field) ?? splitScale(text, unit, field.spellings);
  let read;
  try {
    read = readNumber(number, lang);
  } catch {
    throw refused();
  }
  const full = scaled(read.value, field.scales?.[chosen] ?? [1, 0]);
  const value = field.kind === "bytes" ? toBytes(read.value, units[chosen]) : Number(full);
  if (field.kind === "whole" && !isWhole(full)) throw refused();
  if (!(field.minimum <= value && value <= field.maximum)) throw refused();
  const shortened = field.suffixes && (chosen !== field.unit || Math.abs(value) >= MANY);
  const spelled = shortened ? formatNumber(full, lang, { maxFraction: 12 }) : "";
  return { value, exact: read.value, unit: chosen, ambiguous: read.ambiguous, echo: read.echo, spelled };
}

function readChoice(field, typed, refused) {
  const given = typed.toLowerCase().split(",").map((part) => part.trim()).filter(Boolean);
  const known = Object.keys(field.choices);
  const chosen = known.filter((value) => given.includes(value.toLowerCase()));
  if (!given.length && (field.kind === "choice" || field.minimum > 0)) throw new Unusable(field.empty, true);
  const unknown = given.some((part) => !known.some((value) => value.toLowerCase() === part));
  if (unknown || (field.kind === "choice" && given.length !== 1)) throw refused();
  const echo = chosen.join(",");
  return { value: field.kind === "choice" ? echo : chosen, exact: echo, unit: field.unit, ambiguous: false, echo, spelled: "" };
}

/** A decimal string times a whole number and a power of ten, exactly, with an exponent. */
function scaled(exact, [times, power]) {
  const [whole, fraction = ""] = exact.split(".");
  return `${BigInt(whole + fraction) * BigInt(times)}e${power - fraction.length}`;
}

/** Whether the digits of "125e-2" leave no fraction. */
function isWhole(text) {
  const [digits, exponent] = text.split("e");
  const power = Number(exponent);
  return power >= 0 || BigInt(digits) % 10n ** BigInt(-power) === 0n;
}

/** The number's text and its scale: "7B" is ["7", "B"], "4.1億" ["4.1", "e8"]; a bare number has the one chosen beside it. */
function splitScale(text, chosen, spellings) {
  const found = /^\s*(.*?)\s*(\p{L}+(?:\s\p{L}+)*|[%٪％﹪])\.?\s*$/su.exec(text.normalize("NFC"));
  const scale = found && spellings[found[2].toLowerCase().replace(/\s/g, " ")];
  return scale ? [found[1], scale] : [text.trim(), chosen];
}

/** A number in several East Asian units, in the first of them: "3億5000万" is ["350000000e-8", "e8"]. */
function splitMixed(text, { spellings, scales }) {
  const typed = text.normalize("NFKC").trim();
  const parts = [...typed.matchAll(/([0-9]{1,3}(?:,[0-9]{3}){1,6}|[0-9]{1,20})(?:\.([0-9]{1,20}))? ?(\p{Lo}{0,2}) ?/gu)];
  if (!parts[0] || parts.map(([part]) => part).join("") !== typed || (parts[1] ? typed.includes(".") : spellings[parts[0][3]])) return;
  const fraction = parts[0][2] ?? "";
  let [total, closing, unit, after] = [0n, 0n];
  for (const [, digits, , word] of parts.reverse()) {
    const names = spellings[word] ? [spellings[word]] : [...word].map((each) => spellings[each]);
    const powers = names.map((name) => BigInt(scales[name]?.[1] ?? 0));
    if (powers.includes(0n) || (!word && (after >= 0n || !digits[1]))) return;
    if (powers.at(-1) >= 4n) [closing, unit] = [powers.at(-1), names.at(-1)];
    const place = powers.reduce((sum, power) => sum + power, powers.at(-1) >= 4n ? 0n : closing);
    const value = BigInt(digits.replaceAll(",", "") + fraction) * 10n ** place;
    const limit = powers[1] && powers[0] >= 4n ? 2n * closing : closing + 4n;
    if (after >= 10n ** place || (place > closing && value >= 10n ** (limit + BigInt(fraction.length)))) return;
    total += value;
    after = value;
  }
  if (!unit && !parts[0][3]) return;
  unit ??= "K";
  return [`${total}e-${scales[unit][1] + fraction.length}`, unit];
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
  if (field.choices || reading.value === null) return reading.echo;
  return reading.exact + (reading.exact.split(".")[1]?.length === 3 ? "0" : "") + (reading.unit === field.unit ? "" : reading.unit);
}

/** A value as it stands in its field: with its unit, where none is chosen beside it. */
export function inField(field, reading) {
  return reading.echo + (field.units || reading.unit === field.unit ? "" : field.written?.[reading.unit] ?? reading.unit);
}
