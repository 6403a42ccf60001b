// Tables, curves, bars and cards under the results, shown anew as a person types. The twin of batchfit/sections.py and
// batchfit/web/marks.py.

import { evaluate } from "./evaluate.js";
import { svgElement } from "./drawing.js";
import { formatCompact, formatFigure } from "./numbers.js";
import { chosen, inWords, quantity } from "./wording.js";

const SHOW = { table: showTable, curve: showCurve, stack: showStack, cards: showCards };

/**
 * Shows every section. The context: the calculator, its formulas and results, `shapes` as the module of where everything
 * is on curves and bars, and `unitOf`, which gives the unit that a size is shown in.
 */
export function show(context) {
  document.querySelectorAll("[data-section]").forEach((place, at) => {
    const section = context.calculator.sections[at];
    SHOW[section.kind](place, section, context);
  });
}

/** The values for other inputs, null where they do not go together. */
function evaluated({ calculator, formulas }, inputs) {
  try {
    return evaluate(calculator, formulas, inputs).values;
  } catch (error) {
    if (error.name !== "Unfit") throw error;
    return null;
  }
}

function worded({ calculator, unitOf }, of, value) {
  return value === undefined ? "–" : inWords(of, value, unitOf(of, value), calculator);
}

// ---- Tables -------------------------------------------------------------------------------------------------

function showTable(place, { over, columns, values }, context) {
  const { calculator, results } = context;
  const field = calculator.fields[over];
  const given = results.inputs[over];
  const listed = field.choices ? Object.keys(field.choices) : [...new Set([...values, given])].sort((a, b) => a - b);
  const rows = listed.map((value) => {
    const row = document.createElement("tr");
    if (value === given) row.className = "here";
    const known = evaluated(context, { ...results.inputs, [over]: value }) ?? {};
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = field.choices ? chosen(field, value, calculator) : worded(context, field, value);
    row.append(name, ...columns.map((column) => {
      const cell = document.createElement("td");
      cell.textContent = worded(context, calculator.outputs[column], known[column]);
      return cell;
    }));
    return row;
  });
  place.querySelector("tbody").replaceChildren(...rows);
}

// ---- Curves -------------------------------------------------------------------------------------------------

function makeAxis(of, low, high, log, unit, { calculator, shapes }) {
  let scale = 1;
  if (of.kind === "bytes") scale = calculator.units[unit];
  else if (of.kind === "share") scale = 0.01;
  else if (of.kind === "seconds") scale = (calculator.durations.find(([each]) => each <= high) ?? calculator.durations.at(-1))[0];
  const from = low / scale;
  const to = high / scale;
  return {
    low,
    high,
    part: (value) => shapes.part(value, low, high, log),
    marks: Array.from({ length: shapes.mark_count(from, to, log) }, (_, i) => shapes.mark_value(i, from, to, log) * scale),
    text(value) {
      if (of.kind === "bytes") return quantity(of, value, unit, calculator)[1];
      if (of.kind === "share" || of.kind === "seconds") return inWords(of, value, unit, calculator);
      return formatCompact(value, calculator.lang, calculator.magnitudes) || formatFigure(value, calculator.lang);
    },
  };
}

function showCurve(place, section, context) {
  const { calculator, results, shapes, unitOf } = context;
  const { over, logX, logY } = section;
  const field = calculator.fields[over];
  const outputs = section.outputs.map((name) => calculator.outputs[name]);
  const [low, high] = [section.low, section.high].map((end) => (typeof end === "string" ? results.values[end] : end));
  const whole = field.kind === "whole" ? 1 : 0;
  const places = Array.from({ length: section.samples + 1 }, (_, i) => shapes.sample(i, low, high, logX, whole));
  const corners = section.corners.map((name) => results.values[name]).filter((at) => low <= at && at <= high);
  const points = [...new Set([...places, ...corners])].sort((a, b) => a - b)
    .map((at) => ({ at, values: evaluated(context, { ...results.inputs, [over]: at }) ?? {} }));
  const usable = (value) => value !== undefined && (value > 0 || !logY);
  const all = points.flatMap(({ values }) => section.outputs.map((name) => values[name]).filter(usable));
  place.hidden = !all.length;
  const draw = (add, addLine) => {
    if (!all.length) return;
    const across = makeAxis(field, Math.min(low, high), Math.max(low, high), logX, unitOf(field), context);
    const ends = logY ? all : [...all, 0];
    const up = makeAxis(outputs[0], Math.min(...ends), Math.max(...ends), logY, unitOf(outputs[0]), context);
    for (const value of up.marks) {
      add("rung", "rung", { from_y: up.part(value) });
      add("y_number", "end", { from_y: up.part(value) }, up.text(value));
    }
    add("base", "axis", {});
    for (const value of across.marks) {
      add("tick", "axis", { from_x: across.part(value) });
      add("x_number", "centred", { from_x: across.part(value) }, across.text(value));
    }
    add("x_name", "end", {}, axisName(field, unitOf(field)));
    add("y_name", "label", {}, outputs.length === 1 ? axisName(outputs[0], unitOf(outputs[0])) : bareUnit(outputs[0], unitOf(outputs[0])));
    outputs.forEach(({ name, label }, number) => {
      const line = points.filter(({ values }) => usable(values[name]))
        .map(({ at, values }) => [across.part(at), up.part(values[name])]);
      addLine(`curve curve-${number + 1}`, line);
      if (outputs.length > 1 && line.length) {
        // Each name stands farther left than the one before, so that lines that end together keep theirs apart.
        const [from_x, from_y] = line[Math.max(0, line.length - 1 - Math.floor((number * section.samples) / 4))];
        add("line_name", `end name-${number + 1}`, { from_x, from_y }, label);
      }
    });
    const given = results.values[over];
    if (given < across.low || given > across.high) return;
    outputs.forEach(({ name }, number) => {
      if (!usable(results.values[name])) return;
      const known = { from_x: across.part(given), from_y: up.part(results.values[name]) };
      add("drop", "drop", known);
      add("here", `here here-${number + 1}`, known);
    });
  };
  drawOn(place, shapes, draw);
}

function axisName(of, unit) {
  const shown = bareUnit(of, unit);
  return shown ? `${of.label} (${shown})` : of.label;
}

/** The unit that an axis's numbers lack. */
function bareUnit(of, unit) {
  if (of.kind === "bytes") return unit;
  return ["share", "seconds"].includes(of.kind) ? "" : of.unitText ?? of.unit;
}

const ELEMENTS = { x1: "line", cx: "circle", height: "rect", x: "text" };

/** Draws on each canvas of a place: `draw` is given what adds a shape, and what adds a line through places [x, y]. */
function drawOn(place, shapes, draw) {
  for (const canvas of place.querySelectorAll("svg[data-width]")) {
    const drawn = [];
    const width = Number(canvas.dataset.width);
    const where = (name, known) => shapes[name](...shapes.PARAMETERS[name].map((parameter) => ({ ...known, width })[parameter]));
    const add = (name, style, known, text = "") => {
      const at = where(name, known);
      const key = Object.keys(ELEMENTS).find((each) => each in at);
      drawn.push(svgElement(ELEMENTS[key], style, at, text));
    };
    draw(add, (style, line) => {
      const spots = line.map(([from_x, from_y]) => where("here", { from_x, from_y })).map(({ cx, cy }) => [cx, cy]);
      drawn.push(svgElement("polyline", style, withoutNeedless(spots).flat()));
    });
    canvas.replaceChildren(...drawn);
  }
}

/** A line without the corners [x, y] that lie on it anyway, but for less than is seen. */
function withoutNeedless(spots) {
  if (spots.length < 3) return spots;
  const [[fromX, fromY], [toX, toY]] = [spots[0], spots.at(-1)];
  const slope = toX !== fromX ? (toY - fromY) / (toX - fromX) : 0;
  const aside = spots.slice(1, -1).map(([x, y]) => Math.abs(y - fromY - slope * (x - fromX)));
  const farthest = Math.max(...aside);
  if (farthest <= 0.1) return [spots[0], spots.at(-1)];
  const at = aside.indexOf(farthest) + 1;
  return [...withoutNeedless(spots.slice(0, at + 1)).slice(0, -1), ...withoutNeedless(spots.slice(at))];
}

// ---- Bars ---------------------------------------------------------------------------------------------------

function showStack(place, { parts }, context) {
  const { calculator, results } = context;
  const names = Object.entries(parts);
  const valueOf = (name) => results.values[name] ?? 0;
  const whole = names.reduce((sum, [, name]) => sum + valueOf(name), 0);
  drawOn(place, context.shapes, (add) => {
    let before = 0;
    for (const [style, name] of names) {
      const after = before + valueOf(name);
      if (whole) add("block", style, { from_x: before / whole, to_x: after / whole });
      before = after;
    }
  });
  place.querySelectorAll("[data-part]").forEach((shown, at) => {
    const of = calculator.outputs[names[at][1]];
    shown.textContent = worded(context, of, results.values[of.name]);
  });
}

// ---- Cards --------------------------------------------------------------------------------------------------

function showCards(place, { output }, { results }) {
  const needed = results.values[output];
  const steps = place.querySelector("[data-steps]").dataset.steps.split(" ");
  let bytes = 0;
  place.querySelectorAll("dd span").forEach((card, at) => {
    bytes += Number(steps[at]);
    card.hidden = !(needed <= bytes);
  });
  for (const group of place.querySelectorAll("[data-group]")) group.hidden = !group.querySelector("span:not([hidden])");
  place.querySelector("[data-none]").hidden = Boolean(place.querySelector("dd span:not([hidden])"));
}
