// A calculator's results. The twin of Calculator.evaluate in batchfit/calculator.py; the formulas themselves are
// translated from Python.

import { formatNumber } from "./numbers.js";
import { fill } from "./wording.js";

/** Calls a formula with those of the known values that it takes. */
export function call(formulas, name, known) {
  return formulas[name](...formulas.PARAMETERS[name].map((parameter) => known[parameter]));
}

/** Thrown where inputs that are each allowed do not go together: the field that is told, and what. */
export class Unfit extends Error {
  constructor(field, message) {
    super(message);
    this.name = "Unfit";
    this.field = field;
  }
}

/** What formulas know of an input: a number as it is, or the numbers that a choice binds. */
function numbersOf(field, value) {
  if (!field.choices) return { [field.name]: value ?? field.whenEmpty };
  const chosen = [value].flat().map((each) => field.binds[each]);
  return Object.assign(Object.fromEntries(field.bound.map((name) => [name, 0])), ...chosen);
}

/** {values: numbers and results by name, choices: the values around a target, in order}. Throws Unfit. */
export function evaluate(calculator, formulas, inputs) {
  const { inverse } = calculator;
  const backwards = inverse && inverse.given in inputs;
  let known = {};
  for (const [name, value] of Object.entries(inputs)) Object.assign(known, numbersOf(calculator.fields[name], value));
  if (backwards) known[inverse.solved] = call(formulas, inverse.nearest, known);
  for (const { field, holds, message } of calculator.checks ?? []) {
    if (call(formulas, holds, known)) continue;
    const words = Object.entries(known).map(([name, value]) => [name, formatNumber(value, calculator.lang)]);
    throw new Unfit(field, fill(message, Object.fromEntries(words)));
  }
  known = withOutputs(calculator, formulas, known);
  if (!backwards) return { values: known, choices: [] };
  const drift = (values) => ({ ...values, [inverse.drift.name]: call(formulas, inverse.drift.formula, values) });
  const around = [inverse.below, inverse.above].map((name) => call(formulas, name, known));
  const choices = [...new Set(around)].sort((a, b) => a - b)
    .map((value) => drift(withOutputs(calculator, formulas, { ...known, [inverse.solved]: value })));
  return { values: drift(known), choices };
}

function withOutputs(calculator, formulas, inputs) {
  const known = { ...inputs };
  for (const { name, formula, when } of Object.values(calculator.outputs)) {
    if (!when || call(formulas, when, known)) known[name] = call(formulas, formula, known);
  }
  return known;
}
