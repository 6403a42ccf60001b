"""A formula called in Python and, from its source, in JavaScript."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.emit.compare import differences


def both(formula: Callable[..., Any], *arguments: Any) -> Any:
    """What `formula` gives, which must be the same in both."""
    assert differences(formula, [arguments]) == []
    return formula(*arguments)
