"""In which modules attention runs, as a trace sees it: by what is computed there, not by what a module is called."""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten

#: Products of tensors in batches: of queries and keys, of weights and values.
_PRODUCTS = frozenset((_aten.bmm.default, _aten.baddbmm.default))
_SOFTMAXES = frozenset((_aten._softmax.default, _aten._safe_softmax.default))

#: Scores of attention are of queries by keys, for every sample or head; those of a router or a classifier are not.
_LEAST_DIMENSIONS = 3


class Attending:
    """Adds to `found` the paths of modules that run attention: a fused kernel, or a softmax and batched products."""

    def __init__(self, found: set[str]) -> None:
        self._found = found
        self._halves: dict[str, set[str]] = {}
        self._roles: dict[Any, str] = {}

    def note(self, func: Any, args: tuple[Any, ...], module: str) -> None:
        """One operation ran in `module`, the innermost."""
        role = self._roles.get(func)
        if role is None:
            role = self._roles[func] = _role(func)
        if not role or not module or module in self._found:
            return
        if role == "softmax" and args[0].dim() < _LEAST_DIMENSIONS:
            return
        halves = self._halves.setdefault(module, set())
        halves.add(role)
        if role == "attention" or len(halves) > 1:
            self._found.add(module)


def _role(func: Any) -> str:
    if func in _PRODUCTS:
        return "product"
    if func in _SOFTMAXES:
        return "softmax"
    return "attention" if "attention" in func._schema.name else ""
