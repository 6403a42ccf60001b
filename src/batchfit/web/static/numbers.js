// Numbers as people type and read them: the twin of batchfit/numbers.py, which says what the rules are and why.
// A value is exact: a string of decimal digits with a point and no exponent ("0.5"), never a rounded float.

const LONGEST = 64;
const LARGEST_EXPONENT = 99;

export const EMPTY = "is empty; enter a number such as {example}";
export const TOO_LONG = "must be a number of at most {limit} characters; you typed {count}";
export const NOT_A_NUMBER = 'must be a number such as {example}; you typed "{typed}"';
export const OUT_OF_RANGE = 'is too large or too close to zero; you typed "{typed}"';

/** A value a person typed cannot be used: an English template, the key of its translations, and its parts. */
export class BadInput extends Error {
  constructor(template, params) {
    super(template);
    this.name = "BadInput";
    this.template = template;
    this.params = params;
  }
}

const formats = new Map();

function numberFormat(locale, options) {
  const key = `${locale} ${JSON.stringify(options)}`;
  if (!formats.has(key)) {
    formats.set(key, new Intl.NumberFormat(`${locale}-u-nu-latn`, options));
  }
  return formats.get(key);
}

/** The decimal separator, thousands separator and minus sign of a language. */
export function symbols(locale) {
  const parts = numberFormat(locale).formatToParts(1234567.5);
  const find = (type) => parts.find((part) => part.type === type).value;
  return { decimal: find("decimal"), group: find("group"), minus: formatNumber(-1, locale).slice(0, -1) };
}

// ---- Reading ----

const SAME = [
  [/[\t\n\v\f\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/g, " "],
  [/[\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g, ""],
  [/[’‘ʼ＇′`´]/g, "'"],
  [/[‐‑‒–—−⁃˗﹣－➖]/g, "-"],
  [/[＋﹢➕]/g, "+"],
  [/[．。｡﹒]/g, "."],
  [/[，،﹐､、]/g, ","],
  [/＿/g, "_"],
  [/[EｅＥ]/g, "e"],
  [/[xX*✕·⋅]/g, "×"],
];
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const SEPARATOR = /[.,' _٫٬]/g;
const NUMBER = /^([+-]?) ?([0-9.,' _٫٬]*[0-9][0-9.,' _٫٬]*?)(?: ?(?:e|× ?10 ?\^) ?([+-]?[0-9]{1,4}))?$/;

/**
 * The number that `text` means to a reader of `locale`:
 * {value: exact decimal string, number: the nearest float, ambiguous, echo: what to show after "read as"}.
 * Throws BadInput.
 */
export function readNumber(text, locale) {
  const typed = plain(text);
  const length = [...typed].length;
  if (!length) throw new BadInput(EMPTY, { example: 0.5 });
  if (length > LONGEST) throw new BadInput(TOO_LONG, { limit: LONGEST, count: length });
  const names = symbols(locale);
  const found = NUMBER.exec(typed);
  const parts = found && splitParts(found[2], names, found[3] !== undefined);
  if (!parts) throw new BadInput(NOT_A_NUMBER, { example: 0.5, typed: shown(text) });
  const value = decimalString(found[1] === "-", parts.whole, parts.fraction, Number(found[3] ?? 0));
  if (value === null) throw new BadInput(OUT_OF_RANGE, { typed: shown(text) });
  return { value, number: Number(value), ambiguous: parts.ambiguous, echo: entryText(value, locale) };
}

function plain(text) {
  let result = text.replace(/[⁺⁻]?[⁰¹²³⁴-⁹]+/g, (run) =>
    "^" + [...run].map((c) => ({ "⁺": "+", "⁻": "-" })[c] ?? SUPERSCRIPTS.indexOf(c)).join(""));
  for (const [kinds, same] of SAME) result = result.replace(kinds, same);
  return result.replace(/\p{Nd}/gu, digitValue).replace(/^ +| +$/g, "");
}

/** Unicode's decimal digits stand in runs of ten, from 0 to 9: a digit's value is its place in its run. */
function digitValue(character) {
  const code = character.codePointAt(0);
  let start = code;
  while (/^\p{Nd}$/u.test(String.fromCodePoint(start - 1))) start -= 1;
  return String((code - start) % 10);
}

function splitParts(body, names, scientific) {
  const separators = body.match(SEPARATOR) ?? [];
  if (!separators.length) return { whole: body, fraction: "", ambiguous: false };
  const last = separators.at(-1);
  let ambiguous = false;
  if (".,٫".includes(last) && separators.filter((s) => s === last).length === 1) {
    const [head, tail] = body.split(last);
    if (separators.length === 1 && last !== "٫") ambiguous = mayGroup(head, tail, last === names.group);
    if (!(ambiguous && last === names.group && tail.length === 3) || scientific) {
      const whole = ungrouped(head);
      return whole === null ? null : { whole, fraction: tail, ambiguous };
    }
  }
  const whole = ungrouped(body);
  return whole === null ? null : { whole, fraction: "", ambiguous };
}

function mayGroup(head, tail, byFour) {
  const size = tail.length;
  return (size === 3 || (byFour && size === 4)) && head.length >= 1 && head.length <= size && head[0] !== "0";
}

function ungrouped(text) {
  const kinds = new Set(text.match(SEPARATOR) ?? []);
  if (!kinds.size) return text;
  const groups = text.split(SEPARATOR);
  const first = groups[0];
  const middle = groups.slice(1, -1);
  const threes = middle.every((group) => group.length === 3);
  const indian = kinds.has(",") && first.length < 3 && middle.every((group) => group.length === 2);
  const starts = first.length >= 1 && first.length <= 3 && first[0] !== "0";
  const regular = starts && groups.at(-1).length === 3 && (threes || indian);
  return kinds.size === 1 && !kinds.has("٫") && regular ? groups.join("") : null;
}

/** The exact value of whole.fraction times ten to the exponent; null where it is out of range. */
function decimalString(negative, whole, fraction, exponent) {
  const digits = (whole + fraction).replace(/^0+/, "");
  const point = digits.length - fraction.length + exponent;
  if (!digits) return "0";
  if (Math.abs(point - 1) > LARGEST_EXPONENT) return null;
  const padded = point > 0 ? digits.padEnd(point, "0") : "0".repeat(1 - point) + digits;
  const cut = Math.max(point, 1);
  const decimals = padded.slice(cut).replace(/0+$/, "");
  return `${negative ? "-" : ""}${padded.slice(0, cut)}${decimals ? "." : ""}${decimals}`;
}

function shown(text) {
  const line = [...text.replace(/\s+/g, " ").trim().replace(/\p{C}/gu, "\ufffd")];
  return line.length <= LONGEST ? line.join("") : line.slice(0, LONGEST).join("") + "…";
}

// ---- Arithmetic ----

/**
 * `value` (an exact decimal string) of a unit that has `bytesPerUnit` bytes, in whole bytes, halves to even.
 * The same integer as Python's up to 2^53; beyond that the nearest float to it.
 */
export function toBytes(value, bytesPerUnit) {
  const negative = value.startsWith("-");
  const [whole, fraction = ""] = value.replace("-", "").split(".");
  const scale = 10n ** BigInt(fraction.length);
  const product = BigInt(whole + fraction) * BigInt(bytesPerUnit);
  let bytes = product / scale;
  const twice = 2n * (product % scale);
  if (twice > scale || (twice === scale && bytes % 2n === 1n)) bytes += 1n;
  return Number(negative ? -bytes : bytes);
}

// ---- Writing ----

/** The twin of entry_text: an exact decimal string as it stands in an entry field. */
export function entryText(value, locale) {
  const { decimal, minus } = symbols(locale);
  return value
    .replace(/^(-?\d)(?=\d{15})(\d*?)0+$/, (all, first, rest) => `${first}${rest && "."}${rest}e${all.length - first.length}`)
    .replace(".", decimal)
    .replace("-", minus);
}

/**
 * `value` (a number, or an exact decimal string) as `locale` writes it; the options are those of Python's
 * format_number: minFraction, maxFraction, significant, grouping, plus.
 */
export function formatNumber(value, locale, { minFraction = 0, maxFraction = 3, significant, grouping = true, plus = false } = {}) {
  if (!Number.isFinite(Number(value))) throw new RangeError(`cannot write ${value} as a number`);
  const digits = significant === undefined
    ? { minimumFractionDigits: minFraction, maximumFractionDigits: maxFraction }
    : { maximumSignificantDigits: significant };
  const options = { ...digits, useGrouping: grouping ? "auto" : false, signDisplay: plus ? "exceptZero" : "negative" };
  return numberFormat(locale, options).format(value);
}

/** A number times ten to a power, as a decimal string with an exponent: no digit is rounded. */
function shifted(value, power) {
  const [digits, exponent] = value.toExponential().split("e");
  return `${digits}e${Number(exponent) + power}`;
}

const POWERS = { "-": "⁻", ...SUPERSCRIPTS };

/** The twin of format_power: "6.72 × 10²³"; empty for what is neither very large nor very small. */
export function formatPower(value, locale, { plus = false } = {}) {
  const size = Math.abs(value);
  if (!size || (size >= 1e-6 && size < 1e15)) return "";
  let power = Number(value.toExponential().split("e")[1]);
  const write = (digits) => formatNumber(digits, locale, { significant: 4, plus });
  let number = write(shifted(value, -power));
  if (/^\D*10$/.test(number)) {
    power += 1;
    number = write(value < 0 ? -1 : 1);
  }
  return `${number} × 10${[...String(power)].map((digit) => POWERS[digit]).join("")}`;
}

/** The twin of format_figure: a result of any size. */
export function formatFigure(value, locale, { plus = false } = {}) {
  const size = Math.abs(value);
  const digits = size > 0 && size < 1 ? { significant: 4 } : {};
  return formatPower(value, locale, { plus }) || formatNumber(value, locale, { ...digits, plus });
}

/** The twin of format_percent: a fraction in percent, without the sign. */
export function formatPercent(value, locale, { plus = false } = {}) {
  const percent = Number(shifted(value, 2));
  const power = formatPower(percent, locale, { plus });
  const digits = Math.abs(percent) < 1000 ? { significant: 4 } : { maxFraction: 0 };
  return power || formatNumber(shifted(value, 2), locale, { ...digits, plus });
}

/** The twin of format_compact: "8.03B"; empty below a million, and where a power of ten is written. */
export function formatCompact(value, locale, magnitudes) {
  const size = Math.abs(value);
  if (size < 1e6 || size >= 1e15) return "";
  const [, divisor, suffix] = magnitudes.findLast(([power]) => 10 ** power <= size);
  return formatNumber(shifted(value, -divisor), locale, { significant: 3 }) + suffix;
}
