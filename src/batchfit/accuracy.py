"""How far off predictions are on published runs, by kind of run: what the scoreboard found, kept with the package.

`scripts/accuracy` writes it; no figure in it is typed in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from batchfit.records import from_json

FILE = "catalog/accuracy.json"


@dataclass(frozen=True, slots=True)
class KindError:
    """The errors of peaks on published runs of a kind, relative to what was measured.

    trained    "full", "lora" or "qlora": what is trained, on weights of 4 or 8 bits in the last
    gpus       "one", or "several" that share the model out or copy it
    runs       how many; `median`, `ninetieth` (percentile) and `worst` are of their absolute errors
    """

    trained: str
    gpus: str
    runs: int
    median: float
    ninetieth: float
    worst: float


@cache
def kinds() -> tuple[KindError, ...]:
    """Every kind of run that was scored."""
    data = json.loads(resources.files("batchfit").joinpath(FILE).read_text("utf-8"))
    return tuple(from_json(KindError, row, FILE) for row in data["kinds"])


def error_on(trained: str, gpus: int) -> KindError | None:
    """The errors on runs of this kind on so many GPUs; None where none was published that can be scored."""
    wanted = (trained, "one" if gpus == 1 else "several")
    return next((kind for kind in kinds() if (kind.trained, kind.gpus) == wanted), None)
