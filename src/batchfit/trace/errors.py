"""What stops a trace, said to the person whose code it is."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from batchfit.errors import BadInput
from batchfit.trace.stacks import is_personal
from batchfit.trace.timeline import Frame


class DataNeeded(RuntimeError):
    """An operation needs the values of a tensor, and a trace has shapes only."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation} needs the values of its inputs")
        self.operation = operation


def data_needed(error: DataNeeded, frames: tuple[Frame, ...]) -> BadInput:
    """The message for the person: their line, the operation, and what to do about it."""
    if not frames:
        return BadInput("model", "{operation} needs data, and a trace has none", operation=error.operation)
    file, line, function = frames[0]
    return BadInput(
        f"{file}:{line}",
        "in {function}, `{code}` needs the values of a tensor ({operation}), and a trace has shapes only. Decide by "
        "shapes instead, or leave the line out while tracing: `if not batchfit.tracing():`",
        function=function,
        code=linecache.getline(file, line).strip(),
        operation=error.operation,
    )


def _stopped(error: Exception, frames: tuple[Frame, ...]) -> BadInput:
    """The message for code that raised something of its own."""
    if not frames:
        kind = type(error).__name__
        return BadInput("model", "stopped with {kind}: {message}", kind=kind, message=str(error).strip())
    file, line, function = frames[0]
    return BadInput(
        f"{file}:{line}",
        "in {function}, `{code}` stopped with {kind}: {message}",
        function=function,
        code=linecache.getline(file, line).strip(),
        kind=type(error).__name__,
        message=str(error).strip(),
    )


@contextmanager
def explained() -> Iterator[None]:
    """Turns what stops the person's code in here into a message about their line of code."""
    try:
        yield
    except BadInput:
        raise
    except DataNeeded as error:
        raise data_needed(error, _personal_frames(error)) from error
    except Exception as error:
        raise _stopped(error, _personal_frames(error)) from error


def _personal_frames(error: BaseException) -> tuple[Frame, ...]:
    """The person's frames that the error came through, innermost first."""
    frames = [
        Frame(frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_personal(frame.f_code)
    ]
    return tuple(reversed(frames))
