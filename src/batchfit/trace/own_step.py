"""A person's own whole optimizer step, run as it is; and whether its memory grows with the accumulation steps."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from batchfit.errors import BadInput
from batchfit.trace.errors import explained
from batchfit.trace.gpu import Gpu
from batchfit.trace.job import adopt
from batchfit.trace.keepers import Keeper, Variables
from batchfit.trace.protocol import WholeStep
from batchfit.trace.step import STEPS
from batchfit.trace.timeline import ALLOC, BLOCK_BYTES, FREE, MARK, Frame, Timeline
from batchfit.trace.tracker import Tracker, true_tensors

#: Accumulation steps compared, and the micro-batch they are compared at.
_FEW, _MANY, _MICRO_BATCH = 2, 6, 8


@dataclass(frozen=True, slots=True)
class Holder:
    """A line of code whose results stay alive from one micro-batch to the next."""

    frame: Frame
    nbytes: int
    storages: int

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.frame.file}:{self.frame.line}"

    @property
    def code(self) -> str:
        """The line's text."""
        return linecache.getline(self.frame.file, self.frame.line).strip()


@dataclass(frozen=True, slots=True)
class Flatness:
    """Whether the peak of a step depends on its accumulation steps.

    `growth_bytes` is what each further micro-batch adds to the peak; `holders` are the lines whose results each one
    leaves alive, the most first, in bytes a micro-batch; `deferred` says that backward of a micro-batch has not run
    when the next one begins, so that its whole graph is kept.
    """

    flat: bool
    growth_bytes: int
    deferred: bool
    holders: tuple[Holder, ...]
    #: The step's variables that hold more with each micro-batch, where they are found.
    keepers: tuple[Keeper, ...] = ()

    def __str__(self) -> str:
        if self.flat:
            return "the step's memory does not depend on the number of accumulation steps"
        why = (
            "backward is put off, so every micro-batch's graph stays alive"
            if self.deferred
            else "results of each micro-batch stay alive"
        )
        text = f"each further accumulation step adds {self.growth_bytes:,} bytes: {why}"
        if self.holders:
            first = self.holders[0]
            text += f"; the most by {first.where} `{first.code}` ({first.nbytes:,} bytes a micro-batch)"
        return "; ".join([text, *map(str, self.keepers)])


class OwnStep:
    """A WholeStep on the pretended GPU. It stands where a Job does."""

    def __init__(self, step: WholeStep, gpu: Gpu) -> None:
        self.model = step.model
        self._step = step.step
        self._gpu = gpu
        self._optimizers: dict[torch.optim.Optimizer, None] = {}
        self._warm_up()

    def _warm_up(self) -> None:
        """Runs the step once, so that the optimizer has its state; every later run is like any other."""
        if any(not p.is_meta for p in self.model.parameters()):
            raise BadInput(
                "model",
                "has weights already, and the step would train them; give the function that makes model and step "
                "instead: batchfit.trace(function), or FILE.py:FUNCTION",
            )

        def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
            self._optimizers[optimizer] = None

        hook = register_optimizer_step_pre_hook(note)
        try:
            with self._gpu.watched() as tracker, explained():
                tracker.paths.know(self.model)
                self._step(_MICRO_BATCH, 1)
        finally:
            hook.remove()

    def timeline(
        self, micro_batch: int, steps: Iterable[int] = STEPS, variables: Variables | None = None
    ) -> Timeline:
        """Runs the person's step with each of the accumulation steps in `steps`; looks at its `variables` meanwhile."""
        with ExitStack() as stack:
            tracker = stack.enter_context(self._gpu.watched())
            marks = _Marks(self.model, tracker, variables)
            stack.enter_context(marks.following())
            stack.enter_context(explained())
            adopt(self.model, tracker)
            self._adopt_states(tracker)
            for number, micros in enumerate(steps):
                marks.begin(number)
                self._step(micro_batch, micros)
            tracker.mark("end", number)
            tracker.close()
        return tracker.timeline

    def _adopt_states(self, tracker: Tracker) -> None:
        """Puts the optimizer's state and gradients that were not set to None on the timeline."""
        with true_tensors():
            for optimizer in self._optimizers:
                states = [value for state in optimizer.state.values() for value in state.values()]
                for value in states:
                    if isinstance(value, torch.Tensor) and value.is_meta:
                        tracker.adopt(value, "optimizer")
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    tracker.adopt(parameter.grad, "gradients")

    def flatness(self) -> Flatness:
        """Compares the step's peak at few and at many accumulation steps."""
        few = self.timeline(_MICRO_BATCH, (1, _FEW))
        many = self.timeline(_MICRO_BATCH, (1, _MANY))
        growth = (many.peak() - few.peak()) // (_MANY - _FEW)
        holders = _holders(many)
        if growth <= 0 or not holders:
            return Flatness(True, growth, False, ())
        # A run of its own: whoever looks at a frame's variables keeps them alive for a while.
        variables = Variables(self._step)
        self.timeline(_MICRO_BATCH, (1, _MANY), variables)
        return Flatness(False, growth, _is_deferred(many), holders, variables.keepers())

    def described(self) -> dict[str, Any]:
        """The settings as a profile holds them: the step is the person's, so nothing was asked for."""
        return {"step": "own"}

    def tokens(self) -> int | None:
        """Unknown: the step makes its own batches."""
        return None

    def assumptions(self) -> tuple[str, ...]:
        """Whether the step's memory is flat in the accumulation steps; the profile's lines are of two."""
        return (str(self.flatness()),)


class _Marks:
    """Tells the tracker what the person's loop does, from what it calls: the model, backward, the optimizer."""

    def __init__(self, model: torch.nn.Module, tracker: Tracker, variables: Variables | None = None) -> None:
        self._model = model
        self._variables = variables
        self._tracker = tracker
        self._step = 0
        self._micro = -1
        self._called = False

    def begin(self, step: int) -> None:
        """The person's step is called."""
        self._step, self._micro = step, -1
        self._tracker.mark("begin", step)
        self._next_micro()

    def _next_micro(self) -> None:
        self._micro += 1
        self._called = False
        self._tracker.mark("forward", self._step, self._micro)

    @contextmanager
    def following(self) -> Iterator[None]:
        """In here the loop is followed."""
        with ExitStack() as stack:
            backward = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

            def marked(*args: Any, **kwargs: Any) -> Any:
                self._tracker.mark("backward", self._step, self._micro)
                result = backward(*args, **kwargs)
                for parameter in self._model.parameters():
                    if parameter.grad is not None:
                        self._tracker.label(parameter.grad, "gradients")
                self._tracker.mark("between", self._step, self._micro)
                return result

            stack.enter_context(mock.patch("torch.autograd._engine_run_backward", marked))
            hooks = (
                self._model.register_forward_pre_hook(lambda *_: self._entered()),
                register_optimizer_step_pre_hook(lambda *_: self._tracker.mark("optimizer", self._step)),
                register_optimizer_step_post_hook(lambda *_: self._tracker.mark("zero_grad", self._step)),
            )
            for hook in hooks:
                stack.callback(hook.remove)
            yield

    def _entered(self) -> None:
        """The model is called: again, unless it is the first call since the step began."""
        if self._called:
            self._next_micro()
            if self._variables is not None:
                self._variables.look()
        self._called = True


def _micro_begins(timeline: Timeline) -> list[int]:
    """Where the micro-batches of the last step begin."""
    last = max(mark.step for mark in timeline.marks)
    return [
        index
        for index, event in enumerate(timeline.events)
        if event.kind == MARK
        and timeline.marks[event.stack].phase == "forward"
        and timeline.marks[event.stack].step == last
    ]


def _is_deferred(timeline: Timeline) -> bool:
    """Whether a micro-batch of the last step begins before the one before it went backward."""
    last = max(mark.step for mark in timeline.marks)
    phases = [
        mark.phase for mark in timeline.marks if mark.step == last and mark.phase in ("forward", "backward")
    ]
    return any(a == b == "forward" for a, b in pairwise(phases))


def _holders(timeline: Timeline) -> tuple[Holder, ...]:
    """The lines whose results of one micro-batch are alive when the next but one begins."""
    begins = _micro_begins(timeline)
    born, until = begins[1], begins[3]
    alive: dict[int, tuple[int, int]] = {}
    for event in timeline.events[born:until]:
        if event.kind == ALLOC:
            alive[event.storage] = event.nbytes, event.stack
        elif event.kind == FREE:
            alive.pop(event.storage, None)
    found: dict[Frame, list[int]] = {}
    for storage, (nbytes, stack) in alive.items():
        frames = timeline.stacks[stack]
        # A list of losses, each a block of its own, is nothing to speak of.
        if (
            frames
            and nbytes > BLOCK_BYTES
            and timeline.categories[storage] in ("activations", "input", "buffers")
        ):
            found.setdefault(frames[0], []).append(nbytes)
    # Two micro-batches lie between the two places; what a line made but once is only a variable not yet overwritten.
    holders = [
        Holder(frame, sum(sizes) // 2, len(sizes) // 2) for frame, sizes in found.items() if len(sizes) > 1
    ]
    return tuple(sorted(holders, key=lambda holder: -holder.nbytes))
