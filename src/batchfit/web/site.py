"""What every page is made from: languages, texts, templates, static files. Made once at start."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any

import jinja2
from babel import Locale
from markupsafe import Markup

from batchfit.emit import to_module
from batchfit.languages import catalogue, direction, languages
from batchfit.numbers import format_number
from batchfit.palette import INTERFACE
from batchfit.pictures import bar, curve
from batchfit.web import assets
from batchfit.web.colours import before_sheets
from batchfit.web.feedback import LONGEST_TEXT
from batchfit.web.model_catalogue import ModelCatalogue
from batchfit.web.modules import joined
from batchfit.web.prose import Prose, read_prose
from batchfit.web.shelf import Shelf

#: The module, joined with sections.js, that says where everything is on curves and bars.
SECTION_SHAPES = "section-shapes.js"
#: What every calculator's page needs beside page.js, and its formulas and sections call too.
LIBRARY = (
    "numbers.js",
    "formula-runtime.js",
    "wording.js",
    "fields.js",
    "evaluate.js",
    "drawing.js",
    "sliders.js",
    "presets.js",
)


class Site:
    """The shelf with all that pages need beside it: the planner's models, languages, static files, prose."""

    def __init__(self, shelf: Shelf, *, feedback: bool = False) -> None:
        self.shelf = shelf
        #: The names of the pages that ask whether they helped; "home" is each language's first one.
        self.feedback_pages = frozenset({"home", "plan", *shelf.calculators} if feedback else ())
        self.models = ModelCatalogue()
        self.languages = languages()
        files = _coloured(assets.packaged()) | _formula_modules(shelf) | {SECTION_SHAPES: _section_shapes()}
        files = joined(files, "library.js", LIBRARY)
        self.assets = assets.Assets(joined(files, "sections.js", ("sections.js", SECTION_SHAPES)))
        self.prose: dict[tuple[str, str], Prose] = {
            (slug, lang): read_prose(slug, lang) for slug in shelf.calculators for lang in self.languages
        }
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("batchfit.web"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals["asset"] = self.assets.url
        self._templates.globals["feedback_pages"] = self.feedback_pages
        self._templates.globals["longest_feedback"] = LONGEST_TEXT
        self._templates.globals["colours"] = INTERFACE
        self._templates.filters["json"] = as_data

    def render(self, template: str, lang: str, **context: Any) -> str:
        """A template in a language: `_` translates and fills placeholders."""
        html = self._templates.get_template(template).render(
            _=translator(lang),
            lang=lang,
            direction=direction(lang),
            languages=self.language_names,
            number=lambda value: format_number(value, lang),
            **context,
        )
        return _without_indentation(html)

    @cached_property
    def language_names(self) -> dict[str, str]:
        """Each language's own name for itself: {"de": "Deutsch"}."""
        return {lang: _own_name(lang) for lang in self.languages}


def translator(lang: str) -> Callable[..., str]:
    """The function that templates call `_`."""
    texts = catalogue(lang)

    def translate(english: str, **params: object) -> str:
        return texts.text(english).format(**params) if params else texts.text(english)

    return translate


def as_data(value: object) -> Markup:
    """JSON for a script element that holds data: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


#: What shows its white space as it stands.
_VERBATIM = re.compile(r"(<(?:pre|textarea)\b.*?</(?:pre|textarea)>)", re.DOTALL)
_INDENTATION = re.compile(r"\n\s+")


def _without_indentation(html: str) -> str:
    """A page without what only those who read the templates need."""
    parts = _VERBATIM.split(html)
    parts[::2] = [_INDENTATION.sub("\n", part) for part in parts[::2]]
    return "".join(parts)


def _own_name(lang: str) -> str:
    name = Locale.parse(lang, sep="-").get_display_name(lang.replace("-", "_")) or lang
    return name[0].upper() + name[1:]


def _coloured(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files, each style sheet with the colours that it needs before it."""
    return {**files, **{name: before.encode() + files[name] for name, before in before_sheets().items()}}


def _formula_modules(shelf: Shelf) -> dict[str, bytes]:
    """A JavaScript module of each calculator's formulas, by file name."""
    modules = {}
    for calculator in shelf:
        formulas: list[Callable[..., object]] = [output.formula for output in calculator.outputs]
        if way_back := calculator.inverse:
            formulas += [way_back.nearest, way_back.below, way_back.above, way_back.drift.formula]
        formulas += [output.when for output in calculator.outputs if output.when]
        formulas += [check.holds for check in calculator.checks]
        if picture := shelf.pictures[calculator.slug]:
            formulas += picture.formulas()
        modules[formulas_file(calculator.slug)] = to_module(formulas).encode()
    return modules


def _section_shapes() -> bytes:
    """The JavaScript module of where everything is on curves and bars."""
    places = [getattr(module, name) for module in (curve, bar) for name in _own_functions(module)]
    return to_module(places).encode()


def _own_functions(module: ModuleType) -> list[str]:
    return [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]


def formulas_file(slug: str) -> str:
    """The static file that holds a calculator's formulas."""
    return f"formulas-{slug}.js"
