// A calculator's results. The twin of Calculator.evaluate in batchfit/calculator.py; the formulas themselves are
// translated from Python.

/** Calls a formula with those of the known values that it takes. */
export function call(formulas, name, known) {
  return formulas[name](...formulas.PARAMETERS[name].map((parameter) => known[parameter]));
}

/** {values: inputs and results by name, choices: the values around a target, in order}. */
export function evaluate(calculator, formulas, inputs) {
  const { inverse } = calculator;
  const backwards = inverse && inverse.given in inputs;
  let known = { ...inputs };
  if (backwards) known[inverse.solved] = call(formulas, inverse.nearest, known);
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
  for (const output of Object.values(calculator.outputs)) known[output.name] = call(formulas, output.formula, known);
  return known;
}
