"""Which module's forward is running, by its path in the model."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModulePaths:
    """Follows calls of a model's modules through PyTorch's global hooks, so that no module is touched.

    `current` is the path of the innermost module that runs, "" outside the model.
    """

    def __init__(self) -> None:
        self.current = ""
        self._paths: dict[nn.Module, str] = {}
        self._outer: list[str] = []

    def know(self, model: nn.Module, root: str = "") -> None:
        """Adds `model`'s modules; the model itself has the path `root`."""
        self._paths.update(
            (module, f"{root}.{path}" if root and path else root or path)
            for path, module in model.named_modules()
        )

    def __enter__(self) -> ModulePaths:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._outer.append(self.current)
        self.current = self._paths.get(module, self.current)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self.current = self._outer.pop()
