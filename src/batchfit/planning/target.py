"""The batch a person wants: samples or tokens per optimizer step, exactly or within a tolerance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from batchfit.batch import samples_for_tokens
from batchfit.errors import BadInput
from batchfit.samples import ANY, Samples
from batchfit.sentences import Sentence

#: What may stand behind the number of a batch.
MULTIPLES = {"K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_FACTORS = {"": 1} | {name.lower(): factor for name, factor in MULTIPLES.items()}

#: The largest effective batch planned for, in samples: far above published runs (some 10^6 images), and few
#: enough micro-batches to try them all.
LARGEST_BATCH = 10**7

_NOT_A_BATCH = 'must be a number of samples such as 256, or of tokens such as "4M-tokens"; you gave {given}'
_NOT_A_TOLERANCE = 'must be a share such as "5%" or a number of samples such as 8; you gave {given}'


@dataclass(frozen=True, slots=True)
class Target:
    """The effective batch wanted, in samples of a kind, and the smallest and largest one that will do."""

    samples: int
    low: int
    high: int
    tokens: int | None = None
    kind: Samples = ANY

    @property
    def exact(self) -> bool:
        """Whether only the very number will do."""
        return self.low == self.high

    @property
    def said(self) -> Sentence:
        """The target in words."""
        samples = self.kind.counted(self.samples)
        if self.tokens is None:
            return Sentence("{samples}", samples=samples)
        return Sentence("{samples} ({tokens} tokens asked for)", samples=samples, tokens=self.tokens)

    def __str__(self) -> str:
        return str(self.said)


def parse_target(
    batch: int | str, seq_len: int | None = None, tolerance: int | str = 0, kind: Samples = ANY
) -> Target:
    """The target that `batch` names: 256, "256 samples", "4M-tokens" or "4194304 tokens".

    A suffix multiplies: k, M and G (or B) by powers of 1000, Ki, Mi and Gi by powers of 1024. "4M-tokens" is
    4,000,000 tokens; those are turned into the nearest number of samples of `seq_len` tokens. `tolerance` is a
    share of the batch ("5%") or a number of samples; `kind` is what samples are called.

    Raises BadInput on `batch`, `seq_len` or `tolerance`.
    """
    amount, of_tokens = batch_amount(batch)
    tokens = amount if of_tokens else None
    if of_tokens and seq_len is None:
        raise BadInput("seq_len", "is needed to turn a batch of {tokens} tokens into samples", tokens=amount)
    samples = samples_for_tokens(amount, seq_len) if of_tokens and seq_len else amount
    if samples > LARGEST_BATCH:
        raise BadInput(
            "batch", "must be at most {limit} samples; you gave {given}", limit=LARGEST_BATCH, given=samples
        )
    slack = _slack(tolerance, samples)
    return Target(samples, max(1, samples - slack), samples + slack, tokens, kind)


def batch_amount(batch: int | str) -> tuple[int, bool]:
    """The number in a batch, and whether it counts tokens. Raises BadInput on `batch`."""
    wrong = BadInput("batch", _NOT_A_BATCH, given=repr(batch))
    if isinstance(batch, bool) or not isinstance(batch, int | str):
        raise wrong
    text = str(batch).strip().lower().replace(",", "").replace("_", "")
    found = re.fullmatch(
        r"(\d+(?:\.\d+)?)\s*([kmgb]i?|)[\s-]*(tokens?|tok|samples?|sequences?|images?|clips?|)", text
    )
    if not found or found[2] not in _FACTORS:
        raise wrong
    amount = Decimal(found[1]) * _FACTORS[found[2]]
    if amount != amount.to_integral_value() or amount < 1:
        raise wrong
    return int(amount), found[3].startswith("tok")


def _slack(tolerance: int | str, samples: int) -> int:
    """The tolerance in whole samples, rounded down: what is allowed is never exceeded."""
    wrong = BadInput("tolerance", _NOT_A_TOLERANCE, given=repr(tolerance))
    text = str(tolerance).strip()
    percent = text.endswith("%")
    try:
        value = Decimal(text.removesuffix("%").strip())
    except InvalidOperation:
        raise wrong from None
    if isinstance(tolerance, bool) or not value.is_finite() or value < 0 or (percent and value >= 100):
        raise wrong
    if percent:
        return int(samples * value / 100)
    if value != value.to_integral_value() or value > LARGEST_BATCH:
        raise wrong
    return int(value)
