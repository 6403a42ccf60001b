"""Every text that a person can meet is translated, and every translation belongs to a text there is."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from babel.messages.catalog import Catalog

from batchfit.languages import SOURCE, languages

ROOT = Path(__file__).parent.parent


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("catalogues", ROOT / "scripts" / "catalogues.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


catalogues: Any = _tool()
WANTED = catalogues.texts()
TRANSLATED = [lang for lang in languages() if lang != SOURCE]


@pytest.mark.parametrize("lang", TRANSLATED)
def test_a_catalogue_is_complete(lang: str) -> None:
    assert catalogues.problems(catalogues.read(catalogues.LOCALE / f"{lang}.po"), WANTED) == []


@pytest.mark.parametrize("lang", TRANSLATED)
def test_a_catalogue_stands_as_the_tool_writes_it(lang: str) -> None:
    file = catalogues.LOCALE / f"{lang}.po"
    assert file.read_bytes() == catalogues.updated(catalogues.read(file), WANTED)


def test_texts_are_found_wherever_they_stand() -> None:
    found = dict(WANTED)
    assert found["Target effective batch size"] == "calculators/gradient_accumulation.py"
    assert found[("{n} stage", "{n} stages")] == "calculators/pipeline_bubble.py"
    assert found["optimizer step"] == "pictures/gradient_accumulation.py"
    assert found["must be a whole number from {minimum} to {maximum}; you typed {typed}"] == "fields.py"
    assert found["was given more than once in the address; give it once"] == "web/state.py"
    assert found["{label} read as {number}"] == "cli/calc.py"
    assert found["{one}, {other}"] == "sentences.py"
    assert "{samples}" not in found
    assert found["Skip to the content"] == "web/templates/base.html"


def _catalogue(**changed: object) -> Catalog:
    catalog = Catalog(locale="de")
    catalog.add("Add {n}", "Addiere {n}")
    catalog.add(("{n} step", "{n} steps"), ("{n} Schritt", "{n} Schritte"))
    for name, value in changed.items():
        setattr(catalog.get("Add {n}"), name, value)
    return catalog


@pytest.mark.parametrize(
    ("catalog", "problem"),
    [
        (_catalogue(), ""),
        (_catalogue(string=""), "missing: 'Add {n}'"),
        (_catalogue(flags={"fuzzy"}), "fuzzy: 'Add {n}'"),
        (_catalogue(string="Addiere {m}"), "other placeholders: 'Addiere {m}'"),
        (_catalogue(id="Subtract {n}"), "stale: 'Subtract {n}'"),
    ],
)
def test_the_check_can_fail(catalog: Catalog, problem: str) -> None:
    wanted = [("Add {n}", "a.py"), (("{n} step", "{n} steps"), "a.py")]
    found = catalogues.problems(catalog, wanted)
    assert any(line.startswith(problem) for line in found) if problem else found == []


def test_the_check_counts_plural_forms() -> None:
    catalog = _catalogue()
    step = catalog.get("{n} step")
    assert step
    step.string = ("{n} Schritt", "")
    assert catalogues.problems(catalog, [("Add {n}", "a.py"), (("{n} step", "{n} steps"), "a.py")])
