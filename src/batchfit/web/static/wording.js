// Values in sentences. The twin of batchfit/wording.py.

import { formatNumber } from "./numbers.js";

/** A value cut into what stands before its number, the number, and what stands after: ["", "4", " samples"]. */
export function quantity(of, value, unit, { lang, units, isolate }) {
  if (of.kind === "bytes") return [isolate[0], size(value / units[unit], lang), `\u00a0${unit}${isolate[1]}`];
  const number = of.difference ? signed(value, lang) : formatNumber(value, lang);
  if (!of.counted) return ["", number, `\u00a0${of.unitText}`];
  const [before, after] = form(of.counted, value, lang).split("{n}");
  return [before, number, after];
}

/** A value with its unit, as it stands in a sentence. */
export function inWords(of, value, unit, calculator) {
  const [before, number, after] = quantity(of, value, unit, calculator);
  return of.kind === "bytes" || of.counted ? before + number + after : number;
}

/** A difference with its sign. */
export function signed(value, lang) {
  return formatNumber(value, lang, { plus: true });
}

/** A template with its placeholders filled. */
export function fill(template, words) {
  return template.replace(/\{(\w+)\}/g, (whole, name) => words[name] ?? whole);
}

/** Four significant digits, or all before the point. */
function size(number, lang) {
  return formatNumber(number, lang, Math.abs(number) < 1000 ? { significant: 4 } : { maxFraction: 0 });
}

const rules = new Map();

function form(counted, value, lang) {
  if (!rules.has(lang)) rules.set(lang, new Intl.PluralRules(lang));
  // Fractions take the form of many, as they do on the server.
  const number = Number.isInteger(value) ? Math.abs(value) : 2;
  return counted[rules.get(lang).select(number)] ?? counted.other;
}
