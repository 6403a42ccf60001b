"""Formulas as they are shown: text and MathML of formulas, and of examples with numbers put in."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from batchfit import calculators
from batchfit.emit import EmitError, Quantity, Style, Symbol, english, to_mathml, to_text, worked_example
from batchfit.formulas import activation_memory, batching
from batchfit.numbers import format_number
from batchfit.symbols import letters
from tests.emit import formulas

XY: dict[str, Symbol] = {"x": "x", "y": "y", "z": "z", "n": "n", "exact": "e", "pi": "π"}
BATCH: dict[str, Symbol] = {
    "micro_batch": "b",
    "accumulation_steps": "a",
    "replicas": "g",
    "target_batch": "T",
}
SIZES: dict[str, Symbol] = {"micro_batch": "b", "activation_per_sample": "A"}


def in_gigabytes(name: str | None, value: float) -> Quantity:
    if name in ("activation_per_sample", "activation_memory_bytes"):
        return Quantity(format_number(value / 1e9), "GB")
    return english(name, value)


# ---- Text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (formulas.arithmetic, "R = (x + y) · x − (x − (y − 2) · (−3)) − (−y)"),
        (formulas.division, "R = (x / y) / 2 + x / (y / 3)"),
        (formulas.whole_division, "R = ⌊x / y⌋ · 3 + (x mod y)"),
        (formulas.division_up, "R = ⌈x / y⌉"),
        (formulas.powers, "R = x^n − (−x^2)"),
        (formulas.real_powers, "R = x^y + 2^y · 3^(−y)"),
        (formulas.rounding, "R = ⌈x⌉ · 3 + ⌊x⌋ · 5 + round(x) · 7 + trunc(x) · 11 + trunc(−x)"),
        (formulas.digits, "R = round(x, 2) + round(x, 0) + round(x · 8, 1) / 8"),
        (formulas.extremes, "R = max(x, y, z) − min(x, y) · |min(z, −z)|"),
        (formulas.roots, "R = √(x) · log_2(x) + ln(x) + log_10(x) + log_3(x)"),
        (formulas.exponential, "R = e^x − e^(−x)"),
        (formulas.half_cosine, "R = (1 + cos(π · x)) / 2"),
        (formulas.total, "R = (∑(i = 1, i mod 2 = 0 … n) i · x) + (∑(j = 0 … n − 1) (j + 1))"),
        (formulas.constants, "R = x · 512 · 0.25 + π"),
        (formulas.uses_pair, "R = ⌊x / y⌋ + x / 2 · ⌊y / x⌋"),
        (
            formulas.uses_record,
            "R = { (x · 16) / y if x · 16 ≤ y or y · 16 ≤ x; y · 16 + (y · 16) / x otherwise }",
        ),
        (formulas.width, "R = max(x, y) − min(x, y)"),
        (formulas.calls, "R = ⌈x / 4⌉ − y + x · 3 + 2"),
        (formulas.defaults_left_out, "R = x · 3 + 0.25 + x · x + 2"),
        (formulas.alias, "R = (x + y − (x + y − y)) · 10 + x + y − y"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_formula(function: Callable[..., Any], shown: str) -> None:
    assert to_text(function, XY, "R") == shown


def test_example() -> None:
    values = {"micro_batch": 4, "accumulation_steps": 8, "replicas": 1}
    assert to_text(batching.effective_batch_size, BATCH, "E") == "E = b · a · g"
    assert to_text(batching.effective_batch_size, BATCH, "E", values) == "E = b · a · g = 4 · 8 · 1 = 32"
    memory = activation_memory.activation_memory_bytes
    sizes = {"micro_batch": 4, "activation_per_sample": 500_000_000}
    assert (
        to_text(memory, SIZES, ("M", "act"), sizes, show=in_gigabytes) == "M_act = b · A = 4 · 0.5 GB = 2 GB"
    )


def test_locals_with_a_symbol_have_their_own_lines() -> None:
    symbols = {**BATCH, "below": ("a", "−"), "above": ("a", "+")}
    assert to_text(batching.accumulation_steps_nearest, symbols, "a").splitlines() == [
        "a = { a_+ if b · a_+ · g − T < T − b · a_− · g; a_− otherwise }",
        "where a_− = max(1, ⌊T / (b · g)⌋)",
        "where a_+ = ⌈T / (b · g)⌉",
    ]
    values = {"target_batch": 250, "micro_batch": 4, "replicas": 8}
    assert to_text(batching.accumulation_steps_nearest, symbols, "a", values).splitlines() == [
        "a_− = max(1, ⌊T / (b · g)⌋) = max(1, ⌊250 / (4 · 8)⌋) = 7",
        "a_+ = ⌈T / (b · g)⌉ = ⌈250 / (4 · 8)⌉ = 8",
        "a = a_+ = 8",
    ]


def test_an_example_shows_the_case_that_applies() -> None:
    assert (
        to_text(formulas.uses_record, XY, "R", {"x": 3, "y": -2})
        == "R = (x · 16) / y = (3 · 16) / (−2) = −24"
    )
    assert to_text(formulas.branches, XY, "R", {"x": 4, "y": 4}) == "R = 2 · x = 2 · 4 = 8"


def test_several_results() -> None:
    assert to_text(formulas.record, XY, {"share": "σ", "states": "S"}).splitlines() == [
        "σ = (x · 16) / y",
        "S = x · 16",
    ]
    assert to_text(formulas.pair, XY, ["q", "h"], {"x": 7, "y": 2}).splitlines() == [
        "q = ⌊x / y⌋ = ⌊7 / 2⌋ = 3",
        "h = x / 2 = 7 / 2 = 3.5",
    ]


def test_a_result_that_is_a_local_with_the_same_symbol_is_shown_once() -> None:
    symbols = {**XY, "states": "S"}
    results = {"states": "S", "share": "σ"}
    assert to_text(formulas.record, symbols, results) == "σ = S / y\nwhere S = x · 16"
    assert to_text(formulas.record, symbols, results, {"x": 2, "y": 64}) == (
        "S = x · 16 = 2 · 16 = 32\nσ = S / y = 32 / 64 = 0.5"
    )


def test_digits_left_off_are_told() -> None:
    assert to_text(formulas.division, XY, "R", {"x": 1, "y": 3}).endswith("≈ 1.166667")
    assert to_text(formulas.pair, XY, ["q", "h"], {"x": 1, "y": 3}).endswith("= 0.5")


def test_words_and_numbers_of_a_language() -> None:
    german = Style(if_="falls", otherwise="sonst", and_="und", separator=";")
    shown = to_text(
        formulas.clipped, XY, "R", style=german, show=lambda _, value: Quantity(format_number(value, "de"))
    )
    assert shown == "R = { min(x; 0,5) falls x > 0 und y > 1.000,5; 0 sonst }"


# ---- Refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "result", "construct"),
    [
        (formulas.comparisons, "R", "comparisons does not give what these are symbols of: R"),
        (formulas.pair, ["q"], "pair does not give what these are symbols of: ['q']"),
        (formulas.record, {"size": "S"}, "record does not give what these are symbols of: {'size': 'S'}"),
        (formulas.with_default, "R", "new has no symbol"),
        (formulas.sums, "R", "a sum over a range with a step, in a formula that is to be shown"),
        (formulas.choices, "R", "Truth in a formula that is to be shown"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_shown_is_refused(function: Callable[..., Any], result: Any, construct: str) -> None:
    with pytest.raises(EmitError) as caught:
        to_mathml(function, XY, result)
    assert caught.value.construct == construct
    assert (caught.value.file, caught.value.line) == (formulas.__file__, inspect.getsourcelines(function)[1])


def test_a_symbol_for_a_local_with_two_values_is_refused() -> None:
    with pytest.raises(EmitError, match="result has a symbol and more than one value"):
        to_text(formulas.stepwise, {**XY, "result": "r"}, "R")


def test_a_sum_over_a_letter_that_is_taken_is_refused() -> None:
    with pytest.raises(EmitError, match="a sum whose variable looks like another symbol: i"):
        to_text(formulas.total, {**XY, "x": "i"}, "R")


def test_an_example_raises_what_its_formula_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        worked_example(formulas.division, XY, "R", {"x": 1, "y": 0})


# ---- MathML --------------------------------------------------------------------------------------------

#: How many elements each element must hold, for those where it matters.
CHILDREN = {"mfrac": 2, "msup": 2, "msub": 2, "munderover": 3, "mtr": 2}
ELEMENTS = {*CHILDREN, "div", "math", "mrow", "mi", "mn", "mo", "mtext", "msqrt", "mtable", "mtd"}
ATTRIBUTES = {"display", "displaystyle", "dir", "form", "fence", "stretchy", "separator", "lspace", "rspace"}


class Checker(HTMLParser):
    """Raises unless what it is fed is well-formed presentation MathML without styles or scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, int]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ELEMENTS, tag
        assert {name for name, _ in attrs} <= ATTRIBUTES, attrs
        if self.open:
            name, children = self.open[-1]
            self.open[-1] = (name, children + 1)
        self.open.append((tag, 0))

    def handle_endtag(self, tag: str) -> None:
        name, children = self.open.pop()
        assert name == tag
        assert children == CHILDREN.get(tag, children), tag

    def handle_data(self, data: str) -> None:
        assert self.open or data.isspace()
        self.text += data


def checked(markup: str) -> str:
    """The text of MathML that is well-formed."""
    checker = Checker()
    checker.feed(markup)
    checker.close()
    assert checker.open == []
    return checker.text


def test_mathml() -> None:
    assert to_mathml(batching.effective_batch_size, BATCH, "E") == (
        '<math display="block" dir="ltr"><mi>E</mi><mo>=</mo>'
        "<mrow><mi>b</mi><mo>⋅</mo><mi>a</mi><mo>⋅</mo><mi>g</mi></mrow></math>"
    )
    assert to_mathml(formulas.share, XY, ("R", "max")) == (
        '<math display="block" dir="ltr"><msub><mi>R</mi><mi>max</mi></msub><mo>=</mo><msup>'
        "<mrow><mo>(</mo><mfrac><mi>x</mi><msqrt><mi>y</mi></msqrt>"
        "</mfrac><mo>)</mo></mrow><mn>2</mn></msup></math>"
    )


def test_worked_mathml() -> None:
    sizes = {"micro_batch": 4, "activation_per_sample": 500_000_000}
    shown = worked_example(activation_memory.activation_memory_bytes, SIZES, "M", sizes, show=in_gigabytes)
    start = '<math display="inline" displaystyle="true" dir="ltr">'
    assert shown == (
        f"<div>{start}<mi>M</mi><mo>=</mo><mrow><mi>b</mi><mo>⋅</mo><mi>A</mi></mrow></math> "
        f'{start}<mo lspace="0">=</mo><mrow><mn>4</mn><mo>⋅</mo>'
        "<mrow><mn>0.5</mn><mtext>&nbsp;GB</mtext></mrow></mrow></math> "
        f'{start}<mo lspace="0">=</mo><mrow><mn>2</mn><mtext>&nbsp;GB</mtext></mrow></math></div>'
    )


@pytest.mark.parametrize(
    "function",
    [
        f
        for f in vars(formulas).values()
        if inspect.isfunction(f) and f not in (formulas.comparisons, formulas.sums, formulas.choices)
        if f.__module__ == formulas.__name__
    ],
    ids=lambda function: function.__name__,
)
def test_mathml_is_well_formed(function: Callable[..., Any]) -> None:
    symbols: dict[str, Symbol] = {**XY, "new": "ν", "class_": ("c", "0")}
    results: dict[Any, Any] = {
        formulas.pair: ["q", "h"],
        formulas.record: {"states": "S"},
        formulas.interval: {"low": ("R", "−"), "high": ("R", "+")},
    }
    result = results.get(function, "R")
    assert checked(to_mathml(function, symbols, result))
    parameters = inspect.signature(function).parameters
    values = dict(zip(parameters, (3, 2, 5), strict=False))
    assert "=" in checked(worked_example(function, symbols, result, values))


def test_mathml_is_escaped() -> None:
    symbols: dict[str, Symbol] = {"x": ("<i>", '"&'), "y": "</math><script>"}
    shown = to_mathml(formulas.pair, symbols, ["<b>", "h"], show=lambda *_: Quantity("<2>", "&"))
    assert "&nbsp;" in shown
    assert checked(shown) == '<b>=⌊<i>"&</math><script>⌋h=<i>"&<2>\u00a0&'


@pytest.mark.parametrize("slug", calculators.slugs())
def test_every_calculators_formulas_can_be_shown(slug: str) -> None:
    calculator = calculators.load(slug)
    symbols = letters(calculator)
    known = calculator.evaluate({field.name: field.default_value() for field in calculator.fields}).values
    for output in calculator.outputs:
        result = symbols[output.name]
        shown = checked(to_mathml(output.formula, symbols, result))
        assert shown.startswith(f"{output.symbol.replace('_', '')}=")
        if output.name in known:
            values = {name: known[name] for name in output.parameters}
            assert checked(worked_example(output.formula, symbols, result, values))
