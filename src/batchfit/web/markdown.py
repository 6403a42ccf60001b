"""A calculator's page as Markdown, for those who read text: from the same content, with formulas as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from batchfit.web.formulas import as_text, explained
from batchfit.web.instrument import Instrument
from batchfit.web.pages import REVALIDATE
from batchfit.web.shared import Shared, of_calculator
from batchfit.web.site import Site, translator
from batchfit.web.stored import Stored

#: The prose's sections with their titles, in the page's order. Formula and example stand after the first.
_SECTIONS = (
    ("article", "What it means"),
    ("reading", "How to read the result"),
    ("faq", "Questions and answers"),
    ("not-counted", "What is not counted"),
)


def page(site: Site, instrument: Instrument, origin: str) -> Stored:
    """The page in the instrument's state."""
    text = "\n\n".join(_parts(site, instrument, of_calculator(instrument, origin))) + "\n"
    return Stored(text.encode(), "text/markdown", instrument.state.status, REVALIDATE)


def _parts(site: Site, instrument: Instrument, shared: Shared) -> Iterator[str]:
    calculator, _ = instrument.calculator, translator(instrument.lang)
    yield f"# {shared.title}"
    yield _(calculator.purpose)
    if shared.answer:
        yield f"**{shared.answer}**"
    yield f"- {shared.url}\n- JSON: {shared.origin}{shared.data_path}"
    prose = site.prose[calculator.slug, instrument.lang]
    for name, title in _SECTIONS:
        if text := prose.markdown(name):
            yield f"## {_(title)}"
            yield text
        if name == "article":
            yield from _formulas(instrument)
    yield from _next(site, instrument, shared)


def _formulas(instrument: Instrument) -> Iterator[str]:
    """The formulas with their symbols, then the same with the numbers put in."""
    calculator, _ = instrument.calculator, translator(instrument.lang)
    found = as_text(calculator, instrument.values, instrument.shown_units, instrument.lang)
    yield f"## {_('Formula')}"
    yield _block(symbolic for _output, symbolic, _worked in found)
    rows = [
        f"| {each.letters} | {each.label} | {each.unit} |" for each in explained(calculator, instrument.lang)
    ]
    yield "\n".join([f"| {_('Symbol')} | {_('Meaning')} | {_('Unit')} |", "| --- | --- | --- |", *rows])
    if instrument.values:
        yield f"## {_('Worked example')}"
        yield _block(worked for _output, _symbolic, worked in found if worked)


def _block(lines: Iterable[str]) -> str:
    return "\n".join(["```text", *lines, "```"])


def _next(site: Site, instrument: Instrument, shared: Shared) -> Iterator[str]:
    """What to try next: the related calculators that there are."""
    _ = translator(instrument.lang)
    found = [each for slug in instrument.calculator.related if (each := site.shelf.calculators.get(slug))]
    if found:
        yield f"## {_('What to try next')}"
        links = (
            f"- [{_(each.title)}]({shared.origin}/{shared.lang}/{each.slug}): {_(each.purpose)}"
            for each in found
        )
        yield "\n".join(links)
