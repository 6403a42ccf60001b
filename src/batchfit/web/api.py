"""Every page's answer as data, and what machines ask for beside it: the API's description, the site map."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from batchfit import __version__, sections
from batchfit.calculator import Calculator, Cards, Table
from batchfit.calculators import group_title
from batchfit.fields import Field
from batchfit.languages import SOURCE
from batchfit.presets import Preset
from batchfit.web.feedback import ANSWERS, LONGEST_TEXT
from batchfit.web.plan_state import DEFAULTS, NAMES
from batchfit.web.site import Site, translator
from batchfit.web.state import State
from batchfit.web.stored import Stored
from batchfit.wording import complaint

_JSON = "application/json"
_DATA = {"Cache-Control": "no-cache", "Access-Control-Allow-Origin": "*"}


def as_json(value: object, status: int = 200) -> Stored:
    """A document that any page may read."""
    return Stored((json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode(), _JSON, status, _DATA)


def answer(state: State) -> Stored:
    """A calculator's results, as `batchfit calc --json` prints them; or what is wrong, field by field."""
    if state.results is not None:
        presets = {name: entry.name for name, entry in state.presets.items()}
        figures = state.results.as_json(state.calculator, presets)
        return as_json(figures | sections.as_json(state.calculator, state.results))
    errors = [{"field": name, "message": complaint(wrong, state.lang)} for name, wrong in state.wrong.items()]
    return as_json({"errors": errors}, 400 if state.malformed else 422)


def shelf(site: Site, lang: str, origin: str) -> Stored:
    """The calculators there are, with their addresses."""
    translate = translator(lang)
    return as_json(
        {
            "language": lang,
            "calculators": [
                {
                    "calculator": calculator.slug,
                    "title": translate(calculator.title),
                    "purpose": translate(calculator.purpose),
                    "group": translate(group_title(calculator.category)),
                    "updated": calculator.updated.isoformat(),
                    "url": f"{origin}/{lang}/{calculator.slug}",
                }
                for calculator in site.shelf
            ],
        }
    )


def sitemap(site: Site, origin: str) -> Stored:
    """Every page in every language, each with its counterparts in the others."""
    entries = []
    for slug, updated in [
        ("", None),
        ("plan", None),
        ("accuracy", None),
        *((each.slug, each.updated) for each in site.shelf),
    ]:
        alternates = [(lang, f"{origin}/{lang}/{slug}") for lang in site.languages]
        links = "".join(
            f'<xhtml:link rel="alternate" hreflang={quoteattr(lang)} href={quoteattr(url)}/>'
            for lang, url in [
                *alternates,
                ("x-default", f"{origin}/{SOURCE}/{slug}" if slug else f"{origin}/"),
            ]
        )
        date = f"<lastmod>{updated.isoformat()}</lastmod>" if updated else ""
        entries += [f"<url><loc>{escape(url)}</loc>{date}{links}</url>" for _, url in alternates]
    xml = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml">'
        f"{''.join(entries)}</urlset>\n"
    )
    return Stored(xml.encode(), "application/xml")


def robots(origin: str) -> Stored:
    """Everything may be indexed but the embeds, which repeat the pages."""
    return Stored(f"User-agent: *\nDisallow: /embed/\nSitemap: {origin}/sitemap.xml\n".encode(), "text/plain")


# ---- The API's description, from the same records as the forms ------------------------------------------------


def openapi(site: Site, origin: str) -> Stored:
    """The JSON twins, described by OpenAPI 3.1."""
    return as_json(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "batchfit",
                "version": __version__,
                "summary": "Batch arithmetic and activation memory for training neural networks.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": origin}],
            "paths": {
                "/{lang}/plan.json": {"get": _planning(site)},
                **{f"/{{lang}}/{each.slug}.json": {"get": _operation(site, each)} for each in site.shelf},
                **({"/{lang}/feedback.json": {"post": _feedback(site)}} if site.feedback_pages else {}),
            },
        }
    )


def _operation(site: Site, calculator: Calculator) -> dict[str, Any]:
    way_back = calculator.inverse
    description = calculator.purpose
    if way_back:
        description += f" With {way_back.given.name} instead of {way_back.solved}, finds {way_back.solved}."
    return {
        "operationId": calculator.slug,
        "summary": calculator.title,
        "description": description,
        "parameters": [
            _language(site),
            *map(_preset, calculator.presets),
            *map(_parameter, calculator.all_fields),
        ],
        "responses": {
            "200": {"description": "The results.", "content": {_JSON: {"schema": _results(calculator)}}},
            **_REFUSALS,
        },
    }


def _language(site: Site) -> dict[str, Any]:
    return {
        "name": "lang",
        "in": "path",
        "required": True,
        "description": "The language of messages, and how numbers are read.",
        "schema": {"type": "string", "enum": list(site.languages)},
    }


def _planning(site: Site) -> dict[str, Any]:
    """The planner: its fields are the options of `batchfit plan`, which says what each is."""
    plans = {"type": "array", "items": {"type": "object"}}
    return {
        "operationId": "plan",
        "summary": "Batch planner",
        "description": "What `batchfit plan --json` prints for the options of the same names.",
        "parameters": [
            _language(site),
            *(
                {
                    "name": name,
                    "in": "query",
                    "description": f"As `batchfit plan --{name.replace('_', '-')}`.",
                    "schema": {"type": "string", **({"default": DEFAULTS[name]} if name in DEFAULTS else {})},
                }
                for name in NAMES
            ),
        ],
        "responses": {
            "200": {
                "description": "The plans, best first; where there are none, what is nearest and what to change.",
                "content": {
                    _JSON: {
                        "schema": {
                            "type": "object",
                            "required": ["plans", "nearest", "advice"],
                            "properties": {"plans": plans, "nearest": plans, "advice": plans},
                        }
                    }
                },
            },
            **_REFUSALS,
        },
    }


def _feedback(site: Site) -> dict[str, Any]:
    """Feedback on a page; what the answer's statuses mean."""
    properties = {
        "helpful": {"enum": list(ANSWERS)},
        "page": {"enum": sorted(site.feedback_pages)},
        "text": {"type": "string", "description": f"At most {LONGEST_TEXT} characters."},
        "inputs": {"type": "string", "description": "The query of the page's address, if the person agrees."},
        "id": {"type": "string", "format": "uuid", "description": "Makes sending it twice the same as once."},
    }
    body = {
        "type": "object",
        "properties": properties,
        "required": ["helpful", "page"],
        "additionalProperties": False,
    }
    kept = {
        "type": "object",
        "properties": {"id": {"type": "string", "format": "uuid"}, "message": {"type": "string"}},
        "required": ["id", "message"],
    }
    return {
        "operationId": "feedback",
        "summary": "Say whether a page helped",
        "description": "Only pages of this site may send it from browsers.",
        "parameters": [_language(site)],
        "requestBody": {"required": True, "content": {_JSON: {"schema": body}}},
        "responses": {
            "201": {"description": "It is kept, on disk.", "content": {_JSON: {"schema": kept}}},
            "400": {"description": "The body is no JSON object.", "content": _ERRORS},
            "403": {"description": "It was sent from another site's page.", "content": _ERRORS},
            "408": {"description": "The body took too long to arrive.", "content": _ERRORS},
            "413": {"description": "The body is too large.", "content": _ERRORS},
            "415": {"description": "The body is not application/json.", "content": _ERRORS},
            "422": {"description": "A field cannot be used.", "content": _ERRORS},
            "429": {
                "description": "Too much feedback from one address; Retry-After says when.",
                "content": _ERRORS,
            },
            "503": {"description": "The database is away; Retry-After says when.", "content": _ERRORS},
        },
    }


_ERRORS: dict[str, Any] = {
    _JSON: {
        "schema": {
            "type": "object",
            "required": ["errors"],
            "properties": {
                "errors": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["message"],
                        "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
                    },
                }
            },
        }
    }
}


_REFUSALS: dict[str, Any] = {
    "400": {"description": "A parameter was repeated, or two exclude each other.", "content": _ERRORS},
    "414": {"description": "The query is too long.", "content": _ERRORS},
    "422": {"description": "A value cannot be used.", "content": _ERRORS},
}


def _parameter(each: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if each.kind == "choice":
        schema["enum"] = [choice.value for choice in each.choices]
    if each.default is not None:
        schema["default"] = each.default
    return {
        "name": each.name,
        "in": "query",
        "description": f"{each.label}. {each.help} {_allowed(each)}",
        "schema": schema,
    }


def _allowed(each: Field) -> str:
    """What a parameter takes, in a sentence."""
    empty = " May be empty." if each.empty is not None else ""
    if each.is_choice:
        values = ", ".join(f"{choice.value} ({choice.label})" for choice in each.choices)
        return f"One of: {values}." if each.kind == "choice" else f"Some, with commas between them: {values}."
    if each.kind == "bytes":
        bare = f"a bare number is in {each.unit}"
        return f"A size such as 0.75GiB or 512MiB; {bare}. At most {each.maximum} bytes.{empty}"
    if each.kind == "seconds":
        return f"A duration such as 90s or 1.5h; a bare number is in {each.unit}.{empty}"
    if each.kind == "share":
        bare = "a percentage" if each.unit == "%" else "a fraction"
        return f"A share such as 30%; a bare number is {bare}.{empty}"
    numbers = "A whole number" if each.kind == "whole" else "A number"
    suffixes = ", such as 7B or 500K" if each.suffixes else ""
    return f"{numbers} from {each.minimum} to {each.maximum}{suffixes}.{empty}"


def _preset(each: Preset) -> dict[str, Any]:
    names = [entry.name for entry in each.usable()]
    filled = ", ".join(each.fills)
    return {
        "name": each.name,
        "in": "query",
        "description": f"{each.label}. {each.help} Fills in {filled}.",
        "schema": {"type": "string", "examples": names[:3]},
    }


_INPUT = {"type": ["number", "string", "array", "null"], "items": {"type": "string"}}


def _results(calculator: Calculator) -> dict[str, Any]:
    def numbers(names: list[str]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {name: {"type": "number"} for name in names},
            "required": names,
        }

    outputs = numbers([output.name for output in calculator.outputs])
    outputs["required"] = [output.name for output in calculator.outputs if output.when is None]
    if way_back := calculator.inverse:
        outputs["properties"] |= {
            way_back.solved: {"type": "integer"},
            way_back.drift.name: {"type": "number"},
            "choices": {
                "type": "array",
                "items": numbers([way_back.solved, way_back.reaches, way_back.drift.name]),
            },
        }
    inputs = {
        each.key: _INPUT if each.is_choice or each.empty is not None else {"type": "number"}
        for each in calculator.all_fields
    }
    inputs |= {each.name: {"type": "string"} for each in calculator.presets}
    lists = {"tables": Table, "cards": Cards}
    listed = [
        name for name, kind in lists.items() if any(isinstance(each, kind) for each in calculator.sections)
    ]
    return {
        "type": "object",
        "required": ["calculator", "inputs", "outputs"],
        "properties": {
            "calculator": {"const": calculator.slug},
            "inputs": {"type": "object", "properties": inputs},
            "outputs": outputs,
            **{name: {"type": "array", "items": {"type": "object"}} for name in listed},
        },
    }


def health(database: str) -> Stored:
    """How the app is; `database` is "ok", "away" or "off"."""
    return as_json({"status": "ok", "version": __version__, "database": database})


def failure(message: str, status: int) -> Stored:
    """What went wrong with a request for data, where it is no field's fault."""
    return as_json({"errors": [{"message": message}]}, status)
