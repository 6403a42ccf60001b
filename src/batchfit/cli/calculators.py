"""`batchfit calculators`: what there is to calculate, and with which fields."""

from __future__ import annotations

import json
from typing import Any

import click

from batchfit import calculators
from batchfit.calculator import Calculator, Output
from batchfit.fields import Field


@click.command(epilog="\b\nExamples:\n  batchfit calculators\n  batchfit calculators --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every field and result.")
def command(*, as_json: bool) -> None:
    """List the calculators, by group; `batchfit calc NAME --help` explains one."""
    found = [calculators.load(slug) for slug in calculators.slugs()]
    if as_json:
        click.echo(json.dumps({"calculators": [described(each) for each in found]}, indent=2))
        return
    width = max(len(each.slug) for each in found)
    for category in dict.fromkeys(each.category for each in found):
        click.secho(calculators.group_title(category), bold=True)
        for each in found:
            if each.category == category:
                click.echo(f"  {each.slug.ljust(width)}  {each.title}")


def described(calculator: Calculator) -> dict[str, Any]:
    """A calculator as data: bounds are in what the kind is held in, bytes, seconds or a fraction."""
    return {
        "slug": calculator.slug,
        "title": calculator.title,
        "purpose": calculator.purpose,
        "category": calculator.category,
        "fields": [_field(each) for each in calculator.all_fields],
        "presets": [
            {"name": each.name, "option": each.option, "label": each.label, "fills": list(each.fills)}
            for each in calculator.presets
        ],
        "outputs": [_output(each) for each in calculator.outputs],
    }


def _field(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": field.name,
        "option": field.option,
        "label": field.label,
        "kind": field.kind,
        "unit": field.unit,
        "default": field.default,
    }
    if field.is_choice:
        choices = [{"value": each.value, "label": each.label} for each in field.choices]
        return found | {"choices": choices}
    return found | {"minimum": field.minimum, "maximum": field.maximum}


def _output(output: Output) -> dict[str, Any]:
    return {"name": output.name, "label": output.label, "kind": output.kind, "unit": output.unit}
