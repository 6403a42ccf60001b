"""Whether numbers keep their digits together: inputs with long results, and what finds a number that is broken."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from urllib.parse import urlencode

from batchfit.calculator import Calculator
from batchfit.errors import BadInput
from batchfit.fields import Field
from batchfit.numbers import format_figure

#: The numbers whose digits stand on several lines, with what they stand in; it takes a language's thousands separator.
BROKEN = r"""(group) => {
  const found = [];
  const numbers = new RegExp(`[0-9]+(?:[.,${group}][0-9]+)*`, "g");
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const box = node.parentElement;
    if (!box.checkVisibility() || box.closest("script, code, option, textarea, [popover], .unseen, svg")) continue;
    for (const { 0: number, index } of node.data.matchAll(numbers)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + number.length);
      const lines = new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom)));
      if (lines.size > 1) found.push(`${number} in ${box.outerHTML.slice(0, 80)}`);
    }
  }
  return found;
}"""


def long_numbers(calculator: Calculator) -> str:
    """The query of a state whose results have many digits: of states drawn at random, the one with the most. Larger
    numbers would be shorter again, as powers of ten."""
    draw = random.Random(20261201)
    numbers = [field for field in calculator.fields if field.kind in ("whole", "number", "bytes")]
    states: list[dict[str, str]] = [{}]
    for _ in range(400):
        some = draw.sample(numbers, draw.randint(1, len(numbers)))
        states.append({field.name: _drawn(field, draw.random()) for field in some})
    return urlencode(max(states, key=lambda state: _length(calculator, state)))


def _drawn(field: Field, part: float) -> str:
    """A number at a part of the way, in powers of ten, from its smallest to its largest."""
    low, high = (math.log10(max(bound, 1e-6)) for bound in (field.minimum, field.maximum))
    value = max(field.minimum, min(field.maximum, 10 ** (low + (high - low) * part)))
    whole = field.kind != "number" or value >= 100
    text = str(max(math.ceil(field.minimum), int(value))) if whole else f"{value:.2g}"
    return text + "B" if field.kind == "bytes" else text


def _length(calculator: Calculator, state: Mapping[str, str]) -> int:
    """The digits of the long results of a state; none where its inputs do not go together."""
    inputs = {field.name: field.default_value() for field in calculator.fields}
    try:
        inputs |= {name: calculator.field(name).read(text).value for name, text in state.items()}
        outputs = calculator.evaluate(inputs).outputs
    except BadInput:
        return 0
    counts = [each.name for each in calculator.outputs if each.kind in ("whole", "number")]
    return sum(len(format_figure(outputs[name])) ** 3 for name in counts if name in outputs)
