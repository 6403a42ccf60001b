"""What planning answers: plans, the nearest where none reaches the target, and advice. Data that prints itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from batchfit.palette import style_of
from batchfit.planning.fit import Capacity, Verdict
from batchfit.planning.sensitivity import Curve
from batchfit.planning.target import Target
from batchfit.planning.throughput import StepTime, measured_error, spent
from batchfit.sentences import Counted, Sentence, Size
from batchfit.units import format_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to train the batch, what memory it takes on each GPU and how fast it is.

    Bytes are per GPU. `drift` is in samples, positive where the effective batch is larger than the target.
    `peak_reserved_bytes` is None where the profile was never replayed through the allocator. `headroom_bytes` is what
    stays free of `capacity_bytes`, negative where that is too little. `relative_step_time` is time per sample over
    that of the fastest plan shown, None where no time can be told; `time` is at best, see `planning.throughput`.
    """

    micro_batch: int
    accumulation_steps: int
    replicas: int
    effective_batch: int
    drift: int
    sharding: str
    checkpointing: str
    precision: str | None
    optimizer: str | None
    lora_rank: int | None
    quantize: str | None
    attention: str | None
    seq_len: int | None
    gpu: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    capacity_bytes: int
    verdict: Verdict
    binding_phase: str
    binding_where: str
    parts: dict[str, int]
    relative_step_time: float | None = None
    time: StepTime | None = None
    #: Bytes of activations by kind of layer, summing to that part; empty where the profile does not tell.
    activations: Mapping[str, int] = field(default_factory=dict)

    @property
    def headroom_bytes(self) -> int:
        """What stays free."""
        return self.capacity_bytes - (self.peak_reserved_bytes or self.peak_allocated_bytes)

    @property
    def seconds_per_sample(self) -> float | None:
        """Seconds of an optimizer step per sample, all GPUs together; None where no time can be told."""
        return self.time.seconds / self.effective_batch if self.time else None

    @property
    def tokens(self) -> int | None:
        """Tokens per optimizer step, where samples are sequences."""
        return self.effective_batch * self.seq_len if self.seq_len else None

    @property
    def option(self) -> tuple[str, str, int]:
        """Sharding, checkpointing and replicas: which of the options it is of."""
        return self.sharding, self.checkpointing, self.replicas

    @property
    def batch(self) -> str:
        """ "4 × 8 × 8": micro-batch, steps, replicas."""
        return f"{self.micro_batch} × {self.accumulation_steps} × {self.replicas}"

    def to_dict(self) -> dict[str, Any]:
        """The plan as data for JSON."""
        return {
            "micro_batch": self.micro_batch,
            "accumulation_steps": self.accumulation_steps,
            "replicas": self.replicas,
            "effective_batch": self.effective_batch,
            "drift": self.drift,
            "sharding": self.sharding,
            "checkpointing": self.checkpointing,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "capacity_bytes": self.capacity_bytes,
            "headroom_bytes": self.headroom_bytes,
            "verdict": self.verdict,
            "binding_phase": self.binding_phase,
            "binding_where": self.binding_where,
            "relative_step_time": self.relative_step_time,
            "precision": self.precision,
            "optimizer": self.optimizer,
            "lora_rank": self.lora_rank,
            "quantize": self.quantize,
            "attention": self.attention,
            "seq_len": self.seq_len,
            "gpu": self.gpu,
            "parts_bytes": dict(self.parts),
            "activations": kinds_as_data(self.activations),
            "time": spent(self.time) if self.time else None,
        }

    def __str__(self) -> str:
        return str(self.summary)

    @property
    def summary(self) -> Sentence:
        """The plan in a line: "4 × 8 × 8 = 256 (zero2, no checkpointing): 61.2 GiB allocated, fits"."""
        return Sentence(
            "{batch} = {effective} ({how}): {memory}, {verdict}",
            batch=self.batch,
            effective=self.effective_batch,
            how=self.how,
            memory=self.memory,
            verdict=VERDICT_NAMES[self.verdict],
        )

    @property
    def how(self) -> Sentence:
        """Sharding and checkpointing in a few words."""
        kind = CHECKPOINTING_NAMES[self.checkpointing]
        if self.sharding == "none":
            return kind
        return Sentence("{sharding}, {checkpointing}", sharding=self.sharding, checkpointing=kind)

    @property
    def memory(self) -> Sentence:
        """The number and its range: "61.2 GiB allocated, 64.8 GiB reserved"."""
        allocated = Size(self.peak_allocated_bytes)
        if self.peak_reserved_bytes is None:
            return Sentence("{allocated} allocated", allocated=allocated)
        reserved = Size(self.peak_reserved_bytes)
        return Sentence("{allocated} allocated, {reserved} reserved", allocated=allocated, reserved=reserved)


def kinds_as_data(activations: Mapping[str, int]) -> dict[str, int]:
    """Activations by kind of layer for JSON: {"logits_and_loss_bytes": 123}."""
    return {f"{style_of(kind).replace('-', '_')}_bytes": nbytes for kind, nbytes in activations.items()}


@dataclass(frozen=True, slots=True)
class Nearest:
    """A plan beside the target, and why it is named: "below", "above" (its batch) or "memory" (its peak)."""

    side: str
    why: str
    plan: Plan

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON: the plan with the reason beside it."""
        return {"side": self.side, "why": self.why, **self.plan.to_dict()}


@dataclass(frozen=True, slots=True)
class Advice:
    """One change, what it would bring as planning again with it found, and the options that ask for it."""

    change: str
    text: str
    options: tuple[str, ...]
    plan: Plan | None = None

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return {
            "change": self.change,
            "text": self.text,
            "options": list(self.options),
            "plan": self.plan.to_dict() if self.plan else None,
        }


@dataclass(frozen=True, slots=True)
class Plans:
    """The answer: plans that fit, best first, the nearest where the target is not met, and what to change. `front`
    are the plans that no other beats in both memory and time; `curve` is memory against micro-batch for the first
    plan, or the nearest; `considered` counts the candidates that fit.

    Iterates over the plans; prints as a table; `records()` go into a data frame.
    """

    model: str
    target: Target
    gpu: str
    gpus: int
    seq_len: int | None
    plans: tuple[Plan, ...]
    front: tuple[Plan, ...]
    nearest: tuple[Nearest, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]
    capacity: Capacity
    curve: Curve | None = None
    assumptions: tuple[str, ...] = ()
    time_sources: tuple[str, ...] = ()
    considered: int = 0

    @property
    def best(self) -> Plan | None:
        """The first plan, None where nothing fits."""
        return self.plans[0] if self.plans else None

    @property
    def sentence(self) -> Sentence:
        """The answer in one sentence."""
        best = self.best
        if best is not None:
            return self._reached(best)
        asked = {
            "target": self.target.said,
            "what": what_is_trained(self.model, self.seq_len),
            "cards": f"{self.gpus} × {self.gpu}",
        }
        if any(near.plan.verdict != "does not fit" for near in self.nearest):
            return Sentence("{target} of {what} cannot be reached exactly on {cards}.", **asked)
        return Sentence("{target} of {what} do not fit on {cards}.", **asked)

    def _reached(self, best: Plan) -> Sentence:
        unused: str = ""
        if best.replicas != self.gpus:
            unused = Sentence("; {used} of the {all} GPUs are used", used=best.replicas, all=self.gpus)
        parts = {
            "micro_batch": best.micro_batch,
            "steps": Counted("{n} accumulation step", "{n} accumulation steps", best.accumulation_steps),
            "gpus": Counted("{n} GPU", "{n} GPUs", best.replicas),
            "effective": self.target.kind.counted(best.effective_batch),
            "what": what_is_trained(self.model, self.seq_len),
            "memory": best.memory,
            "capacity": Size(best.capacity_bytes),
            "unused": unused,
        }
        if best.verdict == "tight":
            return Sentence(
                "{micro_batch} per GPU × {steps} × {gpus} = {effective} of {what}: {memory} of {capacity}, "
                "which only just fits{unused}.",
                **parts,
            )
        return Sentence(
            "{micro_batch} per GPU × {steps} × {gpus} = {effective} of {what}: {memory} of {capacity}, "
            "which fits{unused}.",
            **parts,
        )

    def to_dict(self) -> dict[str, Any]:
        """The answer as data for JSON."""
        return {
            "plans": [plan.to_dict() for plan in self.plans],
            "nearest": [near.to_dict() for near in self.nearest],
            "advice": [advice.to_dict() for advice in self.advice],
            "front": [plan.to_dict() for plan in self.front],
            "notes": list(self.notes),
            "sentence": self.sentence,
            "target": {
                "samples": self.target.samples,
                "low": self.target.low,
                "high": self.target.high,
                "tokens": self.target.tokens,
            },
            "capacity": {
                "total_bytes": self.capacity.total_bytes,
                "context_bytes": self.capacity.context_bytes,
                "communication_bytes": self.capacity.communication_bytes,
                "headroom_bytes": self.capacity.headroom_bytes,
                "headroom_reason": self.capacity.headroom_reason,
            },
            "assumptions": list(self.assumptions),
            "time_error": measured_error(),
            "time_sources": list(self.time_sources),
            "considered": self.considered,
        }

    def records(self) -> list[dict[str, Any]]:
        """One flat record for each plan, for `pandas.DataFrame(plans.records())`."""
        flat = []
        for plan in self.plans:
            record = plan.to_dict()
            record |= {f"{part}_bytes": size for part, size in record.pop("parts_bytes").items()}
            record |= {f"activations_{kind}": size for kind, size in record.pop("activations").items()}
            record |= record.pop("time") or {}
            flat.append(record)
        return flat

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, index: int) -> Plan:
        return self.plans[index]

    def __str__(self) -> str:
        rows = list(self.plans) or [near.plan for near in self.nearest]
        lines = [self.sentence, "", *_table([COLUMNS, *(cells(plan) for plan in rows)])]
        lines += [""] * bool(self.notes or self.advice)
        lines += self.notes + tuple(advice.text for advice in self.advice)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from batchfit import charts

        rows = list(self.plans) or [near.plan for near in self.nearest]
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in COLUMNS)
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells(p)) + "</tr>" for p in rows)
        said = "".join(f"<li>{escape(text)}</li>" for text in [*self.notes, *(a.text for a in self.advice)])
        bar = charts.standalone(charts.memory_bar(rows[0])) if rows else ""
        return (
            f"<p><strong>{escape(self.sentence)}</strong></p>{bar}"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><ul>{said}</ul>"
        )


#: The table's columns wherever it is shown.
COLUMNS = (
    "micro-batch",
    "steps",
    "GPUs",
    "batch",
    "drift",
    "sharding",
    "checkpointing",
    "allocated",
    "reserved",
    "free",
    "verdict",
    "time",
    "binds",
)

#: What the phases are called for people.
PHASE_NAMES = {
    "first_micro": Sentence("first micro-batch"),
    "later_micro": Sentence("later micro-batches"),
    "optimizer_step": Sentence("optimizer step"),
}

#: What verdicts and kinds of checkpointing are called for people.
VERDICT_NAMES: dict[str, Sentence] = {
    "fits": Sentence("fits"),
    "tight": Sentence("tight"),
    "does not fit": Sentence("does not fit"),
}
CHECKPOINTING_NAMES = {
    "none": Sentence("no checkpointing"),
    "selective": Sentence("selective checkpointing"),
    "full": Sentence("full checkpointing"),
}


def what_is_trained(model: str, seq_len: int | None) -> str:
    """The model, and how long its samples are: "llama-3.1-8b at 4,096 tokens"."""
    if not seq_len:
        return model
    return Sentence("{model} at {seq_len} tokens", model=model, seq_len=seq_len)


def cells(plan: Plan) -> tuple[str, ...]:
    """A plan as the texts of one row."""
    reserved = plan.peak_reserved_bytes
    return (
        f"{plan.micro_batch:,}",
        f"{plan.accumulation_steps:,}",
        f"{plan.replicas:,}",
        f"{plan.effective_batch:,}",
        f"{plan.drift:+,}" if plan.drift else "0",
        plan.sharding,
        plan.checkpointing,
        format_bytes(plan.peak_allocated_bytes),
        "–" if reserved is None else format_bytes(reserved),
        format_bytes(plan.headroom_bytes),
        plan.verdict,
        "–" if plan.relative_step_time is None else f"{plan.relative_step_time:.2f}×",
        PHASE_NAMES.get(plan.binding_phase, plan.binding_phase),
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
