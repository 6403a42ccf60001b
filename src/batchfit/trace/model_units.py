"""A model's repeated blocks and its rest, with their sizes: what FSDP wraps and gathers, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from torch import nn

from batchfit.profile import Model, Unit
from batchfit.trace.checkpointing import repeated_blocks
from batchfit.trace.flat import is_trained
from batchfit.trace.phases import folded
from batchfit.trace.quantized_linear import unpacked_size

ROOT = "(root)"


def describe(model: nn.Module, name: str) -> Model:
    """`model`'s size, and that of its units. Shared parameters count once, with the unit that has them first."""
    paths = {module: path for path, module in model.named_modules()}
    seen: set[nn.Parameter] = set()
    counts: Counter[Unit] = Counter()
    for block in repeated_blocks(model):
        counts[_unit(folded(paths[block]), block.parameters(), seen)] += 1
    counts[_unit(ROOT, model.parameters(), seen)] += 1
    return _model(name, counts)


def deepened(model: Model, deeper: Iterable[tuple[Model, int]]) -> Model:
    """`model` with so many more of the blocks that each deeper one has beyond it. Where a unit holds the blocks, as the
    stage of a network for images does, there is another unit in its place, which is larger by so many of them."""
    counts = _counts(model)
    for other, extra in deeper:
        change = _counts(other)
        change.subtract(_counts(model))
        more = [unit for unit, count in change.items() if count > 0]
        for unit in [unit for unit, count in change.items() if count < 0]:
            larger = next(each for each in more if each.name == unit.name)
            more.remove(larger)
            counts[unit] += change[unit]
            counts[_grown(unit, larger, extra)] -= change[unit]
        for unit in more:
            counts[unit] += extra * change[unit]
    return _model(model.name, +counts)


def _grown(unit: Unit, larger: Unit, times: int) -> Unit:
    """The unit with so many times what the larger one has beyond it."""
    sizes = {
        field.name: getattr(unit, field.name)
        + times * (getattr(larger, field.name) - getattr(unit, field.name))
        for field in fields(unit)
        if field.name not in ("name", "count")
    }
    return replace(unit, **sizes)


def _counts(model: Model) -> Counter[Unit]:
    return Counter({replace(unit, count=1): unit.count for unit in model.units})


def _model(name: str, counts: Mapping[Unit, int]) -> Model:
    """The root comes last, however late other units were met."""
    units = [replace(unit, count=count) for unit, count in counts.items()]
    units.sort(key=lambda unit: unit.name == ROOT)
    return Model(
        name=name,
        parameters=sum(unit.count * unit.parameters for unit in units),
        trainable_parameters=sum(unit.count * unit.trainable_parameters for unit in units),
        units=tuple(units),
    )


def _unit(name: str, parameters: Iterable[nn.Parameter], seen: set[nn.Parameter]) -> Unit:
    own = [p for p in parameters if p not in seen]
    seen.update(own)
    trained = [p for p in own if is_trained(p)]
    return Unit(
        name=name,
        count=1,
        parameters=sum(unpacked_size(p) for p in own),
        trainable_parameters=sum(p.numel() for p in trained),
        weights_bytes=sum(p.numel() * p.element_size() for p in own),
        trainable_weights_bytes=sum(p.numel() * p.element_size() for p in trained),
    )
