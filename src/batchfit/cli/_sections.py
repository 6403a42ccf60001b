"""The tables and cards under a calculator's results, in the terminal. Curves are for pages."""

from __future__ import annotations

from collections.abc import Mapping

from batchfit.calculator import Calculator, Cards, Results, Table
from batchfit.cli._panel import Panel
from batchfit.languages import translate
from batchfit.sections import fitting, rows
from batchfit.sentences import listed
from batchfit.wording import cell, chosen, in_words

#: Cards named; of the others only the number.
_NAMED = 8


def show_sections(
    panel: Panel, calculator: Calculator, results: Results, units: Mapping[str, str], lang: str
) -> None:
    """Adds to a panel what a calculator has under its results."""
    for section in calculator.sections:
        if isinstance(section, Table):
            _show_table(panel, calculator, section, results, units, lang)
        elif isinstance(section, Cards) and section.output in results.outputs:
            _show_cards(panel, section, results, lang)


def _show_table(
    panel: Panel,
    calculator: Calculator,
    table: Table,
    results: Results,
    units: Mapping[str, str],
    lang: str,
) -> None:
    field = calculator.field(table.over)
    columns = [calculator.output(name) for name in table.columns]
    names = listed((translate(column.label, lang) for column in columns), lang)
    title = translate(table.title, lang)
    panel.note(translate("{title} ({names}):", lang).format(title=title, names=names))
    for row in rows(calculator, table, results.inputs):
        first, *others = (cell(column, row.cell(column.name), lang, units) for column in columns)
        label = (
            chosen(field, row.value, lang) if field.is_choice else in_words(field, _number(row.value), lang)
        )
        panel.row(f"{'→' if row.here else ' '} {label}", first, listed(others, lang))


def _number(value: object) -> int | float:
    assert isinstance(value, int | float)
    return value


def _show_cards(panel: Panel, section: Cards, results: Results, lang: str) -> None:
    names = [gpu.name for gpu, fits in fitting(section, results) if fits]
    if not names:
        panel.note(translate("It fits on no single card of the catalogue.", lang))
        return
    shown = listed(names[:_NAMED], lang)
    if len(names) > _NAMED:
        shown = translate("{names} and {count} more", lang).format(names=shown, count=len(names) - _NAMED)
    title = translate(section.title, lang)
    panel.note(translate("{name}: {text}", lang).format(name=title, text=shown))
