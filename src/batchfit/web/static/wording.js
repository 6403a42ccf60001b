// Values in sentences. The twin of batchfit/wording.py.

import { formatFigure, formatNumber, formatPercent, formatPower } from "./numbers.js";

/** A value cut into what stands before its number, the number, and what stands after: ["", "4", " samples"]. */
export function quantity(of, value, unit, calculator) {
  const { lang, units, isolate } = calculator;
  if (of.kind === "bytes") return [isolate[0], size(value / units[unit], lang), `\u00a0${unit}${isolate[1]}`];
  if (of.kind === "seconds") return duration(value, calculator);
  const plus = { plus: of.difference };
  if (of.kind === "share") return [isolate[0], formatPercent(value, lang, plus), calculator.percent + isolate[1]];
  let number = formatFigure(value, lang, plus);
  if (number.includes("×")) number = isolate[0] + number + isolate[1];
  if (!of.counted) return ["", number, `\u00a0${of.unitText ?? of.unit}`];
  const [before, after] = form(of.counted, value, lang).split("{n}");
  return [before, number, after];
}

/** A duration in the largest unit of which it has at least one, cut in the same way. */
function duration(seconds, { lang, durations }) {
  const usual = durations.at(seconds ? -1 : -2);
  const [scale, forms] = durations.find(([each]) => Math.abs(seconds) >= each) ?? usual;
  const amount = seconds / scale;
  const digits = Math.abs(amount) < 100 ? { significant: 3 } : { maxFraction: 0 };
  const [before, after] = form(forms, amount, lang).split("{n}");
  return [before, formatPower(amount, lang) || formatNumber(amount, lang, digits), after];
}

const FAMILIES = [["B", "kB", "MB", "GB", "TB", "PB"], ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]];

/** The unit that a size is shown in where `unit` is wished for; another one where that leaves too few or many digits. */
export function fittingUnit(count, unit, units) {
  const ratio = Math.abs(count) / units[unit];
  if (!count || (ratio >= 0.1 && ratio < 10_000)) return unit;
  return FAMILIES.find((family) => family.includes(unit)).findLast((each) => Math.abs(count) >= units[each]) ?? "B";
}

/** A value with its unit, as it stands in a sentence. */
export function inWords(of, value, unit, calculator) {
  const [before, number, after] = quantity(of, value, unit, calculator);
  return of.counted || ["bytes", "seconds", "share"].includes(of.kind) ? before + number + after : number;
}

/** What was chosen, in words. */
export function chosen(field, value, { comma }) {
  return [value].flat().map((each) => field.choices[each]).join(comma) || "–";
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
  // As on the server: fractions and powers of ten take the form of a hundred, unless nought is singular and they are below two.
  const select = (number) => rules.get(lang).select(number);
  const magnitude = Math.abs(value);
  const counts = Number.isInteger(value) ? magnitude < 1e15 : magnitude < 2 && select(0) === select(1);
  return counted[select(counts ? Math.trunc(magnitude) : 100)] ?? counted.other;
}
