"""The state of the planner's page: what its address asks, by the names that the command's options have.

A number in an address is written with a decimal point, as the command reads it; a form sent without JavaScript may
hold what a person typed in their language, and beside it the unit of the batch and what is trained as one choice.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal
from urllib.parse import urlencode

from batchfit.errors import BadInput
from batchfit.frameworks import names as frameworks
from batchfit.gpus import find_gpu
from batchfit.models import Variant
from batchfit.numbers import decimal_text, read_number
from batchfit.planning import TOP
from batchfit.planning.target import MULTIPLES, batch_amount, parse_target
from batchfit.profile import MemoryProfile
from batchfit.samples import ANY, Samples, samples_of
from batchfit.scales import COUNTS, scaled, split_scale
from batchfit.web.model_catalogue import USUAL_GPU, ModelCatalogue
from batchfit.web.plan_own import Own, measured, read_own
from batchfit.web.plan_points import FIELDS, Measured, parse_points, points_of
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
NAMES = ("model", "points", "batch", "gpu", "gpus", *_WHOLE, *_WORDS, "emit")

#: Where the model is from: the catalogue, two or more measured points, or a person's own file, which no address holds.
Source = Literal["catalogue", "points", "own"]
SOURCES: tuple[Source, ...] = ("catalogue", "points", "own")

#: Fields of the form that stand for others of the address.
_BESIDE = ("batch_unit", "trained", "from", *FIELDS)
#: Those that the home page asks for.
BRIEF = ("model", "batch", "batch_unit", "gpu", "gpus")
#: What a person calls a file of their own in a command.
OWN_FILE = "P.json"

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
    "point": "points",
}


@dataclass
class PlanState:
    """What one address asks.

    typed      the text of each field, as it stands in the form
    wanted     the command's options by name; what is open is left out
    counts     the numbers of GPUs, ascending
    wrong      what is wrong, by field
    malformed  a field is given twice
    source     where the model is from
    points     the measured points
    own        the model that is not the catalogue's: of points, or of the text `own_text`
    beside     what the address has beside the fields: an embed's options
    """

    lang: str
    catalogue: ModelCatalogue
    source: Source = "catalogue"
    points: tuple[Measured, ...] = ()
    own: Own | None = None
    own_text: str = ""
    typed: dict[str, str] = field(default_factory=dict)
    wanted: dict[str, Any] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    wrong: dict[str, BadInput] = field(default_factory=dict)
    malformed: bool = False
    beside: dict[str, str] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model's name in the catalogue; empty where it has none."""
        return str(self.wanted.get("model", ""))

    @cached_property
    def profiles(self) -> tuple[MemoryProfile, ...]:
        """The profiles to plan with; none where no model is given."""
        if self.source != "catalogue":
            return self.own.profiles if self.own else ()
        return self.catalogue.profiles(self.model) if self.model else ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The ways of training that there are profiles of. Measured points are of a way that is not known."""
        if self.source == "catalogue":
            return self.catalogue.variants.get(self.model, ())
        traced = (profile for profile in self.profiles if profile.provenance.how != "measured")
        return tuple(Variant.of(profile) for profile in traced)

    @property
    def samples(self) -> Samples:
        """What the model's samples are."""
        return samples_of(self.profiles[0]) if self.profiles else ANY

    @property
    def loaded_as(self) -> str:
        """What a command calls the model: its name in the catalogue, or a file."""
        return self.model or OWN_FILE

    @property
    def untraced(self) -> bool:
        """Whether the model is a config that no profiles are known of yet."""
        return self.source == "own" and self.own is not None and not self.own.profiles

    def add(self, wrong: BadInput) -> None:
        """Notes what is wrong, at the field where the page shows it."""
        at = _SHOWN_AT.get(wrong.field, wrong.field)
        if at == "model" and self.source != "catalogue":
            at = self.source
        self.wrong.setdefault(at, wrong)

    @property
    def status(self) -> int:
        """The HTTP status that fits: 400 for a malformed address, 422 for a value that cannot be used."""
        return 400 if self.malformed else 422 if self.wrong else 200

    def pairs(self, **changed: str | None) -> dict[str, str]:
        """The address's fields with some changed; None leaves one out. What cannot be read stays as it was typed."""
        found: dict[str, str] = {}
        if self.source == "own" or (self.source == "points" and not self.points):
            found |= {
                "from": self.source,
                **{name: self.typed[name] for name in FIELDS if name in self.typed},
            }
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
        """The query that gives this state, with some fields changed, in any language. What is as usual is left out,
        but for the model, without which the link would say nothing."""
        pairs = {name: text for name, text in self.pairs(**changed).items() if text != DEFAULTS.get(name)}
        return "&".join(_written(name, text) for name, text in (pairs | self.beside).items())

    def command(self) -> str:
        """The command that gives the same answer."""
        pairs = self.pairs()
        for name in ("from", "points"):
            pairs.pop(name, None)
        words = ["batchfit", "plan", pairs.pop("model", OWN_FILE)]
        for name, value in pairs.items():
            words += [f"--{name.replace('_', '-')}", value]
        if not self.points:
            return shlex.join(words)
        points = [word for each in self.points for word in ("--point", str(each))]
        made = shlex.join(["batchfit", "calibrate", *points, "--save", OWN_FILE])
        return f"{made} && {shlex.join(words)}"


@lru_cache(maxsize=4096)
def _written(name: str, text: str) -> str:
    """A field as an address has it. A page has some seventy links that differ from its own in one."""
    return urlencode({name: text}, safe=",:/")


def read_plan_state(
    catalogue: ModelCatalogue, lang: str, query: Iterable[tuple[str, str]], own_text: str = ""
) -> PlanState:
    """The state that a query gives, with a model of one's own where the request carries one. Fields that are not known
    are ignored; nothing here raises."""
    state = PlanState(lang, catalogue)
    given = _given(state, query)
    state.source = _source(given)
    state.typed = {**given, **{name: text for name, text in DEFAULTS.items() if not given.get(name)}}
    _read_source(state, own_text)
    for name, text in list(state.typed.items()):
        try:
            state.wanted |= dict(_read(state, name, text))
        except BadInput as wrong:
            state.add(wrong)
    if state.malformed:
        state.wanted.pop("emit", None)
    return state


def is_brief(query: Iterable[tuple[str, str]]) -> bool:
    """Whether a query gives nothing but what the home page asks for."""
    return not {name for name, _ in query}.intersection({*NAMES, *_BESIDE}.difference(BRIEF))


def _source(given: Mapping[str, str]) -> Source:
    """Where the model is from: as the form says, else as the fields that are there do."""
    if (said := given.get("from")) in SOURCES:
        return said
    return "points" if "points" in given and "model" not in given else "catalogue"


def _read_source(state: PlanState, own_text: str) -> None:
    """Reads the model from where it is, and leaves out what the form holds of the other ways to give one."""
    typed = state.typed
    if state.source != "points":
        for name in ("points", *FIELDS):
            typed.pop(name, None)
    if state.source != "catalogue":
        typed.pop("model", None)
    try:
        if state.source == "points":
            state.points = _points(typed, state.lang)
            if state.points:
                state.own = Own(measured([each.point for each in state.points]))
        elif state.source == "own" and own_text.strip():
            state.own_text = own_text
            state.own = read_own(own_text)
            _look_up(state, state.own)
    except BadInput as wrong:
        state.add(wrong)
    if state.source == "catalogue" and state.catalogue:
        typed.setdefault("model", state.catalogue.usual)


def _look_up(state: PlanState, own: Own) -> None:
    """Where a config is of a catalogue's shape it needs no file: the address alone says it. Raises BadInput where it
    is of no shape that there are profiles of."""
    if own.config is None:
        return
    if own.known and state.catalogue.find(own.known.name):
        state.source, state.typed["model"] = "catalogue", own.known.name
        return
    raise BadInput("own", "is of a model that the catalogue has no profiles of: it has to be traced first")


def _points(typed: dict[str, str], lang: str) -> tuple[Measured, ...]:
    """The points in an address, or in the form's fields; none where nothing is typed yet."""
    rows = any(name in typed for name in FIELDS)
    if not rows and "points" not in typed:
        return ()
    points = points_of(typed, lang) if rows else parse_points(typed["points"])
    for name in FIELDS:
        typed.pop(name, None)
    typed["points"] = ",".join(map(str, points))
    return points


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


_AMOUNT = re.compile(
    r"(.*?)\s*([kmgb]i|)[\s-]*(tokens?|tok|samples?|sequences?|images?|clips?|)", flags=re.IGNORECASE
)


def _batch(text: str, unit: str, lang: str) -> str:
    """The batch as the command has it: "256", "4M-tokens". `unit` is the one chosen beside the field."""
    found = _AMOUNT.fullmatch(text)
    number, multiple, typed_unit = found.groups() if found else (text, "", "")
    number, scale = split_scale(number, COUNTS, lang)
    try:
        value = read_number(number, lang).value
        if scale in MULTIPLES:
            multiple = scale
        elif scale:
            value = scaled(value, COUNTS[scale])
        amount = decimal_text(value) + multiple
    except BadInput:
        amount = text  # which the planner complains of, with what is allowed
    batch = amount + ("-tokens" if (typed_unit or unit).lower().startswith("tok") else "")
    # How many samples tokens make is known only with their length.
    _, of_tokens = batch_amount(batch)
    if not of_tokens:
        parse_target(batch)
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
    values = list(dict.fromkeys(str(getattr(variant, name)) for variant in state.variants))
    asked = trained_of(state.wanted) if name == "trained" else state.wanted.get(name)
    if name == "optimizer" and "adamw" in values and "adamw-8bit" not in values:
        # Which the planner computes from the profiles with AdamW.
        values.append("adamw-8bit")
    return values if asked in (None, "full", *values) else [*values, str(asked)]
