"""What the planner answers to a state: for the page, its JSON twin and its downloads."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from batchfit import charts
from batchfit.errors import BadInput
from batchfit.frameworks import Emitted
from batchfit.gpus import Gpu
from batchfit.planning import Plan, Plans, Situation, answer
from batchfit.planning.advice import best_of
from batchfit.planning.asked import as_data, first_that_fits, situation_of
from batchfit.planning.cards import fitting_cards
from batchfit.planning.gpu_counts import Elastic, ElasticRow
from batchfit.planning.nearest import beside, in_memory
from batchfit.planning.options import options, sharded
from batchfit.planning.traits import checkpointing_of
from batchfit.profile import MemoryProfile
from batchfit.ready import as_data as ready_as_data
from batchfit.ready import emitted
from batchfit.web.plan_state import MOST_GPUS, PlanState, top_of

#: Batches within the tolerance, and numbers of replicas, that are tried for one request at most: what people ask for
#: leaves some hundreds and some ten.
MOST_BATCHES = 20_000
MOST_REPLICA_COUNTS = 64

#: The framework whose settings are shown where none is chosen: the one that most people train with.
USUAL_FRAMEWORK = "trainer"


@dataclass
class PlanAnswer:
    """The answers to a state, one for each number of GPUs. Without any, the state says what is wrong."""

    state: PlanState
    situations: list[Situation] = field(default_factory=list)
    answers: list[Plans] = field(default_factory=list)

    @property
    def first(self) -> Plans:
        """The answer that is shown in full."""
        return first_that_fits(self.answers)

    @property
    def situation(self) -> Situation:
        """What `first` answers."""
        return next(
            each for each, found in zip(self.situations, self.answers, strict=True) if found is self.first
        )

    @property
    def shown(self) -> Plan | None:
        """The plan whose memory is drawn: the best, or the nearest where nothing fits."""
        first = self.first
        return first.best or (first.nearest[0].plan if first.nearest else None)

    @property
    def profile(self) -> MemoryProfile | None:
        """The profile of one replica of the plan that is drawn."""
        plan = self.shown
        if plan is None:
            return None
        (whole,) = (each for each in self.situation.chosen if checkpointing_of(each) == plan.checkpointing)
        return sharded(whole, plan.sharding, plan.replicas)

    @cached_property
    def counts(self) -> tuple[ElasticRow, ...]:
        """The batch on other numbers of GPUs: on those asked for, or on fewer and more, all of them used."""
        if len(self.answers) > 1:
            return Elastic(tuple(self.answers)).rows
        request = self.situation.request
        if request.replicas is not None or request.sharding == "none":
            return ()
        tried = {max(1, request.gpus * 2**power // 4) for power in range(5)} | {request.gpus}
        return tuple(self._on(gpus) for gpus in sorted(tried) if gpus <= MOST_GPUS)

    def _on(self, gpus: int) -> ElasticRow:
        best = self.first.best
        if best is not None and best.replicas == gpus == self.first.gpus:
            return ElasticRow(gpus, best, "")
        asked = replace(self.situation.request, gpus=gpus, replicas=gpus)
        found = options(self.situation.chosen, asked)
        if (best := best_of(found, asked)) is not None:
            return ElasticRow(gpus, best, "")
        nearest = beside(found, asked) or in_memory(found, asked)
        return ElasticRow(gpus, nearest[0].plan, nearest[0].why) if nearest else ElasticRow(gpus, None, "")

    @cached_property
    def cards(self) -> tuple[Gpu, ...]:
        """The cards on which it fits in the same number."""
        return fitting_cards(self.situation)

    @property
    def framework(self) -> str:
        """The framework whose settings are shown: the one asked for, or the usual one."""
        return str(self.state.wanted.get("emit", USUAL_FRAMEWORK))

    @cached_property
    def ready(self) -> Emitted | None:
        """The best plan as settings of the framework, with comments in the page's language."""
        if self.first.best is None:
            return None
        return emitted(self.framework, self.first, self.state.loaded_as, self.state.lang)

    def as_data(self) -> dict[str, Any]:
        """What `batchfit plan --json` prints for the state's command. Raises BadInput where a file is asked for and
        there is no plan to make it of."""
        ready = None
        if (framework := self.state.wanted.get("emit")) is not None:
            ready = ready_as_data(framework, emitted(framework, self.first, self.state.loaded_as))
        return as_data(self.answers, ready)

    def as_csv(self) -> str:
        """The plans, a row each."""
        records = self.first.records()
        columns = list(dict.fromkeys(name for record in records for name in record))
        file = io.StringIO()
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(records)
        return file.getvalue()

    @property
    def pictures(self) -> tuple[str, ...]:
        """The names of the pictures that can be downloaded."""
        return tuple(charts.pictures_of(self.first))

    def picture(self, name: str) -> str | None:
        """One of them as a complete SVG file; None where there is none of that name."""
        draw = charts.pictures_of(self.first, self.state.lang).get(name)
        return None if draw is None else charts.standalone(draw())


def answer_to(state: PlanState) -> PlanAnswer:
    """Plans what a state asks. What the planner cannot use is noted in the state; then there are no answers."""
    try:
        profiles = state.profiles
        if state.wrong or not profiles:
            return PlanAnswer(state)
        situations = [_bounded(situation_of(profiles, state.wanted, count)) for count in state.counts]
        answers = [answer(situation, top_of(state)) for situation in situations]
    except BadInput as wrong:
        state.add(wrong)
        return PlanAnswer(state)
    return PlanAnswer(state, situations, answers)


def _bounded(situation: Situation) -> Situation:
    """The situation, if a server can afford it. Raises BadInput on what leaves too much open."""
    target = situation.request.target
    if target.high - target.low > MOST_BATCHES:
        raise BadInput(
            "tolerance",
            "leaves {count} batches to try, of which at most {limit} are tried here; narrow it",
            count=target.high - target.low,
            limit=MOST_BATCHES,
        )
    open_counts = len(situation.request.replica_counts())
    if open_counts > MOST_REPLICA_COUNTS:
        raise BadInput(
            "gpus",
            "leaves {count} numbers of GPUs to try, of which at most {limit} are tried here; say how many are used",
            count=open_counts,
            limit=MOST_REPLICA_COUNTS,
        )
    return situation
