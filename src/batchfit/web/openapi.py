"""The API's description, OpenAPI 3.1, from the same records as the forms: the JSON twins of pages, and feedback.

A parameter's schema is the plain way to write it; what people may type beside that ("1,000", "0.5 GiB", Arabic digits)
is read, too, and is no part of a contract.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from batchfit import __version__, frameworks
from batchfit.calculator import Calculator, Cards, Table
from batchfit.fields import Field
from batchfit.gpus import load_gpus
from batchfit.numbers import decimal_text
from batchfit.presets import Preset
from batchfit.scales import DURATIONS
from batchfit.settings import ATTENTION, CHECKPOINTING, OPTIMIZERS, PRECISIONS, QUANTIZE, SHARDING
from batchfit.units import UNITS
from batchfit.web.api import as_json
from batchfit.web.feedback import ANSWERS, LONGEST_TEXT
from batchfit.web.plan_state import DEFAULTS, MOST_GPUS, MOST_PLANS, NAMES
from batchfit.web.site import Site
from batchfit.web.state import LONGEST_QUERY
from batchfit.web.stored import Stored

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"

Schema = dict[str, Any]


def openapi(site: Site, origin: str) -> Stored:
    """The document."""
    paths: dict[str, Schema] = {"/{lang}/plan.json": {"get": _planning(site), "post": _planning_own(site)}}
    paths |= {f"/{{lang}}/{each.slug}.json": {"get": _operation(site, each)} for each in site.shelf}
    if site.feedback_pages:
        paths["/{lang}/feedback.json"] = {"post": _feedback(site)}
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
            "paths": paths,
        }
    )


def _operation(site: Site, calculator: Calculator) -> Schema:
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
            **_refusals(400, 404, 414, 422, 429),
        },
    }


def _language(site: Site) -> Schema:
    return {
        "name": "lang",
        "in": "path",
        "required": True,
        "description": "The language of messages, and how numbers are read.",
        "schema": {"type": "string", "enum": list(site.languages)},
    }


# ---- The planner --------------------------------------------------------------------------------------------


def _planning(site: Site) -> Schema:
    """The planner: its fields are the options of `batchfit plan`, which says what each is."""
    return {
        "operationId": "plan",
        "summary": "Batch planner",
        "description": "What `batchfit plan --json` prints for the options of the same names. Some options exclude "
        "each other, and the catalogue does not have every model trained in every way: 422 says which.",
        "parameters": [
            _language(site),
            *(
                {"name": name, "in": "query", "description": _as_option(name), "schema": schema}
                for name, schema in _plan_schemas(site).items()
            ),
        ],
        "responses": {"200": _PLANS, **_refusals(400, 404, 414, 422, 429)},
    }


def _planning_own(site: Site) -> Schema:
    properties = {
        name: schema | {"description": _as_option(name)} for name, schema in _plan_schemas(site).items()
    }
    own = {"type": "string", "description": "A batchfit profile, a list of them, or a config.json, as text."}
    body = {"type": "object", "properties": {"own": own, **properties}}
    return {
        "operationId": "plan-own",
        "summary": "Batch planner for a model of one's own",
        "description": "The same for a model that is sent along. Only pages of this site may send it from browsers.",
        "parameters": [_language(site)],
        "requestBody": {"required": True, "content": {_FORM: {"schema": body}}},
        "responses": {"200": _PLANS, **_refusals(400, 403, 404, 408, 413, 414, 415, 422, 429)},
    }


def _as_option(name: str) -> str:
    return f"As `batchfit plan --{name.replace('_', '-')}`."


def _plan_schemas(site: Site) -> dict[str, Schema]:
    """The schema of each field of the planner, by name."""
    named: dict[str, Schema] = {
        "model": {"enum": [each.name for models in site.models.families().values() for each in models]},
        "points": {"pattern": r"^[1-9][0-9]?:[1-9][0-9]?GiB(,[1-9][0-9]?:[1-9][0-9]?GiB){1,3}$"},
        "batch": {"pattern": "^[1-9][0-9]{0,5}( tokens)?$"},
        "gpu": {"enum": [gpu.id for gpu in load_gpus()]},
        "gpus": {"pattern": "^[1-9][0-9]{0,3}(,[1-9][0-9]{0,3}){0,3}$"},
        "precision": {"enum": list(PRECISIONS)},
        "optimizer": {"enum": list(OPTIMIZERS)},
        "checkpointing": {"enum": list(CHECKPOINTING)},
        "quantize": {"enum": list(QUANTIZE)},
        "attention": {"enum": list(ATTENTION)},
        "sharding": {"enum": list(SHARDING)},
        "trainer": {"enum": ["none", "hf", "trl"]},
        "tolerance": {"pattern": "^[0-9]{1,2}%$"},
        "headroom": {"pattern": "^[0-9]{1,2}%$"},
        "interconnect": {"pattern": "^[1-9][0-9]{0,3}(Gb/s|GB/s)$"},
        "emit": {"enum": list(frameworks.names())},
    }
    most = {"top": MOST_PLANS, "replicas": MOST_GPUS}
    found: dict[str, Schema] = {}
    for name in NAMES:
        if name in named:
            found[name] = {"type": "string"} | named[name]
        else:
            found[name] = {"type": "integer", "minimum": 1, "maximum": most.get(name, 1_000_000)}
        if name in DEFAULTS:
            found[name]["default"] = DEFAULTS[name]
    return found


_LIST = {"type": "array", "items": {"type": "object"}}
_PLANS: Schema = {
    "description": "The plans, best first; where there are none, what is nearest and what to change.",
    "content": {
        _JSON: {
            "schema": {
                "type": "object",
                "required": ["plans", "nearest", "advice"],
                "properties": {"plans": _LIST, "nearest": _LIST, "advice": _LIST},
            }
        }
    },
}


# ---- Feedback -----------------------------------------------------------------------------------------------


def _feedback(site: Site) -> Schema:
    properties: dict[str, Schema] = {
        "helpful": {"type": "string", "enum": list(ANSWERS)},
        "page": {"type": "string", "enum": sorted(site.feedback_pages)},
        "text": {"type": "string", "maxLength": LONGEST_TEXT},
        "inputs": {
            "type": "string",
            "maxLength": LONGEST_QUERY,
            "description": "The query of the page's address, if the person agrees.",
        },
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
            **_refusals(400, 403, 404, 408, 413, 414, 415, 422, 429, 503),
        },
    }


# ---- What is turned away --------------------------------------------------------------------------------------

_ERRORS: Schema = {
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

_WHY = {
    400: "A parameter was repeated, two exclude each other, or the body is not of its kind.",
    403: "It was sent from another site's page.",
    404: "There is no such language.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    414: "The query is too long.",
    415: "The body is of another kind.",
    422: "A value cannot be used.",
    429: "Too many requests from one address; Retry-After says when to come again.",
    503: "The database is away; Retry-After says when to come again.",
}


def _refusals(*statuses: int) -> dict[str, Schema]:
    return {str(status): {"description": _WHY[status], "content": _ERRORS} for status in statuses}


# ---- A calculator's parameters and results ----------------------------------------------------------------------


def _parameter(each: Field) -> Schema:
    made: Schema = {
        "name": each.name,
        "in": "query",
        "description": f"{each.label}. {each.help} {_allowed(each)}",
        "schema": _schema(each),
    }
    if each.kind == "choices":
        made |= {"style": "form", "explode": False}
    return made


def _schema(each: Field) -> Schema:
    """The plain way to write a field's value."""
    values = [choice.value for choice in each.choices]
    default: object = each.default
    schema: Schema
    match each.kind:
        case "choice":
            schema = {"type": "string", "enum": values}
        case "choices":
            items = {"type": "string", "enum": values}
            schema = {"type": "array", "items": items, "minItems": int(each.minimum), "uniqueItems": True}
            default = list(each.chosen_by_default) if each.default is not None else None
        case "whole" | "number":
            kind = "integer" if each.kind == "whole" else "number"
            schema = {"type": kind, "minimum": each.minimum, "maximum": each.maximum}
            if each.default:
                value = each.read(each.default).value
                default = value if isinstance(value, int | float) else None
        case _:
            schema = {"type": "string"} | _amount(each)
            if each.default:
                reading = each.read(each.default)
                number, unit = reading.number, reading.unit
                if each.kind == "share" and not unit:
                    number, unit = number * 100, "%"
                default = decimal_text(number) + unit
    return schema | ({"default": default} if default is not None else {})


def _amount(each: Field) -> Schema:
    """A pattern for sizes, durations and shares, within the bounds: a number of up to four digits before the point and
    two after it, and a unit."""
    if each.kind == "share":
        scales = {"%": Decimal("0.01")}
    elif each.kind == "bytes":
        scales = {unit: Decimal(size) for unit, size in UNITS.items()}
    else:
        scales = {unit: times * Decimal(10) ** power for unit, (times, power) in DURATIONS.items()}
    lowest, highest = Decimal(str(each.minimum)), Decimal(str(each.maximum))
    for digits in (4, 3, 2, 1):
        most = Decimal(10**digits)
        units = [unit for unit, scale in scales.items() if lowest <= scale and most * scale <= highest]
        if units:
            below_one = (
                r"0\.0[1-9]|0\.[1-9][0-9]?|" if lowest <= min(scales[unit] for unit in units) / 100 else ""
            )
            zero = "0|" if lowest <= 0 else ""
            number = rf"{zero}{below_one}[1-9][0-9]{{0,{digits - 1}}}(\.[1-9][0-9]?)?"
            return {"pattern": f"^({number})({'|'.join(units)})$"}
    return {}


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


def _preset(each: Preset) -> Schema:
    names = [entry.name for entry in each.usable()]
    filled = ", ".join(each.fills)
    return {
        "name": each.name,
        "in": "query",
        "description": f"{each.label}. {each.help} Fills in {filled}.",
        "schema": {"type": "string", "enum": names},
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
