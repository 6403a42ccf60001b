"""What would make a line of the ledger hold less: the known levers, as options of `batchfit trace`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from batchfit.profile import LedgerEntry

#: Kinds whose memory inside of repeated blocks checkpointing gives up for computing it again.
_RECOMPUTED = ("attention", "MLP", "norm", "residual stream", "convolution", "other")


def lever(entry: LedgerEntry, settings: Mapping[str, Any]) -> str | None:
    """What to change, in a few words, for the line of this entry in a step with these settings; None where nothing
    is known that would help."""
    code = entry.code
    if "cache.update" in code or "past_key_value" in code:
        return "config.use_cache = False: no keys and values are kept twice"
    if settings.get("loss", "full") == "full" and _is_logits(entry):
        return "--loss fused: logits are never whole"
    if entry.kind == "attention" and settings.get("attention") == "eager":
        return "--attention flash: scores are never kept"
    if entry.kind == "norm" and re.search(r"float32|\.float\(\)", code):
        return "a fused norm, which keeps no 32-bit copy"
    if settings.get("checkpointing") == "none" and entry.kind in _RECOMPUTED and "*" in entry.module:
        return "--checkpointing full: computed again in backward"
    return None


def _is_logits(entry: LedgerEntry) -> bool:
    """Whether it is the logits of a language model, or what its loss makes of them."""
    return entry.kind in ("logits and loss", "in backward") and bool(re.search("logits|lm_head", entry.code))
