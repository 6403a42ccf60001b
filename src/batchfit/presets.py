"""What fills several fields at once: a model of the catalogue with its true shape, a card with its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import cache

from batchfit.errors import BadInput
from batchfit.numbers import decimal_text

UNKNOWN = "must be a name of the catalogue, such as {near}; you typed {typed}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to choose: `values` are its figures by name, as typed into a field; `source` says where they are
    from."""

    name: str
    title: str
    group: str
    source: str
    aliases: tuple[str, ...]
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Preset:
    """A choice that fills fields; what is given for a field goes before it.

    name      of the command's option and the address's parameter: "model"
    entries   what there is to choose from
    fills     each field that it fills, with the name of the figure for it
    where     figures that an entry must have to be offered
    """

    name: str
    label: str
    help: str
    entries: Callable[[], tuple[Entry, ...]]
    fills: Mapping[str, str]
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def option(self) -> str:
        """The command's option: "--model"."""
        return "--" + self.name

    def usable(self) -> tuple[Entry, ...]:
        """The entries that are as wanted and have a figure for every field."""
        return tuple(
            entry
            for entry in self.entries()
            if set(self.fills.values()) <= entry.values.keys() and self.where.items() <= entry.values.items()
        )

    def find(self, name: str) -> Entry:
        """The entry that people call `name`, whatever its case. Raises BadInput naming those like it."""
        wanted = name.strip().lower()
        entries = self.usable()
        for entry in entries:
            if wanted in (
                entry.name.lower(),
                entry.title.lower(),
                *(alias.lower() for alias in entry.aliases),
            ):
                return entry
        from difflib import get_close_matches

        names = [entry.name for entry in entries]
        near = ", ".join(get_close_matches(wanted, names, n=3, cutoff=0.4) or names[:3])
        raise BadInput(self.name, UNKNOWN, near=near, typed=name.strip())

    def texts(self, entry: Entry) -> dict[str, str]:
        """What an entry fills in, by field."""
        return {field: entry.values[figure] for field, figure in self.fills.items()}


def models(*, where: Mapping[str, str] | None = None, **fills: str) -> Preset:
    """`--model NAME`: each field with the figure of a decoder that it gets. Figures are those of `shapes.Shape`, and
    `parameters` and `context` of the catalogue; `where` those a model must have to be offered."""
    return Preset(
        "model",
        "Model",
        "Fills in the published figures of a model; what you enter yourself goes before them.",
        _models,
        fills,
        where or {},
    )


def cards(**fills: str) -> Preset:
    """`--gpu NAME`: each field with the figure of a card that it gets: memory, bandwidth and link_bandwidth (GB/s,
    the link's both directions together), peak_16bit and peak_fp32 (TFLOP/s), per_node."""
    return Preset(
        "gpu",
        "GPU",
        "Fills in the published figures of a card; what you enter yourself goes before them.",
        _cards,
        fills,
    )


@cache
def _models() -> tuple[Entry, ...]:
    from batchfit.decoder import shape_of
    from batchfit.models import load_models

    found = []
    for model in load_models():
        shape = shape_of(model)
        if shape is None:
            continue
        values = {name: _text(value) for name, value in asdict(shape).items()}
        values |= {"parameters": str(model.parameters), "context": str(model.context)}
        found.append(Entry(model.name, model.title, model.family, model.source, model.aliases, values))
    return tuple(found)


@cache
def _cards() -> tuple[Entry, ...]:
    from batchfit.gpus import load_gpus

    scales = {
        "bandwidth": 10**9,
        "link_bandwidth": 10**9,
        "peak_16bit": 10**12,
        "peak_fp32": 10**12,
        "per_node": 1,
    }
    found = []
    for gpu in load_gpus():
        figures = {name: getattr(gpu, name) for name in scales}
        values = {
            name: decimal_text(Decimal(figures[name]) / scale)
            for name, scale in scales.items()
            if figures[name] is not None
        }
        values["memory"] = f"{gpu.memory_bytes}B"
        sources = dict.fromkeys(gpu.sources[name] for name in figures if name in gpu.sources)
        found.append(Entry(gpu.id, gpu.name, gpu.vendor, "; ".join(sources), gpu.aliases, values))
    return tuple(found)


def _text(value: int | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
