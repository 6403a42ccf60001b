"""Brings locale/*.po up to date with the texts in the code, or with --check says what is wrong with them.

    python scripts/catalogues.py            add new texts (empty, to be translated), drop those that are gone
    python scripts/catalogues.py --check    missing, stale or fuzzy translations, and placeholders that differ

Texts come from calls in the Python sources, from templates, and from the records of calculators and pictures.
JavaScript has none of its own: pages give it what it needs.
"""

from __future__ import annotations

import ast
import io
import string
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.pofile import read_po, write_po

from batchfit import calculators
from batchfit.calculator import Calculator, Output
from batchfit.fields import Field
from batchfit.pictures import picture_of
from batchfit.web.shared import TARGETS
from batchfit.wording import DURATIONS

PACKAGE = Path(__file__).parent.parent / "src" / "batchfit"
LOCALE = PACKAGE / "locale"
#: The sources whose texts people read in their own language. Other commands speak English.
SOURCES = [
    "assumptions.py",
    "fields.py",
    "presets.py",
    "samples.py",
    "sentences.py",
    "wording.py",
    "charts.py",
    "gpus.py",
    "planning/*.py",
    "frameworks/*.py",
    "cli/calc.py",
    "cli/plan.py",
    "cli/_plan_text.py",
    "cli/_sections.py",
    "cli/_formulas.py",
    "web/*.py",
]
#: Functions whose first argument is a text.
MARKED = {"_", "text", "translate", "Sentence"}

#: The header's lines that are left out.
UNKEPT = tuple(
    f'"{name}'
    for name in (
        "Project-Id",
        "Report-",
        "POT-Creation",
        "PO-Revision",
        "Last-Translator",
        "Language-Team",
        "Generated-By",
    )
)

#: A text, or its forms for one and for many.
Text = str | tuple[str, str]


def texts() -> list[tuple[Text, str]]:
    """Every text with the file that it stands in, each once, in the order in which it is found."""
    found: dict[Text, str] = {}
    for text, where in [*_in_records(), *_in_templates(), *_in_sources()]:
        if isinstance(text, tuple) or _is_of_a_language(text):
            found.setdefault(text, where)
    return list(found.items())


def _is_of_a_language(text: str) -> bool:
    """Whether a text has anything to translate beside what is put in: words, or punctuation around it, which some
    languages write in signs of their own."""
    parts = list(string.Formatter().parse(text))
    own = "".join(part for part, *_ in parts)
    filled = any(name is not None for _, name, *_ in parts)
    return any(letter.isalpha() for letter in own) or (filled and any(sign in own for sign in ".,:;()"))


def _in_records() -> Iterator[tuple[Text, str]]:
    for calculator in map(calculators.load, calculators.slugs()):
        where = f"calculators/{calculator.slug.replace('-', '_')}.py"
        for text in _of_calculator(calculator):
            yield text, where
        if picture := picture_of(calculator):
            labels = (extra.label for extra in picture.extra)
            for text in (*picture.caption, *labels, *(shape.text for shape in picture.shapes)):
                if text not in ("", "{number}"):
                    yield text, where.replace("calculators", "pictures")
    yield from ((forms, "wording.py") for _, forms in DURATIONS)
    yield from ((target.name, "web/shared.py") for target in TARGETS if not target.brand)


def _of_calculator(calculator: Calculator) -> Iterator[Text]:
    yield from (
        calculator.title,
        calculator.purpose,
        calculator.answer,
        calculators.group_title(calculator.category),
    )
    outputs = list(calculator.outputs)
    if way_back := calculator.inverse:
        yield from (way_back.forward_label, way_back.inverse_label)
        outputs.append(way_back.drift)
    of: Field | Output
    for of in calculator.all_fields:
        yield from filter(None, (of.label, of.help, of.group))
        yield from (choice.label for choice in of.choices)
        for bound in of.binds:
            yield from filter(None, (bound.label, bound.unit))
    for of in outputs:
        yield from (of.label, of.reading)
    for of in (*calculator.all_fields, *outputs):
        if of.unit and of.kind not in ("bytes", "seconds"):
            yield of.unit
        if of.counted:
            yield of.counted
    for preset in calculator.presets:
        yield from (preset.label, preset.help)
    yield from (each.message for each in calculator.checks)
    yield from (each.title for each in calculator.sections)
    if calculator.planner:
        yield calculator.planner


def _in_templates() -> Iterator[tuple[Text, str]]:
    for file in sorted((PACKAGE / "web" / "templates").glob("*.html")):
        with file.open("rb") as source:
            for _, message, _, _ in extract(
                "jinja2",
                source,
                {"_": None},
                options={"trim_blocks": "true", "lstrip_blocks": "true", "silent": "false"},
            ):
                yield str(message), f"web/templates/{file.name}"


def _in_sources() -> Iterator[tuple[Text, str]]:
    for pattern in SOURCES:
        for file in sorted(PACKAGE.glob(pattern)):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            constants = _constants(tree)
            for call in ast.walk(tree):
                if isinstance(call, ast.Call):
                    for text in _in_call(call, constants):
                        yield text, str(file.relative_to(PACKAGE))


def _in_call(call: ast.Call, constants: dict[str, list[str]]) -> Sequence[Text]:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name == "Counted":
        one, many = (ast.literal_eval(argument) for argument in call.args[:2])
        return [(one, many)]
    place = {"BadInput": 1}.get(name, 0 if name in MARKED else None)
    if place is None or len(call.args) <= place:
        return []
    argument = call.args[place]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return [argument.value]
    return constants.get(argument.id, []) if isinstance(argument, ast.Name) else []


def _constants(tree: ast.Module) -> dict[str, list[str]]:
    """Every text that each name is given anywhere in a module."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value.value)
    return found


# ---- Catalogues ---------------------------------------------------------------------------------------------


def read(file: Path) -> Catalog:
    """A catalogue as it stands."""
    with file.open("rb") as source:
        return read_po(source, locale=file.stem.replace("-", "_"))


def problems(catalog: Catalog, wanted: list[tuple[Text, str]]) -> list[str]:
    """What is wrong with a catalogue, a line each."""
    found = []
    there = {_key(message.id): message for message in catalog if message.id}
    keys = {_key(text) for text, _ in wanted}
    for text, where in wanted:
        message = there.get(_key(text))
        forms = _forms(message) if message else []
        if not forms or not all(forms):
            found.append(f"missing: {text!r} ({where})")
        elif message and message.fuzzy:
            found.append(f"fuzzy: {text!r}")
        elif isinstance(text, tuple) and len(forms) != catalog.num_plurals:
            found.append(f"{len(forms)} plural forms instead of {catalog.num_plurals}: {text!r}")
        else:
            expected = _placeholders(text if isinstance(text, str) else text[1])
            found += [
                f"other placeholders: {form!r} for {text!r}"
                for form in forms
                if _placeholders(form) != expected
            ]
    found += [f"stale: {key!r}" for key in there if key not in keys]
    return found


def _key(text: object) -> str:
    return text if isinstance(text, str) else str(text[0])  # type: ignore[index]


def _forms(message: Message) -> list[str]:
    return [message.string] if isinstance(message.string, str) else list(message.string)


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def updated(old: Catalog, wanted: list[tuple[Text, str]]) -> bytes:
    """The catalogue's file with these texts, those already translated kept."""
    new = Catalog(locale=old.locale, fuzzy=False, header_comment="", charset="utf-8")
    translated = {_key(message.id): message.string for message in old if message.id}
    for text, where in wanted:
        new.add(text, translated.get(_key(text), ""), locations=[(where, 0)])
    file = io.BytesIO()
    write_po(file, new, width=110, include_lineno=False, sort_output=False)
    # Dates and names would change with every run, and the repository knows them better.
    lines = file.getvalue().decode().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(UNKEPT)).lstrip().encode()


def main(arguments: list[str]) -> int:
    wanted = texts()
    failed = False
    for file in sorted(LOCALE.glob("*.po")):
        catalog = read(file)
        if "--check" not in arguments:
            file.write_bytes(updated(catalog, wanted))
            catalog = read(file)
        for problem in problems(catalog, wanted):
            failed = True
            print(f"{file.name}: {problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
