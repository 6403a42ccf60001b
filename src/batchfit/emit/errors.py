"""What is raised when a formula cannot be carried over faithfully."""

from __future__ import annotations


class EmitError(Exception):
    """A formula uses something that has no faithful translation. Raised at build time, never in use.

    `file` and `line` say where in the formula's source, `construct` what it is.
    """

    def __init__(self, file: str, line: int, construct: str) -> None:
        super().__init__(f"{file}:{line}: {construct}")
        self.file = file
        self.line = line
        self.construct = construct
