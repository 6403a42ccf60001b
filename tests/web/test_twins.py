"""What pages compute in JavaScript is what the server computes: fields, results, words. The drawing has no Node to
run in and is compared in the browser."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchfit import calculators
from batchfit.calculator import Calculator, Results
from batchfit.errors import BadInput
from batchfit.fields import Field, Input, Reading
from batchfit.languages import languages
from batchfit.numbers import decimal_text
from batchfit.units import UNITS
from batchfit.web.instrument import Instrument
from batchfit.web.shelf import Shelf
from batchfit.web.site import _formula_modules
from batchfit.web.state import canonical, in_field, read_state
from batchfit.wording import all_in_words, chosen, complaint, fitting_unit, in_words
from tests.emit.node import Thrown, evaluate, node
from tests.everything import CALCULATOR as EVERYTHING
from tests.inputs import allowed_inputs

CALCULATOR = calculators.load("gradient-accumulation")
EVERY = [*map(calculators.load, calculators.slugs()), EVERYTHING]
#: What formulas may differ by: Python and JavaScript round the last digit of powers and logarithms each their own way.
CLOSE = 1e-12
TYPED = [
    *[
        "4",
        "0",
        "-1",
        "2.5",
        "1,5",
        "1.000",
        "1,000",
        "1 000",
        "1'000",
        "1.000,5",
        "1,000.5",
        "٤",
        "４",
        "",
        "  ",
        " 7 ",
    ],
    *[
        "1e3",
        "1E3",
        "abc",
        "1048576",
        "1048577",
        "0.5",
        "0,5",
        ".5",
        "5.",
        "0.50GB",
        "0.5 gib",
        "512MiB",
        "1 TB",
        "3 bytes",
        "0,5 Go",
        "512Mio",
        "7 octets",
        "7 o",
        "1 foo",
    ],
    *[
        "1GiBB",
        "GB",
        "1\u00a0GB",
        "1e400",
        "9" * 70,
        "+3",
        "−3",
        "½",
        "0x10",
        "1_000",
        "1.125",
        "1,125",
        "12.3456",
        "1e-3 TiB",
    ],
    *["1000000", "1000000.0000001", "1000000.000000001GB", "0.0000000005", "0.0000000015"],
]


#: Counts in several units.
MIXED = json.loads((Path(__file__).parents[1] / "cases/mixed_counts.json").read_text(encoding="utf-8"))
#: What more there is to type where a number may have a suffix, or where one chooses.
CHOSEN = [
    *[
        "7B",
        "1.5b",
        "1,5 Mrd.",
        "500K",
        "2.5 T",
        "7Z",
        "1e3K",
        "30%",
        "30 %",
        "٣٠٪",
        "12.5",
        "150",
        "90 s",
        "1.5h",
    ],
    *[
        "250ms",
        "3 days",
        "2 min",
        "1.1 min",
        "bf16",
        " FP32 ",
        "bf16,fp32",
        "fp8",
        "q",
        "k, Q",
        "q,x",
        ",",
        "K",
    ],
    *[
        "4.1億",
        "41000万",
        "４．１亿",
        "1 万亿",
        "3천",
        "7억",
        "2조",
        "3e4",
        "2.125億",
        "億",
        "7B億",
        "3億5000万",
        "50千",
        "8,03 Mio",
        "3 萬",
        "3百",
        "2백",
        "2.5百",
    ],
    *[
        "7 mil millones",
        "7\u00a0mil\u202fM",
        "2 milho\u0303es",
        "1,5 Md",
        "15 Bn",
        "3 bi",
        "2 milliards.",
        "٧ مليار",
        "٥ آلاف",
    ],
    *dict.fromkeys(case["text"] for kind in ("read", "refused") for case in MIXED[kind]),
]


def for_script(lang: str, calculator: Calculator = CALCULATOR) -> dict[str, Any]:
    shelf = Shelf([calculator])
    return script_data(Instrument(read_state(calculator, lang, []), shelf.pictures[calculator.slug]))


def script_data(instrument: Instrument) -> dict[str, Any]:
    """What the page's JavaScript is given, as it arrives there."""
    data: dict[str, Any] = json.loads(json.dumps(instrument.for_script()))
    return data


@pytest.mark.parametrize("lang", languages())
@pytest.mark.parametrize("calculator", [CALCULATOR, EVERYTHING], ids=lambda each: each.slug)
def test_a_field_is_read_alike(calculator: Calculator, lang: str) -> None:
    data = for_script(lang, calculator)
    cases = [
        (each, text, unit)
        for each in calculator.all_fields
        for text in [*TYPED, *CHOSEN]
        for unit in each.units or (each.unit,)
    ]
    answers = evaluate(
        node().folder / "fields.js",
        "readField",
        [
            [data["fields"][each.name], text, unit, {"lang": lang, "units": UNITS}]
            for each, text, unit in cases
        ],
    )
    readings = [
        [data["fields"][each.name], answer]
        for (each, _, _), answer in zip(cases, answers, strict=True)
        if not isinstance(answer, Thrown)
    ]
    addresses = iter(evaluate(node().folder / "fields.js", "canonical", readings))
    shown = iter(evaluate(node().folder / "fields.js", "inField", readings))
    for (each, text, unit), answer in zip(cases, answers, strict=True):
        reading = read(each, text, lang, unit)
        if isinstance(reading, BadInput):
            assert isinstance(answer, Thrown), (text, answer)
            assert answer.message == complaint(reading, lang)
            assert answer.properties["empty"] == (not text.strip(" ,")) or not each.is_choice
            assert answer.properties["empty"] == (not text.strip()) or each.is_choice
        else:
            value = list(reading.value) if isinstance(reading.value, tuple) else reading.value
            plain = each.is_choice or value is None
            assert answer == {
                "value": value,
                "exact": reading.echo if plain else decimal_text(reading.number),
                "unit": reading.unit,
                "ambiguous": reading.ambiguous,
                "echo": reading.echo,
                "spelled": reading.spelled,
            }, text
            assert next(addresses) == canonical(each, reading)
            assert next(shown) == in_field(each, reading, lang)


def read(each: Field, text: str, lang: str, unit: str) -> Reading | BadInput:
    """What Python makes of a text."""
    try:
        return each.read(text, lang, unit)
    except BadInput as wrong:
        return wrong


def inputs(count: int) -> list[dict[str, int]]:
    """Random inputs whose every result is exact in JavaScript, edges included."""
    draw = random.Random(20261130)
    found = [
        {"micro_batch": b, "accumulation_steps": a, "replicas": g, "activation_per_sample": size}
        for b, a, g, size in (
            (4, 8, 1, 5 * 10**8),
            (4, 8, 4, 2**29),
            (1, 1, 1, 0),
            (2**16, 2**20, 2**16, 10**10),
        )
    ]
    found.append({"micro_batch": 4, "target_batch": 250, "replicas": 8, "activation_per_sample": 5 * 10**8})
    for _ in range(count):
        b, a, g = (int(2 ** draw.uniform(0, 16)) for _ in range(3))
        size = draw.choice([0, int(2 ** draw.uniform(0, 36)), draw.randrange(1, 100) * 10**8])
        solved = (
            {"accumulation_steps": a}
            if draw.random() < 0.5
            else {"target_batch": max(1, b * g * a + draw.randrange(-b, b + 1))}
        )
        found.append({"micro_batch": b, **solved, "replicas": g, "activation_per_sample": size})
    return found


RUN = (
    'import { evaluate } from "./evaluate.js";\nimport * as formulas from "./formulas-SLUG.js";\n'
    "export const run = (calculator, inputs) => evaluate(calculator, formulas, inputs);\n"
)


def runner(calculator: Calculator) -> str:
    """A module that evaluates a calculator, its formulas beside it."""
    for name, module in _formula_modules(Shelf([calculator])).items():
        (node().folder / name).write_bytes(module)
    return RUN.replace("SLUG", calculator.slug)


def test_results_are_alike() -> None:
    module, data = runner(CALCULATOR), for_script("en")
    cases = inputs(2000)
    for case, answer in zip(cases, evaluate(module, "run", [[data, case] for case in cases]), strict=True):
        results = CALCULATOR.evaluate(case)
        assert answer["values"] == results.values
        chosen = [
            {name: choice[name] for name in wanted}
            for choice, wanted in zip(answer["choices"], results.choices, strict=True)
        ]
        assert chosen == list(results.choices)


def evaluated(calculator: Calculator, case: Mapping[str, Input]) -> Results | BadInput:
    """What Python makes of inputs."""
    try:
        return calculator.evaluate(case)
    except BadInput as wrong:
        return wrong


@pytest.mark.parametrize("calculator", EVERY, ids=lambda each: each.slug)
def test_every_calculator_evaluates_alike(calculator: Calculator) -> None:
    module, data = runner(calculator), for_script("de", calculator)

    @settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(allowed_inputs(calculator), min_size=20, max_size=40))
    def alike(cases: list[dict[str, Input]]) -> None:
        answers = evaluate(module, "run", [[data, case] for case in cases])
        for case, answer in zip(cases, answers, strict=True):
            results = evaluated(calculator, case)
            if isinstance(results, BadInput):
                assert isinstance(answer, Thrown)
                assert (answer.name, answer.properties["field"]) == ("Unfit", results.field)
                assert answer.message == complaint(results, "de")
                continue
            assert answer["values"].keys() == results.values.keys()
            for name, value in results.values.items():
                assert answer["values"][name] == pytest.approx(value, rel=CLOSE, abs=1e-300), (name, case)

    alike()


@pytest.mark.parametrize("lang", languages())
def test_quantities_are_worded_alike(lang: str) -> None:
    data = for_script(lang)
    counts = [0, 1, 2, 3, 5, 11, 21, 100, 999, 1000, 1001, 12345, 10**6, 2**40]
    sizes = [
        0,
        1,
        999,
        10**6,
        5 * 10**8,
        2**29,
        2**30,
        123456789,
        987654321012,
        10**12 - 1,
        10**15,
        4 * 10**14 + 7,
    ]
    way_back = CALCULATOR.inverse
    assert way_back
    calls, expected = [], []
    for each in CALCULATOR.all_fields:
        for value in sizes if each.kind == "bytes" else counts:
            for unit in each.units or (each.unit,):
                calls.append([data["fields"][each.name], value, unit, data])
                expected.append(in_words(each, value, lang, unit))
    for value in (-1000, -26, -1, 0, 1, 6, 1000):
        calls.append([data["inverse"]["drift"], value, "", data])
        expected.append(in_words(way_back.drift, value, lang))
    assert evaluate(node().folder / "wording.js", "inWords", calls) == expected


@pytest.mark.parametrize("lang", languages())
def test_shares_durations_and_figures_are_worded_alike(lang: str) -> None:
    data = for_script(lang, EVERYTHING)
    values = [
        0,
        1e-9,
        0.0004,
        0.05,
        0.179487,
        0.5,
        1,
        1.5,
        2,
        3,
        7,
        11,
        59.99,
        60,
        100,
        3600,
        5400,
        1e5,
        86400 * 3,
    ]
    values += [86400 * 400.0, 1e9, 1e15, 6.72e23]
    calls, expected = [], []
    for output in EVERYTHING.outputs:
        for value in values:
            unit = "GB" if output.kind == "bytes" else output.unit
            calls.append([data["outputs"][output.name], value, unit, data])
            expected.append(in_words(output, value, lang, unit))
    assert evaluate(node().folder / "wording.js", "inWords", calls) == expected
    modules = EVERYTHING.field("modules")
    chosen_calls = [[data["fields"]["modules"], list(some), data] for some in ((), ("q",), ("q", "k"))]
    assert evaluate(node().folder / "wording.js", "chosen", chosen_calls) == [
        chosen(modules, tuple(some), lang) for _, some, _ in chosen_calls
    ]


def test_a_size_is_shown_in_the_unit_that_fits_alike() -> None:
    sizes = (0, 1, 99, 96_000, 10**8, 10**8 - 1, 10**13, 2**50)
    cases = [(size, unit) for size in sizes for unit in ("GB", "GiB")]
    calls = [[size, unit, UNITS] for size, unit in cases]
    expected = [fitting_unit(size, unit) for size, unit in cases]
    assert evaluate(node().folder / "wording.js", "fittingUnit", calls) == expected


def test_sentences_are_filled_alike() -> None:
    results = CALCULATOR.evaluate(
        {"micro_batch": 4, "accumulation_steps": 8, "replicas": 1, "activation_per_sample": 5 * 10**8}
    )
    for lang in languages():
        words = all_in_words(CALCULATOR, results.values, lang)
        template = for_script(lang)["answer"]
        assert evaluate(node().folder / "wording.js", "fill", [[template, words]]) == [
            template.format(**words)
        ]


def test_a_field_that_takes_any_number_is_read_alike() -> None:
    each = Field("rate", "r", "Rate", "Help.", "number", "per second", -10, 10, "0.5")
    for lang in languages():
        data = {
            "kind": "number",
            "unit": each.unit,
            "minimum": -10,
            "maximum": 10,
            "empty": "",
            "wrong": "{typed}",
        }
        texts = ["-9.5", "0,25", "11", "1e1", "-10"]
        answers = evaluate(
            node().folder / "fields.js",
            "readField",
            [[data, t, each.unit, {"lang": lang, "units": UNITS}] for t in texts],
        )
        for text, answer in zip(texts, answers, strict=True):
            if text == "11":
                assert isinstance(answer, Thrown)
            else:
                assert answer["value"] == each.read(text, lang).value
