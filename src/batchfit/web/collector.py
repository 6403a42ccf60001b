"""Python's garbage collector in a process that serves: what is there for good is not looked at again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: How many more objects are made than let go before the young ones are looked at: Python's own 700 are reached some ten
#: times in a page. What a page leaves for the collector are some hundred objects, the cycles of its template.
YOUNG = 10_000


@contextmanager
def at_rest() -> Iterator[Callable[[], None]]:
    """Puts aside all that there is now, until the end; what is yielded does so again, for what was made since.

    Templates, texts and the profiles of all models are a hundred thousand objects that are never let go. To walk over
    them took up to a tenth of a second, in the middle of whichever request was the one too many.
    """
    serving = True

    def put_aside() -> None:
        if serving:
            # What is garbage now would otherwise be put aside, too, and stay for ever.
            gc.collect()
            gc.freeze()

    before = gc.get_threshold()
    gc.set_threshold(YOUNG, *before[1:])
    put_aside()
    try:
        yield put_aside
    finally:
        serving = False
        gc.unfreeze()
        gc.set_threshold(*before)
