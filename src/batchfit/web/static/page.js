// The calculator in the page: answers at once as a person types, and keeps the address in step.

import { call, evaluate } from "./evaluate.js";
import { canonical, inField, readField, Unusable } from "./fields.js";
import { draw } from "./drawing.js";
import { entryText, formatCompact, formatNumber, formatPower } from "./numbers.js";
import { chosen, fill, fittingUnit, inWords, quantity, signed } from "./wording.js";
import { attachSlider } from "./sliders.js";
import { attachPresets, chosenEntries, clearPresets, filled, offerPresets } from "./presets.js";

const calculator = JSON.parse(document.getElementById("calculator").textContent);
const formulas = await import(calculator.scripts.formulas);
/** What only calculators with tables, curves or cards have. */
const sections = calculator.scripts.sections && (await import(calculator.scripts.sections));
const { lang, inverse } = calculator;
const root = document.querySelector("[data-instrument]");
const find = (selector, within = root) => within.querySelector(selector);
const QUIET = 900; // milliseconds without typing before the result is spoken

const defaults = Object.fromEntries(Object.values(calculator.fields).filter((field) => field.default !== null)
  .map((field) => [field.name, canonical(field, readField(field, field.default, field.unit, calculator))]));
/** What a field holds unless something else is given for it: what a preset fills in, or its default. */
const usual = (name) => filled()[name] ?? defaults[name];

/** Whether the inverse's field is given, and its solved field found. */
let backwards = calculator.inverted;
/** The last results that there were. */
let last = null;

// ---- Reading the form ---------------------------------------------------------------------------------------

function input(name) {
  return find(`[data-field="${name}"] :is(input, select)[name]`);
}

/** Every box of a field of which several values can be ticked. */
function boxes(name) {
  return [...root.querySelectorAll(`[data-field="${name}"] [type=checkbox]`)];
}

function textOf(field) {
  if (field.kind !== "choices") return input(field.name).value;
  return boxes(field.name).filter((box) => box.checked).map((box) => box.value).join(",");
}

function write(field, reading) {
  if (field.kind === "choices") for (const box of boxes(field.name)) box.checked = reading.value.includes(box.value);
  else input(field.name).value = inField(field, reading);
  const unit = find(`[data-field="${field.name}"] select[name$=_unit]`);
  if (unit) unit.value = reading.unit;
}

function unitOf(field) {
  return (field.units && find(`[data-field="${field.name}"] select`)?.value) || field.unit;
}

/** The fields of one direction, in order; the inverse's stands where its solved field would. */
function fieldsInUse(inverted = backwards) {
  const all = Object.values(calculator.fields).filter((field) => field.name !== inverse?.given);
  return all.map((field) => (inverted && field.name === inverse.solved ? calculator.fields[inverse.given] : field));
}

/** Whether results may depend on a field. */
function applies({ onlyWhen }) {
  return !onlyWhen || onlyWhen.values.includes(textOf(calculator.fields[onlyWhen.field]));
}

function read() {
  const readings = {};
  const wrong = {};
  for (const field of fieldsInUse()) {
    try {
      readings[field.name] = readField(field, textOf(field), unitOf(field), calculator);
    } catch (error) {
      if (error.name !== "Unusable") throw error;
      if (applies(field)) wrong[field.name] = error;
      else readings[field.name] = readField(field, usual(field.name) ?? "", field.unit, calculator);
    }
  }
  return { readings, wrong };
}

/** The query that gives these readings; defaults are left out. */
function queryOf(readings, fields = fieldsInUse()) {
  const pairs = new URLSearchParams(chosenEntries());
  for (const field of fields.filter(applies)) {
    const reading = readings[field.name];
    const text = typeof reading === "number" ? String(reading) : canonical(field, reading);
    if (text !== (usual(field.name) ?? "")) pairs.set(field.name, text);
  }
  return pairs.toString();
}

// ---- Showing ------------------------------------------------------------------------------------------------

/** Reads the form and shows what follows from it. `asServed`: what stands beside the fields is the server's, and right. */
function update({ asServed = false } = {}) {
  for (const field of fieldsInUse()) if (field.onlyWhen) use(field.name, applies(field));
  offerPresets(use, (name) => applies(calculator.fields[name]));
  const { readings, wrong } = read();
  let results;
  if (!Object.keys(wrong).length) {
    const inputs = Object.fromEntries(Object.entries(readings).map(([name, reading]) => [name, reading.value]));
    try {
      results = { readings, inputs, ...evaluate(calculator, formulas, inputs) };
    } catch (error) {
      if (error.name !== "Unfit") throw error;
      wrong[error.field] = new Unusable(error.message, false);
    }
  }
  if (!asServed) for (const field of fieldsInUse()) showReading(field, readings[field.name], wrong[field.name]);
  const problems = Object.values(wrong);
  const state = !problems.length ? "good" : problems.some((problem) => !problem.empty) && last ? "stale" : "empty";
  root.dataset.state = state;
  find("[data-message]").textContent = message(state, problems);
  if (state === "good") {
    last = results;
    showResults(last);
    keepAddress(last);
  } else if (state === "empty") {
    last = null;
    for (const result of root.querySelectorAll("[data-result]")) blank(result);
  }
  speak(state === "good" ? last.answer : [find("[data-message]").textContent, ...problems.map((p) => p.message)].join(" "));
}

function message(state, problems) {
  if (state === "good") return "";
  if (state === "stale") return calculator.texts.stale;
  return problems.every((problem) => problem.empty) ? calculator.texts.empty : calculator.texts.correct;
}

function showReading(field, reading, problem) {
  const box = input(field.name);
  show(document.getElementById(`${field.name}-error`), problem && !problem.empty ? problem.message : "");
  const typed = textOf(field).trim();
  const noteworthy = reading?.ambiguous && ![reading.echo, canonical(field, reading)].includes(typed);
  const note = reading?.spelled || (noteworthy && reading.echo);
  show(document.getElementById(`${field.name}-note`), note ? fill(calculator.readAs, { number: note }) : "");
  // A unit typed into the field is shown as chosen beside it.
  const unit = field.units && find("select", box.parentElement);
  if (reading && [...(unit?.options ?? [])].some((option) => option.value === reading.unit)) unit.value = reading.unit;
  if (problem && !problem.empty) box.setAttribute("aria-invalid", "true");
  else box.removeAttribute("aria-invalid");
}

function show(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

function strip(name, text) {
  const shown = find(`[data-strip="${name}"]`); // details are not in the strip
  if (shown) shown.textContent = text;
}

function blank(result) {
  strip(result.dataset.result, "–");
  for (const part of ["before", "after", "also", "reading"]) find(`[data-${part}]`, result).textContent = "";
  find("[data-number]", result).textContent = "–";
  const drift = find("[data-drift]", result);
  if (drift) drift.hidden = true;
}

/** The unit that a size is shown in: results in the one that sizes were given in, where it fits. */
function unitFor(of, { readings, values }, value = values[of.name]) {
  if (readings[of.name]) return readings[of.name].unit;
  if (of.kind !== "bytes") return of.unit;
  const given = fieldsInUse().find((field) => field.kind === "bytes");
  return fittingUnit(value, given ? readings[given.name].unit : of.unit, calculator.units);
}

function showResults(results) {
  const extra = calculator.picture?.extra ?? {};
  const known = { ...results.values };
  for (const each of Object.values(extra)) known[each.name] = call(formulas, each.formula, known);
  const shown = { readings: results.readings, values: known };
  const described = { ...calculator.fields, ...calculator.outputs, ...extra, ...(inverse && { [inverse.drift.name]: inverse.drift }) };
  const words = {};
  for (const [name, of] of Object.entries(described)) {
    if (of.choices) words[name] = chosen(of, results.readings[name].value, calculator);
    else if (name in known) words[name] = inWords(of, known[name], unitFor(of, shown), calculator);
  }
  results.answer = fill(calculator.answer, words);
  for (const result of root.querySelectorAll("[data-result]")) showResult(result, described, shown, words);
  if (inverse) showDrift(results, words);
  showWorked(shown, described);
  if (calculator.picture) {
    draw(calculator.picture, root.querySelectorAll("[data-picture] svg"), formulas, known, words, lang);
    root.querySelectorAll("[data-caption]").forEach((part, at) => {
      part.textContent = fill(calculator.picture.caption[at], words);
    });
  }
  sections?.show({ calculator, formulas, results, shapes: sections, unitOf: (of, value) => unitFor(of, shown, value) });
}

function showResult(result, described, shown, words) {
  const { result: name } = result.dataset;
  const known = shown.values;
  const of = described[name];
  if (of.when) result.hidden = !(name in known);
  if (!(name in known)) return;
  const unit = unitFor(of, shown);
  const [before, number, after] = quantity(of, known[name], unit, calculator);
  find("[data-before]", result).textContent = before;
  const figure = find("[data-number]", result);
  figure.textContent = number;
  figure.dataset.number = Math.ceil(number.length / 4);
  find("[data-after]", result).textContent = after;
  strip(name, before + number + after);
  find("[data-also]", result).textContent = also(of, known[name], unit);
  find("[data-reading]", result).textContent = of.reading ? fill(of.reading, words) : "";
}

/** The same number otherwise: a size in the other kind of unit, a large count shortened. */
function also(of, value, unit) {
  const other = of.kind === "bytes" && calculator.also[unit];
  if (other) return `= ${inWords(of, value, other, calculator)}`;
  const short = ["whole", "number"].includes(of.kind) && formatCompact(value, lang, calculator.magnitudes);
  return short ? `≈ ${short}` : "";
}

/** Puts the numbers into the worked examples, which stand outside the calculator. Where a formula tells cases apart,
 * other numbers may need another example, which only the server can write. */
function showWorked(shown, described) {
  const { readings, values: known } = shown;
  for (const example of document.querySelectorAll("[data-cases]")) {
    example.hidden = example.dataset.cases !== queryOf(readings);
  }
  for (const number of document.querySelectorAll("[data-worked] [data-value]")) {
    const { value: name } = number.dataset;
    const of = described[name]; // none for what a choice gives
    const value = known[name] / (of?.kind === "bytes" ? calculator.units[unitFor(of, shown)] : 1);
    if (!Number.isNaN(value)) number.textContent = formatPower(value, lang) || formatNumber(value, lang, { significant: 9 });
  }
  for (const unit of document.querySelectorAll("[data-worked] [data-unit]")) {
    unit.textContent = `\u00a0${unitFor(described[unit.dataset.unit], shown)}`;
  }
}

function showDrift({ values, choices, readings }, words) {
  const box = find("[data-drift]");
  box.hidden = !(backwards && values[inverse.drift.name]);
  find("[data-drift-reading]").textContent = box.hidden ? "" : fill(inverse.drift.reading, words);
  const solved = calculator.fields[inverse.solved];
  const rows = choices.map((choice) => {
    const row = document.createElement("tr");
    if (choice[inverse.solved] === values[inverse.solved]) row.className = "nearest";
    const link = document.createElement("a");
    link.href = addressOf(queryOf({ ...readings, [inverse.solved]: choice[inverse.solved] }, fieldsInUse(false)));
    link.textContent = inWords(solved, choice[inverse.solved], solved.unit, calculator);
    const cells = [
      link,
      inWords(calculator.outputs[inverse.reaches], choice[inverse.reaches], "", calculator),
      signed(choice[inverse.drift.name], lang),
    ];
    row.append(...cells.map((content) => {
      const cell = document.createElement("td");
      cell.append(content);
      return cell;
    }));
    return row;
  });
  find("[data-choices]").replaceChildren(...rows);
}

let speaking;

/** Speaks only once a person has stopped typing, and only what has changed. */
function speak(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    const announcement = find("[data-announcement]");
    if (announcement.textContent !== text) announcement.textContent = text;
  }, QUIET);
}

// ---- The address --------------------------------------------------------------------------------------------

function addressOf(query) {
  const pairs = new URLSearchParams(query);
  // What an embed's address has beside the values.
  for (const beside of root.querySelectorAll("form > input[type=hidden]")) pairs.set(beside.name, beside.value);
  return calculator.path + (pairs.size ? `?${pairs}` : "");
}

let keeping;

/** Browsers allow only so many changes of the address, and a slider makes more. */
function keepAddress(results) {
  const query = queryOf(results.readings);
  clearTimeout(keeping?.timer);
  keeping = { address: addressOf(query) + location.hash };
  keeping.timer = setTimeout(writeAddress, 200);
  document.dispatchEvent(new CustomEvent("batchfit:state", { detail: { query, answer: results.answer } }));
}

function writeAddress() {
  clearTimeout(keeping?.timer);
  if (keeping) history.replaceState(null, "", keeping.address);
  keeping = undefined;
}

/** Shows a field, or hides it and leaves it out of what the form sends. */
function use(name, used) {
  const box = find(`[data-field="${name}"]`);
  box.hidden = !used;
  for (const control of box.querySelectorAll("input[name], select")) control.disabled = !used;
}

// ---- What a person does -------------------------------------------------------------------------------------

/** Switches between a given and a found value, keeping the batch: what was found becomes what is given. */
function turn(inverted) {
  if (!inverse || inverted === backwards) return;
  const from = last?.values[inverted ? inverse.reaches : inverse.solved];
  backwards = inverted;
  for (const [name, used] of [[inverse.given, inverted], [inverse.solved, !inverted]]) use(name, used);
  if (from !== undefined) input(inverted ? inverse.given : inverse.solved).value = entryText(String(from), lang);
  for (const kind of ["result", "strip"]) find(`[data-${kind}="${inverse.solved}"]`).hidden = !inverted;
  for (const link of root.querySelectorAll("[data-backwards]")) {
    if (link.dataset.backwards === String(inverted)) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

function reset() {
  clearPresets();
  refill(Object.values(calculator.fields), defaults);
  turn(false);
  update();
  moveSliders();
}

/** Writes texts, as addresses carry them, into fields; what has none is emptied. */
function refill(fields, texts) {
  for (const field of fields) {
    const text = texts[field.name];
    if (text === undefined) input(field.name).value = "";
    else write(field, readField(field, text, field.unit, calculator));
  }
}

attachPresets((texts) => {
  refill(Object.keys(texts).map((name) => calculator.fields[name]), texts);
  update();
  moveSliders();
});

const sliders = Object.values(calculator.fields).filter((field) => !field.choices).map((field) => attachSlider(
  field, input(field.name), find(`[data-slider="${field.name}"]`), calculator, () => unitOf(field)));

function moveSliders() {
  for (const slider of sliders) slider.follow();
}

root.addEventListener("input", () => {
  update();
  moveSliders();
});
find("form").addEventListener("submit", (event) => {
  if (event.submitter?.hasAttribute("formaction")) return;
  event.preventDefault();
  update();
});
root.addEventListener("click", (event) => {
  const link = event.target.closest("[data-backwards]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  turn(link.dataset.backwards === "true");
  update();
  moveSliders();
});
/** Whether a field holds what the server sent, which a browser may have put something else in place of. */
function isAsServed(field) {
  if (field.kind === "choices") return boxes(field.name).every((box) => box.checked === box.defaultChecked);
  if (field.kind === "choice") return [...input(field.name).options].every((each) => each.selected === each.defaultSelected);
  return input(field.name).value === input(field.name).defaultValue;
}

addEventListener("pagehide", writeAddress);
document.querySelector("[data-reset]")?.addEventListener("click", (event) => {
  event.preventDefault();
  reset();
});

// A browser may have put other values back into the form than the server sent.
update({ asServed: fieldsInUse().every(isAsServed) });
moveSliders();
document.documentElement.dataset.ready = "true";
