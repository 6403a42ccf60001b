"""What is asked of the planner, as its form shows it: fields with their messages, and the choices there are."""

from __future__ import annotations

from functools import cached_property

from markupsafe import Markup

from batchfit.gpus import Gpu, load_gpus
from batchfit.languages import catalogue
from batchfit.planning.rank import SHARDINGS
from batchfit.planning.traits import USUAL_SEQ_LEN, kind_of, seq_len_for
from batchfit.sentences import Sentence, in_language
from batchfit.web.plan_answer import PlanAnswer
from batchfit.web.plan_lists import Choice, gpu_options, model_options
from batchfit.web.plan_source import SourceForm
from batchfit.web.plan_state import PlanState, offered, trained_of
from batchfit.web.plan_worked import SHARDING_NAMES
from batchfit.wording import complaint

#: Fields of the form; those that few need stand apart.
FURTHER = ("micro_batch", "accumulation_steps", "replicas", "tolerance", "headroom")
FORM = (
    *(
        "model",
        "points",
        "own",
        "gpu",
        "gpus",
        "batch",
        "seq_len",
        "precision",
        "optimizer",
        "checkpointing",
        "trained",
    ),
    *("sharding", *FURTHER),
)

#: What values are called where that is not what is typed.
VALUE_NAMES: dict[str, dict[str, str]] = {
    "sharding": SHARDING_NAMES,
    "checkpointing": {
        "none": Sentence("none"),
        "selective": Sentence("selective"),
        "full": Sentence("full"),
    },
}


def trained_name(value: str) -> Sentence:
    """What is trained, for people: "full" is all weights, "nf4-lora16" adapters of a rank on quantised ones."""
    if value == "full":
        return Sentence("all weights")
    quantize, _, rank = value.rpartition("lora")
    if not quantize:
        return Sentence("LoRA, rank {rank}", rank=rank)
    return Sentence("LoRA, rank {rank}, on {quantize}", rank=rank, quantize=quantize.removesuffix("-"))


def named(name: str, value: str, lang: str) -> str:
    """What a value is called for people."""
    return in_language(VALUE_NAMES.get(name, {}).get(value, value), lang)


class PlanForm:
    """What the form shows of a state; what can be chosen depends on the answer to it."""

    def __init__(self, answer: PlanAnswer) -> None:
        self.answer = answer
        self.state: PlanState = answer.state
        self.lang = answer.state.lang
        self.source = SourceForm(answer.state)

    def typed(self, name: str) -> str:
        """What stands in a text field."""
        return self.state.typed.get(name, "")

    def complaint(self, *names: str) -> str:
        """What is wrong with a field, or one of several that stand together; empty where nothing is."""
        found = (self.state.wrong.get(name) for name in names)
        return " ".join(complaint(wrong, self.lang) for wrong in found if wrong)

    @property
    def elsewhere(self) -> list[str]:
        """What is wrong with fields that the form does not show."""
        return [
            f"{name}: {complaint(wrong, self.lang)}"
            for name, wrong in self.state.wrong.items()
            if name not in FORM
        ]

    @property
    def pinned(self) -> bool:
        """Whether one of the further settings is given or wrong, so that they are to be seen."""
        return any(self.typed(name) or name in self.state.wrong for name in FURTHER)

    @property
    def models(self) -> Markup:
        """The models by family, as options."""
        return model_options(self.state.catalogue, self.state.model or self.state.catalogue.usual)

    @property
    def gpus(self) -> Markup:
        """The cards by maker and generation, the newest first, as options."""
        return gpu_options(self.card.id if self.card else self.typed("gpu"))

    @cached_property
    def card(self) -> Gpu | None:
        """The card asked for; None where there is no such card."""
        if self.answer.answers:
            return self.answer.situation.request.gpu
        typed = self.typed("gpu").lower()
        return next((gpu for gpu in load_gpus() if typed in (gpu.id, *gpu.aliases)), None)

    @property
    def unit(self) -> str:
        """What the batch counts: "samples" or "tokens"."""
        return "tokens" if self.typed("batch").endswith("tokens") or self._of_tokens else "samples"

    @property
    def units(self) -> list[Choice]:
        """What a batch may count: tokens only where samples are of tokens."""
        _ = catalogue(self.lang).text
        names = {"samples": in_language(self.state.samples.unit, self.lang), "tokens": _("Tokens")}
        chosen = self.unit
        return [
            Choice(unit, name, unit == chosen)
            for unit, name in names.items()
            if unit in (chosen, "samples") or self.usual_length
        ]

    @property
    def _of_tokens(self) -> bool:
        return str(self.state.wanted.get("batch", "")).endswith("-tokens")

    @property
    def batch(self) -> str:
        """The batch without its unit, which stands beside it."""
        if "batch" in self.state.wrong:
            return self.typed("batch")
        return str(self.state.wanted.get("batch", "")).removesuffix("-tokens")

    def choices(self, name: str) -> list[Choice]:
        """The values of a trait that the model's profiles have; the first leaves it open. None at all where the model
        is known from measurements alone, which are of the way in which it was trained then."""
        if self.state.source == "points" and name != "sharding" and name not in self.state.wanted:
            return []
        _ = catalogue(self.lang).text
        if name == "sharding":
            values, open_label = [*SHARDINGS], _("any")
        else:
            values = offered(self.state, name)
            open_label = _("any") if name == "checkpointing" else self._usual(name)
        asked = str(self.state.wanted.get(name, ""))
        if asked and asked not in values:
            values.append(asked)
        return [
            Choice("", open_label, not asked),
            *(Choice(each, named(name, each, self.lang), each == asked) for each in values),
        ]

    def _usual(self, name: str) -> str:
        """What is planned with where a trait is left open."""
        chosen = getattr(kind_of(self.answer.situation.chosen[0]), name) if self.answer.answers else None
        if chosen is None:
            return catalogue(self.lang).text("as usual")
        return in_language(Sentence("as usual: {value}", value=chosen), self.lang)

    @property
    def training(self) -> list[Choice]:
        """What can be trained: all weights, or adapters."""
        asked = trained_of(self.state.wanted)
        return [
            Choice(each, in_language(trained_name(each), self.lang), each == asked)
            for each in offered(self.state, "trained")
        ]

    @cached_property
    def lengths(self) -> tuple[int, int] | None:
        """The shortest and longest sequence that the model's profiles hold for; None where there is no choice."""
        profiles = self.state.profiles
        if self.answer.answers:
            kind = kind_of(self.answer.situation.chosen[0])
            profiles = tuple(each for each in profiles if kind_of(each) == kind) or profiles
        spans = [each.seq_len for each in profiles if each.seq_len is not None]
        if not spans:
            return None
        shortest, longest = min(span.minimum for span in spans), max(span.maximum for span in spans)
        return (shortest, longest) if shortest < longest else None

    @property
    def usual_length(self) -> str:
        """The sequence length that is planned for where none is given."""
        if not self.state.profiles:
            return ""
        if self.lengths:
            shortest, longest = self.lengths
            return str(min(max(USUAL_SEQ_LEN, shortest), longest))
        length = seq_len_for(self.state.profiles[0], None)
        return "" if length is None else str(length)
