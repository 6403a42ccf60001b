// A picture drawn anew as a person types. The twin of batchfit/web/drawing.py.

import { call } from "./evaluate.js";
import { formatNumber } from "./numbers.js";
import { fill } from "./wording.js";

const SVG = "http://www.w3.org/2000/svg";

/** Draws the picture on each of its canvases. */
export function draw(picture, canvases, formulas, values, words, lang) {
  for (const canvas of canvases) {
    const known = { ...values, width: Number(canvas.dataset.width) };
    const drawn = picture.shapes.flatMap((shape) => {
      const times = shape.times ? call(formulas, shape.times, known) : 1;
      return Array.from({ length: times }, (_, i) => element(shape, formulas, { ...known, i }, words, lang));
    });
    canvas.replaceChildren(...drawn);
  }
}

function element(shape, formulas, known, words, lang) {
  const number = shape.text && shape.number ? formatNumber(call(formulas, shape.number, known), lang) : "";
  const text = shape.text ? fill(shape.text, { ...words, number }) : "";
  return svgElement(shape.element, shape.style, call(formulas, shape.place, known), text);
}

/** One SVG element at a place; a polyline at the numbers x, y, x, y, ... */
export function svgElement(name, style, place, text) {
  const drawn = document.createElementNS(SVG, name);
  drawn.setAttribute("class", style);
  if (name === "polygon" || name === "polyline") {
    const numbers = Object.values(place).map(short);
    const corners = numbers.filter((_, at) => at % 2 === 0).map((x, at) => `${x},${numbers[2 * at + 1]}`);
    drawn.setAttribute("points", corners.join(" "));
  } else {
    for (const [length, value] of Object.entries(place)) drawn.setAttribute(length, short(value));
  }
  if (text) drawn.textContent = text;
  return drawn;
}

/** A length to a tenth of a unit, rounded as Python does. */
function short(length) {
  return String(Math.floor(length * 10 + 0.5) / 10);
}
