"""Optional dependencies: what to install where one is missing."""

from __future__ import annotations

from importlib.util import find_spec

from batchfit.errors import BadInput


def need(module: str, *, extra: str, wanted_for: str) -> None:
    """Raises BadInput, with the command that installs it, where `module` is not installed."""
    if find_spec(module) is None:
        raise BadInput(
            module,
            "is needed for {wanted_for} and is not installed; install it with: pip install 'batchfit[{extra}]'",
            wanted_for=wanted_for,
            extra=extra,
        )
