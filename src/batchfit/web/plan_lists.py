"""The planner's lists of models and of cards, as options. They are most of the page, so they are written once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from markupsafe import Markup, escape

from batchfit.gpus import load_gpus
from batchfit.kept import kept
from batchfit.web.model_catalogue import ModelCatalogue

_MAKERS = ("NVIDIA", "AMD", "Apple", "Intel")


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a select."""

    value: str
    label: str
    chosen: bool


#: Values with their labels, by group.
Groups = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@kept(4)
def _models(models: ModelCatalogue) -> Groups:
    return tuple(
        (family, tuple((entry.name, entry.title) for entry in entries))
        for family, entries in models.families().items()
    )


@cache
def _gpus() -> Groups:
    found: dict[str, list[tuple[str, str]]] = {}
    for gpu in sorted(load_gpus(), key=lambda gpu: (_MAKERS.index(gpu.vendor), -gpu.year)):
        group = gpu.architecture if gpu.vendor in gpu.architecture else f"{gpu.vendor} {gpu.architecture}"
        found.setdefault(group, []).append((gpu.id, gpu.name))
    return tuple((group, tuple(each)) for group, each in found.items())


def model_options(models: ModelCatalogue, chosen: str) -> Markup:
    """The models by family."""
    return _options(_models(models), chosen)


def gpu_options(chosen: str) -> Markup:
    """The cards by maker and generation, the newest first."""
    return _options(_gpus(), chosen)


def _options(groups: Groups, chosen: str) -> Markup:
    """A long list's options with the chosen one marked; first of them whatever else was typed."""
    text, values = _unmarked(groups)
    wanted = escape(chosen)
    if chosen in values:
        return Markup(text.replace(f'value="{wanted}"', f'value="{wanted}" selected', 1))
    return Markup(f'<option value="{wanted}" selected>{wanted}</option>\n{text}')


@kept(8)
def _unmarked(groups: Groups) -> tuple[str, frozenset[str]]:
    def written(value: str, label: str) -> str:
        return f'<option value="{escape(value)}">{escape(label)}</option>\n'

    text = "".join(
        f'<optgroup label="{escape(group)}">\n{"".join(written(*each) for each in choices)}</optgroup>\n'
        for group, choices in groups
    )
    return text, frozenset(value for _, choices in groups for value, _ in choices)
