"""What pages compute in JavaScript is what the server computes: fields, results, words. The drawing has no Node to
run in and is compared in the browser."""

import random
from typing import Any

import pytest

from batchfit import calculators
from batchfit.errors import BadInput
from batchfit.fields import Field, Reading
from batchfit.languages import languages
from batchfit.numbers import decimal_text
from batchfit.units import UNITS
from batchfit.web.instrument import Instrument
from batchfit.web.shelf import Shelf
from batchfit.web.site import _formula_modules
from batchfit.web.state import canonical, read_state
from batchfit.wording import all_in_words, complaint, in_words
from tests.emit.node import Thrown, evaluate, node

CALCULATOR = calculators.load("gradient-accumulation")
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


def for_script(lang: str) -> dict[str, Any]:
    shelf = Shelf()
    return Instrument(read_state(CALCULATOR, lang, []), shelf.pictures[CALCULATOR.slug]).for_script()


@pytest.mark.parametrize("lang", languages())
def test_a_field_is_read_alike(lang: str) -> None:
    data = for_script(lang)
    cases = [
        (each, text, unit)
        for each in CALCULATOR.all_fields
        for text in TYPED
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
    for (each, text, unit), answer in zip(cases, answers, strict=True):
        reading = read(each, text, lang, unit)
        if isinstance(reading, BadInput):
            assert isinstance(answer, Thrown), (text, answer)
            assert answer.message == complaint(reading, lang)
            assert answer.properties["empty"] == (not text.strip())
        else:
            assert answer == {
                "value": reading.value,
                "exact": decimal_text(reading.number),
                "unit": reading.unit,
                "ambiguous": reading.ambiguous,
                "echo": reading.echo,
            }, text
            assert next(addresses) == canonical(each, reading)


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


def test_results_are_alike() -> None:
    (node().folder / "formulas.js").write_bytes(
        _formula_modules(Shelf([CALCULATOR]))["formulas-gradient-accumulation.js"]
    )
    module = (
        'import { evaluate } from "./evaluate.js";\nimport * as formulas from "./formulas.js";\n'
        "export const run = (calculator, inputs) => evaluate(calculator, formulas, inputs);\n"
    )
    data = for_script("en")
    cases = inputs(2000)
    for case, answer in zip(cases, evaluate(module, "run", [[data, case] for case in cases]), strict=True):
        results = CALCULATOR.evaluate(case)
        assert answer["values"] == results.inputs | results.outputs
        chosen = [
            {name: choice[name] for name in wanted}
            for choice, wanted in zip(answer["choices"], results.choices, strict=True)
        ]
        assert chosen == list(results.choices)


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


def test_sentences_are_filled_alike() -> None:
    results = CALCULATOR.evaluate(
        {"micro_batch": 4, "accumulation_steps": 8, "replicas": 1, "activation_per_sample": 5 * 10**8}
    )
    for lang in languages():
        words = all_in_words(CALCULATOR, results.inputs | results.outputs, lang)
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
