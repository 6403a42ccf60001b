// What Python's numbers do and JavaScript's do otherwise, for the formulas that batchfit.emit translates.

/** Thrown where Python raises: there is no result. */
export class FormulaError extends Error {
  constructor(message) {
    super(message);
    this.name = "FormulaError";
  }
}

function finite(value) {
  if (!Number.isFinite(value)) throw new FormulaError("not a finite number");
  return value;
}

function nonzero(value) {
  if (value === 0) throw new FormulaError("division by zero");
  return value;
}

/** An integer, without the negative zero that only floats have. */
function integer(value) {
  return finite(value) + 0;
}

export function div(a, b) {
  return a / nonzero(b);
}

/** Rounds towards minus infinity, exactly: the quotient is taken of a multiple of b, not of a. */
export function floordiv(a, b) {
  const rest = a % nonzero(b);
  const quotient = (a - rest) / b - (rest !== 0 && rest < 0 !== b < 0 ? 1 : 0);
  const floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

/** Has the sign of b. */
export function mod(a, b) {
  const rest = a % nonzero(b);
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
}

export function pow(a, b) {
  if (a === 0 && b < 0) throw new FormulaError("division by zero");
  if (a === 1 || (a === -1 && Math.abs(b) === Infinity)) return 1;
  const result = a ** b;
  if (!Number.isFinite(a) || !Number.isFinite(b)) return result;
  if (Number.isNaN(result)) throw new FormulaError("a power that is no real number");
  if (!Number.isFinite(result)) throw new FormulaError("too large");
  // An engine's own powers may be off in the last bit even where the exact result is an integer.
  return Number.isSafeInteger(a) && Number.isInteger(b) && b >= 0 ? Number(BigInt(a) ** BigInt(b)) : result;
}

export function abs(a) {
  return Math.abs(a);
}

/** The first of the smallest. */
export function min(...values) {
  return values.reduce((least, value) => (value < least ? value : least));
}

/** The first of the largest. */
export function max(...values) {
  return values.reduce((most, value) => (value > most ? value : most));
}

export function floor(a) {
  return integer(Math.floor(a));
}

export function ceil(a) {
  return integer(Math.ceil(a));
}

export function trunc(a) {
  return integer(Math.trunc(a));
}

export function float(a) {
  return a;
}

/** Halves go to the even neighbour. With `digits`, the decimal nearest to what the float really holds. */
export function round(a, digits) {
  if (digits === undefined) {
    const size = Math.abs(finite(a));
    const floor = Math.floor(size);
    const up = size - floor > 0.5 || (size - floor === 0.5 && floor % 2 === 1);
    return integer(Math.sign(a) * (floor + (up ? 1 : 0)));
  }
  if (!(Math.abs(a) < 1e21)) return a;
  const size = Math.abs(a);
  const rounded = size.toFixed(digits); // exact, but halves go up
  // A half has one digit more, a five, and no others: a float's neighbours differ within the next twenty.
  const isHalf = /50{20}$/.test(size.toFixed(digits + 21));
  const isOdd = "13579".includes(rounded.at(-1));
  const result = isHalf && isOdd ? roundDown(size, digits) : Number(rounded);
  return a < 0 ? -result : result;
}

function roundDown(size, digits) {
  const text = size.toFixed(digits + 1);
  return Number(text.slice(0, -1));
}

export function sqrt(a) {
  if (a < 0) throw new FormulaError("the square root of a negative number");
  return Math.sqrt(a);
}

export function exp(a) {
  const result = Math.exp(a);
  if (result === Infinity && a !== Infinity) throw new FormulaError("too large");
  return result;
}

export function cos(a) {
  return Math.cos(finite(a));
}

function positive(a) {
  if (a <= 0) throw new FormulaError("the logarithm of a number that is not positive");
  return a;
}

export function log(a, base) {
  const natural = Math.log(positive(a));
  return base === undefined ? natural : natural / nonzero(Math.log(positive(base)));
}

export function log2(a) {
  return Math.log2(positive(a));
}

export function log10(a) {
  return Math.log10(positive(a));
}

/** The sum of term(i) for i in range(start, stop, step), of those only that `keep` keeps. */
export function sum(start, stop, step, term, keep) {
  if (![start, stop, step].every(Number.isInteger)) throw new FormulaError("a range over fractions");
  let total = 0;
  for (let i = start; nonzero(step) > 0 ? i < stop : i > stop; i += step) {
    if (keep === undefined || keep(i)) total += term(i);
  }
  return total;
}
