"""The planner's answer as its template shows it, in the language of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from batchfit import charts
from batchfit.assumptions import understood
from batchfit.bidi import isolated
from batchfit.languages import catalogue
from batchfit.numbers import format_number
from batchfit.planning import Advice, Plan
from batchfit.planning.result import PHASE_NAMES, VERDICT_NAMES
from batchfit.sentences import Sentence, Share, Size, in_language, is_translated, percent, size
from batchfit.web.marked_up import marked_up
from batchfit.web.plan_answer import PlanAnswer
from batchfit.web.plan_form import named
from batchfit.web.plan_state import PlanState
from batchfit.web.plan_worked import Worked, worked
from batchfit.wording import signed

#: The widths of pictures: for a phone, and for wider screens.
NARROW, WIDE = 340, charts.WIDTH


@dataclass(frozen=True, slots=True)
class Text:
    """A text, and the language it is in where that is not the page's."""

    text: str
    lang: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the memory bar, for the table beside it. `within` are kinds of layers below their sum."""

    style: str
    label: str
    size: str
    share: str
    within: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A line of the model's code: where it stands, its text, and what it holds for each sample."""

    where: str
    code: str
    size: str


@dataclass(frozen=True, slots=True)
class Row:
    """A plan as a row of a table. `query` leads to it alone; `style` says how well it fits."""

    batch: str
    effective: str
    drift: str
    sharding: str
    checkpointing: str
    allocated: str
    reserved: str
    free: str
    verdict: str
    style: str
    time: str
    binds: str
    query: str


@dataclass(frozen=True, slots=True)
class CountRow:
    """A number of GPUs with the best plan on all of them; `why` where that is not what was asked for."""

    gpus: str
    query: str
    here: bool
    row: Row | None
    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """Advice, and where following it leads."""

    text: Text
    query: str


@dataclass(frozen=True, slots=True)
class Card:
    """A card on which it fits."""

    name: str
    query: str


#: Lines of the model that are shown.
LEDGER_LINES = 8


def _place(where: str) -> str:
    """A file and line without the folders of the machine that it was traced on."""
    _, installed, rest = where.rpartition("site-packages/")
    if installed:
        return rest
    return where.rpartition("/")[2] if where.startswith("/") else where


class PlanView:
    """What the template shows of a state and its answer."""

    def __init__(self, answer: PlanAnswer) -> None:
        self.answer = answer
        self.state: PlanState = answer.state
        self.lang = answer.state.lang

    # ---- The answer ---------------------------------------------------------------------------------------

    @property
    def answered(self) -> bool:
        """Whether there is an answer, be it that nothing fits."""
        return bool(self.answer.answers)

    @property
    def verdict(self) -> str:
        """ "fits", "tight" or "none"."""
        best = self.answer.first.best
        return "none" if best is None else best.verdict

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return in_language(self.answer.first.sentence, self.lang)

    @property
    def headline(self) -> Sequence[tuple[str, str]]:
        """The best plan's factors with what they are, largest on the page."""
        best = self.answer.first.best
        if best is None:
            return ()
        _ = catalogue(self.lang).text
        return (
            (self.number(best.micro_batch), _("micro-batch")),
            (self.number(best.accumulation_steps), _("steps")),
            (self.number(best.replicas), _("GPUs used")),
        )

    @property
    def brief(self) -> str:
        """The best plan's factors alone; empty where nothing fits."""
        best = self.answer.first.best
        return isolated(best.batch, self.lang) if best else ""

    @property
    def effective(self) -> str:
        """What the factors make."""
        best = self.answer.first.best
        if best is None:
            return ""
        counted = self.state.samples.counted(best.effective_batch)
        return in_language(Sentence("= {samples}", samples=counted), self.lang)

    @property
    def judgement(self) -> str:
        """Whether it fits, and how much stays free of the card or is missing."""
        return in_language(self._judged(self.answer.shown), self.lang)

    def _judged(self, plan: Plan | None) -> Sentence:
        if plan is None:
            return Sentence("nothing fits")
        if plan.verdict == "does not fit":
            lacking = plan.peak_allocated_bytes - plan.capacity_bytes
            return Sentence("does not fit: {size} too much on each GPU", size=Size(lacking))
        if self.answer.first.best is None:
            return Sentence("not reached exactly: what comes closest fits")
        if plan.headroom_bytes < 0:
            return Sentence("only just fits: nothing to spare")
        share = Share(plan.headroom_bytes / plan.capacity_bytes)
        if plan.verdict == "tight":
            return Sentence(
                "only just fits: {size} ({share}) to spare", size=Size(plan.headroom_bytes), share=share
            )
        return Sentence("fits: {size} ({share}) to spare", size=Size(plan.headroom_bytes), share=share)

    @cached_property
    def bars(self) -> list[tuple[str, Markup]]:
        """The memory bar on a narrow and on a wide canvas."""
        plan = self.answer.shown
        if plan is None:
            return []
        return [
            (name, Markup(charts.memory_bar(plan, self.lang, width)))
            for name, width in (("narrow", NARROW), ("wide", WIDE))
        ]

    @cached_property
    def curves(self) -> list[tuple[str, Markup]]:
        """Memory against micro-batch on both."""
        curve = self.answer.first.curve
        if curve is None:
            return []
        return [
            (name, Markup(charts.memory_curve(curve, self.lang, width)))
            for name, width in (("narrow", NARROW), ("wide", WIDE))
        ]

    @property
    def parts(self) -> list[Part]:
        """The bar as a table."""
        plan = self.answer.shown
        if plan is None:
            return []
        found: list[Part] = []
        for each in charts.segments(plan):
            if each.kind and not (found and found[-1].within):
                whole = plan.parts["activations"]
                found.append(self._part("activations", charts.PART_NAMES["activations"], whole, plan))
            found.append(self._part(each.style, each.label, each.nbytes, plan, within=bool(each.kind)))
        return found

    def _part(self, style: str, label: Sentence, nbytes: int, plan: Plan, within: bool = False) -> Part:
        share = percent(nbytes / plan.capacity_bytes, self.lang)
        return Part(style, in_language(label, self.lang), self.size(nbytes), share, within)

    @property
    def ledger(self) -> list[Held]:
        """The lines of the model that hold most for backward, as far as the profile tells."""
        profile, plan = self.answer.profile, self.answer.shown
        if profile is None or plan is None:
            return []
        # The ledger of a range is of its longest samples, and nearly all in it is as long as they are.
        span = profile.seq_len
        share = plan.seq_len / span.maximum if span and plan.seq_len else 1.0
        entries = sorted(profile.ledger, key=lambda entry: -entry.bytes_per_sample)[:LEDGER_LINES]
        return [
            Held(_place(entry.where), entry.code, self.size(round(entry.bytes_per_sample * share)))
            for entry in entries
            if entry.bytes_per_sample > 0
        ]

    @cached_property
    def worked(self) -> list[Worked]:
        """How the numbers of the plan that is drawn come about."""
        return worked(self.answer, self.lang)

    @cached_property
    def rows(self) -> list[Row]:
        """The ranked plans."""
        return [self._row(plan) for plan in self.answer.first.plans]

    @cached_property
    def nearest(self) -> list[tuple[Row, str]]:
        """The nearest plans with the reason that each is named for."""
        return [
            (self._row(near.plan), in_language(near.why, self.lang)) for near in self.answer.first.nearest
        ]

    @property
    def drifts(self) -> bool:
        """Whether any plan shown misses the target."""
        return any(plan.drift for plan in self.answer.first.plans)

    @property
    def timed(self) -> bool:
        """Whether times can be told."""
        best = self.answer.first.best
        return best is not None and best.relative_step_time is not None

    def _row(self, plan: Plan) -> Row:
        reserved, time = plan.peak_reserved_bytes, plan.relative_step_time
        pins = {name: str(getattr(plan, name)) for name in ("micro_batch", "accumulation_steps", "replicas")}
        return Row(
            batch=isolated(plan.batch, self.lang),
            effective=self.number(plan.effective_batch),
            drift=signed(plan.drift, self.lang),
            sharding=named("sharding", plan.sharding, self.lang),
            checkpointing=named("checkpointing", plan.checkpointing, self.lang),
            allocated=self.size(plan.peak_allocated_bytes),
            reserved="–" if reserved is None else self.size(reserved),
            free=self.size(plan.headroom_bytes),
            verdict=in_language(VERDICT_NAMES[plan.verdict], self.lang),
            style=plan.verdict.replace(" ", "-"),
            time="–"
            if time is None
            else isolated(format_number(time, self.lang, min_fraction=2, max_fraction=2) + "×", self.lang),
            binds=in_language(PHASE_NAMES[plan.binding_phase], self.lang),
            query=self.state.query(
                **pins, sharding=plan.sharding, checkpointing=plan.checkpointing, gpus=str(self.first_gpus)
            ),
        )

    @property
    def first_gpus(self) -> int:
        """The number of GPUs of the answer shown in full."""
        return self.answer.first.gpus

    @cached_property
    def counts(self) -> list[CountRow]:
        """The batch on other numbers of GPUs."""
        return [
            CountRow(
                self.number(row.gpus),
                self.state.query(gpus=str(row.gpus), replicas=None),
                row.gpus == self.first_gpus,
                self._row(row.plan) if row.plan else None,
                in_language(row.why, self.lang),
            )
            for row in self.answer.counts
        ]

    @property
    def notes(self) -> list[Text]:
        """What binds, and what is free."""
        return [self._text(note) for note in self.answer.first.notes]

    @property
    def per_sample(self) -> str:
        """What a number for each sample is headed by."""
        return in_language(self.state.samples.each, self.lang)

    @property
    def timing(self) -> str:
        """What the times of plans are, beside their table. Those of a model of one's own open as no link: none can hold
        the model, and buttons send it along."""
        each = self.state.samples.each
        if self.state.source == "own":
            text = Sentence("Time is {each}, the fastest plan being 1.", each=each)
        else:
            text = Sentence(
                "Time is {each}, the fastest plan being 1. Each plan opens as a link of its own.", each=each
            )
        return in_language(text, self.lang)

    @property
    def ready_notes(self) -> list[tuple[str, Markup]]:
        """What the framework cannot be told, or is told in another way: the setting's name, and what to do."""
        ready = self.answer.ready
        return [(note.field, marked_up(note.text, self.lang)) for note in ready.notes] if ready else []

    @property
    def assumptions(self) -> list[Text]:
        """What the numbers take for granted."""
        return [self._text(understood(text)) for text in self.answer.first.assumptions]

    @property
    def changes(self) -> list[Change]:
        """What would make it fit, or faster."""
        return [Change(self._text(each.text), self._following(each)) for each in self.answer.first.advice]

    def _following(self, advice: Advice) -> str:
        """The state with the advice followed; empty where it is no single option."""
        changed: dict[str, str | None] = {}
        for option in advice.options:
            name, _, value = option.removeprefix("--").partition(" ")
            changed[name.replace("-", "_")] = None if advice.change.startswith("unpin") else value
        return self.state.query(**changed) if changed else ""

    @property
    def cards(self) -> list[tuple[str, list[Card]]]:
        """The cards on which it fits, by memory."""
        found: dict[str, list[Card]] = {}
        for gpu in sorted(self.answer.cards, key=lambda gpu: gpu.marketed_gb):
            memory = f"{gpu.marketed_gb}\N{NO-BREAK SPACE}GB"
            found.setdefault(memory, []).append(Card(gpu.name, self.state.query(gpu=gpu.id)))
        return list(found.items())

    def _text(self, text: str) -> Text:
        foreign = "" if is_translated(text, self.lang) else "en"
        return Text(in_language(text, self.lang), foreign)

    # ---- Numbers ------------------------------------------------------------------------------------------

    def number(self, value: float) -> str:
        """A number as the page's language writes it."""
        return format_number(value, self.lang)

    def size(self, nbytes: int) -> str:
        """Bytes as the page's language writes them."""
        return isolated(size(nbytes, self.lang).replace(" ", "\N{NO-BREAK SPACE}"), self.lang)
