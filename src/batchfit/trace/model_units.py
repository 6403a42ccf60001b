"""A model's repeated blocks and its rest, with their sizes: what FSDP wraps and gathers, one at a time."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from batchfit.profile import Model, Unit
from batchfit.trace.checkpointing import repeated_blocks
from batchfit.trace.phases import folded
from batchfit.trace.quantize import unpacked_size

ROOT = "(root)"


def describe(model: nn.Module, name: str) -> Model:
    """`model`'s size, and that of its units. Shared parameters count once, with the unit that has them first."""
    paths = {module: path for path, module in model.named_modules()}
    seen: set[nn.Parameter] = set()
    units: list[Unit] = []
    for block in repeated_blocks(model):
        unit = _unit(folded(paths[block]), block.parameters(), seen)
        if units and _with_count(unit, units[-1].count) == units[-1]:
            units[-1] = _with_count(unit, units[-1].count + 1)
        else:
            units.append(unit)
    units.append(_unit(ROOT, model.parameters(), seen))
    return Model(
        name=name,
        parameters=sum(unit.count * unit.parameters for unit in units),
        trainable_parameters=sum(unit.count * unit.trainable_parameters for unit in units),
        units=tuple(units),
    )


def _unit(name: str, parameters: Iterable[nn.Parameter], seen: set[nn.Parameter]) -> Unit:
    own = [p for p in parameters if p not in seen]
    seen.update(own)
    trained = [p for p in own if p.requires_grad]
    return Unit(
        name=name,
        count=1,
        parameters=sum(unpacked_size(p) for p in own),
        trainable_parameters=sum(p.numel() for p in trained),
        weights_bytes=sum(p.numel() * p.element_size() for p in own),
        trainable_weights_bytes=sum(p.numel() * p.element_size() for p in trained),
    )


def _with_count(unit: Unit, count: int) -> Unit:
    return Unit(
        unit.name,
        count,
        unit.parameters,
        unit.trainable_parameters,
        unit.weights_bytes,
        unit.trainable_weights_bytes,
    )
