"""The state of the planner's page: what its address asks, by the names that the command's options have.

A number in an address is written with a decimal point, as the command reads it; a form sent without JavaScript may
hold what a person typed in their language, and beside it the unit of the batch and what is trained as one choice.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from batchfit.errors import BadInput
from batchfit.frameworks import names as frameworks
from batchfit.gpus import find_gpu
from batchfit.models import Variant
from batchfit.numbers import decimal_text, read_number
from batchfit.planning import TOP
from batchfit.planning.target import parse_target
from batchfit.web.model_catalogue import USUAL_GPU, ModelCatalogue
from batchfit.web.state import REPEATED

#: What a plan is made for where nothing else is asked.
DEFAULTS = {"gpu": USUAL_GPU, "gpus": "8", "batch": "256"}

#: The command's options, in the order in which the address and the command have them.
_WHOLE = ("seq_len", "micro_batch", "accumulation_steps", "max_accumulation", "replicas", "lora", "top")
_WORDS = (
    "precision",
    "optimizer",
    "checkpointing",
    "quantize",
    "attention",
    "trainer",
    "sharding",
    "tolerance",
    "headroom",
    "interconnect",
)
NAMES = ("model", "batch", "gpu", "gpus", *_WHOLE, *_WORDS, "emit")

#: Fields of the form that stand for others of the address.
_BESIDE = ("batch_unit", "trained")

#: Plans shown at most: more than anybody reads, few enough to be quick.
MOST_PLANS = 100
#: GPUs planned for at most, and how many numbers of them at once: as many as an answer takes a moment for.
MOST_GPUS = 16_384
MOST_COUNTS = 12
#: The longest text of a field.
LONGEST = 120

#: Fields of the planner that the page has under another name.
_SHOWN_AT = {
    "lora_rank": "trained",
    "lora": "trained",
    "quantize": "trained",
    "profile": "model",
    "most_accumulation": "max_accumulation",
    "framework": "emit",
}


@dataclass(slots=True)
class PlanState:
    """What one address asks.

    typed      the text of each field, as it stands in the form
    wanted     the command's options by name; what is open is left out
    counts     the numbers of GPUs, ascending
    wrong      what is wrong, by field
    malformed  a field is given twice
    """

    lang: str
    catalogue: ModelCatalogue
    typed: dict[str, str] = field(default_factory=dict)
    wanted: dict[str, Any] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    wrong: dict[str, BadInput] = field(default_factory=dict)
    malformed: bool = False

    @property
    def model(self) -> str:
        """The model's name in the catalogue; empty where it has none."""
        return str(self.wanted.get("model", ""))

    def add(self, wrong: BadInput) -> None:
        """Notes what is wrong, at the field where the page shows it."""
        self.wrong.setdefault(_SHOWN_AT.get(wrong.field, wrong.field), wrong)

    @property
    def status(self) -> int:
        """The HTTP status that fits: 400 for a malformed address, 422 for a value that cannot be used."""
        return 400 if self.malformed else 422 if self.wrong else 200

    def pairs(self, **changed: str | None) -> dict[str, str]:
        """The address's fields with some changed; None leaves one out. What cannot be read stays as it was typed."""
        found: dict[str, str] = {}
        for name in NAMES:
            value = self.wanted.get(name)
            text = self.typed.get(name, "") if value is None else str(value)
            if name in changed:
                text = changed[name] or ""
            if text:
                found[name] = text
        if "trained" in self.wrong and self.typed.get("trained"):
            found["trained"] = self.typed["trained"]
        return found

    def query(self, **changed: str | None) -> str:
        """The query that gives this state, with some fields changed, in any language."""
        return urlencode(self.pairs(**changed), safe=",:/")

    def command(self) -> str:
        """The command that gives the same answer."""
        pairs = self.pairs()
        words = ["batchfit", "plan", pairs.pop("model", "")]
        for name, value in pairs.items():
            words += [f"--{name.replace('_', '-')}", value]
        return shlex.join(words)


def read_plan_state(catalogue: ModelCatalogue, lang: str, query: Iterable[tuple[str, str]]) -> PlanState:
    """The state that a query gives. Fields that are not known are ignored; nothing here raises."""
    state = PlanState(lang, catalogue)
    given = _given(state, query)
    state.typed = {**given, **{name: text for name, text in DEFAULTS.items() if not given.get(name)}}
    if catalogue:
        state.typed.setdefault("model", catalogue.usual)
    for name, text in list(state.typed.items()):
        try:
            state.wanted |= dict(_read(state, name, text))
        except BadInput as wrong:
            state.add(wrong)
    if state.malformed:
        state.wanted.pop("emit", None)
    return state


def _given(state: PlanState, query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The fields that hold anything, each once."""
    given: dict[str, str] = {}
    for name, text in query:
        if name not in NAMES and name not in _BESIDE:
            continue
        if name in given:
            state.malformed = True
            state.add(BadInput(name, REPEATED))
        given.setdefault(name, text.strip()[:LONGEST])
    return {name: text for name, text in given.items() if text}


def _read(state: PlanState, name: str, text: str) -> Iterator[tuple[str, Any]]:
    """What a field's text asks of the planner."""
    if name == "model":
        yield name, _model(state.catalogue, text)
    elif name == "gpus":
        state.counts = _counts(text, state.lang)
        yield name, ",".join(str(count) for count in state.counts)
    elif name == "batch":
        yield name, _batch(text, state.typed.get("batch_unit", ""), state.lang)
    elif name == "trained":
        yield from _trained(text).items()
    elif name == "top":
        yield name, _at_most(name, _whole(name, text, state.lang), MOST_PLANS)
    elif name == "emit":
        yield name, _framework(text)
    elif name in _WHOLE:
        yield name, _whole(name, text, state.lang)
    elif name in _WORDS:
        yield name, text if name in ("tolerance", "headroom", "interconnect") else text.lower()
    elif name == "gpu":
        find_gpu(text)
        yield name, text


def _model(catalogue: ModelCatalogue, text: str) -> str:
    entry = catalogue.find(text)
    if entry is None:
        raise BadInput(
            "model", "must be a model of the catalogue, as the list names it; you gave {given}", given=text
        )
    return entry.name


def _whole(name: str, text: str, lang: str) -> int:
    """A whole number of 1 or more, as the language writes it."""
    wrong = BadInput(name, "must be a whole number of 1 or more; you gave {given}", given=text)
    try:
        value = read_number(text, lang).value
    except BadInput:
        raise wrong from None
    if value != value.to_integral_value() or value < 1:
        raise wrong
    return _at_most(name, int(value), 10**9)


def _at_most(name: str, value: int, limit: int) -> int:
    if value > limit:
        raise BadInput(name, "must be at most {limit}; you gave {given}", limit=limit, given=value)
    return value


def _counts(text: str, lang: str) -> list[int]:
    """One number of GPUs, or several as the command has them: "8", "1,2,4,8"."""
    parts = text.split(",") if re.fullmatch(r"\d+(?:,\d+)+", text) else [text]
    if len(parts) > MOST_COUNTS:
        raise BadInput(
            "gpus",
            "must be at most {limit} numbers; you gave {given}",
            limit=MOST_COUNTS,
            given=len(parts),
        )
    return sorted({_at_most("gpus", _whole("gpus", part, lang), MOST_GPUS) for part in parts})


_AMOUNT = re.compile(r"(.*?)\s*([kmgb]i?|)[\s-]*(tokens?|tok|samples?|sequences?|)", flags=re.IGNORECASE)


def _batch(text: str, unit: str, lang: str) -> str:
    """The batch as the command has it: "256", "4M-tokens". `unit` is the one chosen beside the field."""
    found = _AMOUNT.fullmatch(text)
    number, multiple, typed_unit = found.groups() if found else (text, "", "")
    try:
        amount = decimal_text(read_number(number, lang).value) + multiple
    except BadInput:
        amount = text  # which the planner complains of, with what is allowed
    batch = amount + ("-tokens" if (typed_unit or unit).lower().startswith("tok") else "")
    parse_target(batch, seq_len=1)
    return batch


def _trained(text: str) -> dict[str, Any]:
    """The adapters' rank and the weights' quantisation in "lora16" or "nf4-lora16"; none in "full"."""
    if text == "full":
        return {}
    found = re.fullmatch(r"(?:([a-z0-9]+)-)?lora([1-9]\d{0,4})", text)
    if not found:
        raise BadInput(
            "trained", "must be full, or LoRA with its rank such as lora16; you gave {given}", given=text
        )
    return {"lora": int(found[2]), **({"quantize": found[1]} if found[1] else {})}


def trained_of(wanted: Mapping[str, Any]) -> str:
    """What is trained, as a variant's name has it."""
    if not wanted.get("lora"):
        return "full"
    lora = f"lora{wanted['lora']}"
    return f"{wanted['quantize']}-{lora}" if wanted.get("quantize") else lora


def _framework(text: str) -> str:
    if text.lower() not in frameworks():
        allowed = ", ".join(frameworks())
        raise BadInput("emit", "must be one of {allowed}; you gave {given}", allowed=allowed, given=text)
    return text.lower()


def top_of(state: PlanState) -> int:
    """How many plans are asked for."""
    return int(state.wanted.get("top", TOP))


def offered(state: PlanState, name: str) -> list[str]:
    """The values of a trait that the model's profiles have, in their order, and the one asked for."""
    found: Iterable[Variant] = state.catalogue.variants.get(state.model, ())
    values = list(dict.fromkeys(str(getattr(variant, name)) for variant in found))
    asked = trained_of(state.wanted) if name == "trained" else state.wanted.get(name)
    if name == "optimizer" and "adamw" in values and "adamw-8bit" not in values:
        # Which the planner computes from the profiles with AdamW.
        values.append("adamw-8bit")
    return values if asked in (None, "full", *values) else [*values, str(asked)]
