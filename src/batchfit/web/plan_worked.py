"""How each number of a plan comes about: the formula with the numbers put in, what it assumes, where it is from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from batchfit.accuracy import KindError, error_on
from batchfit.bidi import isolated
from batchfit.gpus import Gpu
from batchfit.numbers import format_number
from batchfit.planning import Plan
from batchfit.planning.fit import Capacity, capacity
from batchfit.planning.free import binds
from batchfit.planning.throughput import error_sentence
from batchfit.profile import MemoryProfile, evaluate
from batchfit.samples import samples_of
from batchfit.sentences import Rounded, Sentence, Share, Size, in_language, is_translated, size
from batchfit.web.plan_answer import PlanAnswer

#: What shardings are called where that is not what is typed.
SHARDING_NAMES: dict[str, str] = {
    "none": Sentence("none"),
    "ddp": "DDP",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
    "fsdp": "FSDP",
}


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence; `lang` is set where it is not in the page's language, `href` where it leads to more."""

    text: str
    lang: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Worked:
    """A number: its name and value, the formula in words, the same with the numbers put in, and what else to know."""

    name: str
    value: str
    formula: str
    numbers: str
    more: tuple[Said, ...]


def worked(answer: PlanAnswer, lang: str) -> list[Worked]:
    """Every number of the plan that is drawn."""
    plan, profile = answer.shown, answer.profile
    if plan is None or profile is None:
        return []
    room = capacity(answer.situation.request.gpu, plan.replicas, answer.situation.request.headroom)
    writer = _Writer(lang)
    return [
        writer.effective_batch(plan),
        writer.allocated(plan, profile),
        *writer.reserved(plan),
        writer.room(room, answer.situation.request.gpu),
        writer.free(plan, room),
        *writer.time(plan, answer),
    ]


#: The page about accuracy, in addresses.
ACCURACY = "accuracy"

#: Kinds of published runs, by what is trained and on how many GPUs.
KIND_NAMES: dict[tuple[str, str], Sentence] = {
    ("full", "one"): Sentence("all weights, one GPU"),
    ("full", "several"): Sentence("all weights, several GPUs"),
    ("lora", "one"): Sentence("LoRA, one GPU"),
    ("lora", "several"): Sentence("LoRA, several GPUs"),
    ("qlora", "one"): Sentence("LoRA on quantised weights, one GPU"),
    ("qlora", "several"): Sentence("LoRA on quantised weights, several GPUs"),
}

#: How profiles are obtained.
HOW_NAMES: dict[str, Sentence] = {
    "traced": Sentence("traced"),
    "measured": Sentence("measured"),
    "catalogue": Sentence("from the catalogue"),
}


def kind_name(error: KindError) -> Sentence:
    """What a kind of run is called."""
    return KIND_NAMES[error.trained, error.gpus]


def trained_by(plan: Plan) -> str:
    """What a plan trains, as kinds of runs have it."""
    return "full" if plan.lora_rank is None else "qlora" if plan.quantize else "lora"


def source_of(profile: MemoryProfile) -> Sentence:
    """Where a profile is from."""
    origin = profile.provenance
    return Sentence(
        "From the profile of this model ({how}, {created}; {versions}).",
        how=HOW_NAMES.get(origin.how, origin.how),
        created=origin.created[:10],
        # What it was traced from is a digest, for the tool that traces the catalogue.
        versions=", ".join(
            f"{name} {version}" for name, version in origin.versions.items() if name != "traced_from"
        ),
    )


class _Writer:
    """Writes in one language."""

    def __init__(self, lang: str) -> None:
        self._lang = lang

    def _say(self, text: str) -> str:
        return in_language(text, self._lang)

    def _more(self, *texts: str) -> tuple[Said, ...]:
        return tuple(
            Said(self._say(text), "" if is_translated(text, self._lang) else "en") for text in texts if text
        )

    def _size(self, nbytes: float) -> str:
        return isolated(size(round(nbytes), self._lang).replace(" ", "\N{NO-BREAK SPACE}"), self._lang)

    def _number(self, value: float) -> str:
        return format_number(value, self._lang)

    def effective_batch(self, plan: Plan) -> Worked:
        factors = (plan.micro_batch, plan.accumulation_steps, plan.replicas)
        value = self._number(plan.effective_batch)
        tokens: str = ""
        if plan.tokens is not None:
            tokens = Sentence(
                "That is {tokens} tokens per optimizer step, {seq_len} to a sample.",
                tokens=plan.tokens,
                seq_len=plan.seq_len,
            )
        return Worked(
            name=self._say(Sentence("Effective batch size")),
            value=value,
            formula=self._say(Sentence("micro-batch size × accumulation steps × GPUs")),
            numbers=f"{' × '.join(map(self._number, factors))} = {value}",
            more=self._more(tokens),
        )

    def allocated(self, plan: Plan, profile: MemoryProfile) -> Worked:
        line = profile.peak(plan.micro_batch, plan.accumulation_steps, plan.seq_len).line
        constant, slope = evaluate(line.constant, plan.seq_len), evaluate(line.per_sample, plan.seq_len)
        value = self._size(plan.peak_allocated_bytes)
        sharded: str = ""
        if plan.sharding not in ("none", "ddp"):
            sharded = Sentence(
                "What {sharding} shares out among {replicas} GPUs is counted once for all of them.",
                sharding=SHARDING_NAMES[plan.sharding],
                replicas=plan.replicas,
            )
        return Worked(
            name=self._say(Sentence("Allocated at the peak")),
            value=value,
            formula=self._say(
                Sentence(
                    "constant + micro-batch size × bytes {each}, where that is highest",
                    each=samples_of(profile).each,
                )
            ),
            numbers=f"{self._size(constant)} + {self._number(plan.micro_batch)} × {self._size(slope)} = {value}",
            more=(
                *self._more(Sentence("{where}.", where=binds(plan)), sharded, source_of(profile)),
                *self._accuracy(plan),
            ),
        )

    def _accuracy(self, plan: Plan) -> Iterator[Said]:
        """How far off such peaks were on published runs, which are of models of text."""
        error = error_on(trained_by(plan), plan.replicas) if plan.seq_len else None
        if error is not None:
            said = Sentence(
                "On {runs} published runs of this kind ({kind}) the predicted peak is off by {median} in the median, "
                "in nine of ten by at most {ninetieth}, at worst by {worst}.",
                runs=error.runs,
                kind=kind_name(error),
                median=Share(error.median, 1),
                ninetieth=Share(error.ninetieth, 1),
                worst=Share(error.worst, 1),
            )
            yield Said(self._say(said), href=f"/{self._lang}/{ACCURACY}")

    def reserved(self, plan: Plan) -> Iterator[Worked]:
        if plan.peak_reserved_bytes is None:
            return
        value = self._size(plan.peak_reserved_bytes)
        ratio = plan.peak_reserved_bytes / plan.peak_allocated_bytes
        by = format_number(ratio, self._lang, min_fraction=3, max_fraction=3)
        yield Worked(
            name=self._say(Sentence("Reserved at the peak")),
            value=value,
            formula=self._say(Sentence("allocated × what the caching allocator takes beyond it")),
            numbers=f"{self._size(plan.peak_allocated_bytes)} × {by} = {value}",
            more=self._more(
                Sentence(
                    "The step's allocations were replayed through a model of PyTorch's caching allocator; between "
                    "the micro-batches replayed, the ratio is interpolated."
                )
            ),
        )

    def room(self, room: Capacity, gpu: Gpu) -> Worked:
        value = self._size(room.capacity_bytes)
        less = [room.total_bytes, room.context_bytes, room.communication_bytes]
        numbers = " − ".join(self._size(each) for each in less if each)
        return Worked(
            name=self._say(Sentence("On the card for PyTorch")),
            value=value,
            formula=self._say(
                Sentence("memory that PyTorch sees − context of the process − communication buffers")
            ),
            numbers=f"{numbers} = {value}",
            more=self._more(*room.assumptions, gpu.memory_rule, *_documents(gpu)),
        )

    def free(self, plan: Plan, room: Capacity) -> Worked:
        most = plan.peak_reserved_bytes or plan.peak_allocated_bytes
        value = self._size(plan.headroom_bytes)
        kept = Sentence(
            "To be kept free: {headroom} ({reason}).",
            headroom=Size(room.headroom_bytes),
            reason=room.headroom_reason,
        )
        return Worked(
            name=self._say(Sentence("Free on each GPU")),
            value=value,
            formula=self._say(Sentence("on the card − reserved, or allocated where that is not known")),
            numbers=f"{self._size(plan.capacity_bytes)} − {self._size(most)} = {value}",
            more=self._more(kept),
        )

    def time(self, plan: Plan, answer: PlanAnswer) -> Iterator[Worked]:
        time = plan.time
        if time is None:
            return
        once = time.seconds - plan.accumulation_steps * time.micro_batch_seconds
        value = self._say(Sentence("{seconds} s", seconds=Rounded(time.seconds, significant=3)))
        each = format_number(time.micro_batch_seconds, self._lang, significant=3)
        rest = format_number(max(0.0, once), self._lang, significant=3)
        sources = answer.first.time_sources
        yield Worked(
            name=self._say(Sentence("Time of an optimizer step, at best")),
            value=value,
            formula=self._say(
                Sentence("accumulation steps × seconds per micro-batch + seconds once per optimizer step")
            ),
            numbers=f"{self._number(plan.accumulation_steps)} × {each} + {rest} = {value}",
            more=self._more(
                Sentence(
                    "Of it, communication that nothing hides takes {communication}, the optimizer {optimizer}.",
                    communication=Share(time.communication_seconds / time.seconds),
                    optimizer=Share(time.optimizer_seconds / time.seconds),
                ),
                Sentence("{error}.", error=error_sentence()),
                *sources,
            ),
        )


def _documents(gpu: Gpu) -> list[str]:
    """The documents that the card's memory is known from."""
    return [gpu.sources[name] for name in ("memory_bytes", "context_bytes") if name in gpu.sources]
