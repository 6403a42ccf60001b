"""The chooser that finds a calculator's activation per sample in the catalogue, and leads back with it filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from urllib.parse import urlencode

from batchfit.bidi import isolated
from batchfit.calculator import Calculator
from batchfit.errors import BadInput
from batchfit.numbers import decimal_text
from batchfit.planning.result import CHECKPOINTING_NAMES, what_is_trained
from batchfit.planning.traits import Kind, checkpointing_of, choose, holding, kind_of, seq_len_for
from batchfit.profile import MemoryProfile
from batchfit.samples import samples_of
from batchfit.sentences import Sentence, in_language
from batchfit.units import UNITS
from batchfit.web.pages import REVALIDATE
from batchfit.web.plan_answer import PlanAnswer
from batchfit.web.plan_form import PlanForm, trained_name
from batchfit.web.plan_state import PlanState, read_plan_state, trained_of
from batchfit.web.plan_worked import source_of
from batchfit.web.shared import address
from batchfit.web.shelf import Shelf
from batchfit.web.site import Site
from batchfit.web.stored import Stored
from batchfit.wording import size

#: Where it is, below the planner.
SLUG = "plan/activation"
#: The calculators' field that it fills in, and the one beside it with its unit.
FIELD, UNIT = "activation_per_sample", "activation_per_sample_unit"
#: What is chosen here; every other field of the address is the calculator's, and goes back to it.
_CHOSEN = ("model", "trained", "lora", "quantize", "seq_len", "precision", "checkpointing")
#: Fields of a calculator that are kept at most, and the digits of the size that it gets.
_MOST_KEPT, _DIGITS = 16, 4


@dataclass(frozen=True, slots=True)
class Activation:
    """Bytes that one more sample adds, at a sequence length, and the profile that says so."""

    nbytes: int
    seq_len: int | None
    profile: MemoryProfile

    @property
    def filled_in(self) -> str:
        """The size as a calculator's address has it: GB, with as many digits as are worth reading."""
        value = Context(prec=_DIGITS, rounding=ROUND_HALF_UP).divide(Decimal(self.nbytes), UNITS["GB"])
        return decimal_text(value)


class ActivationView:
    """What the template shows of what was chosen."""

    def __init__(
        self, calculators: Mapping[str, Calculator], state: PlanState, query: Iterable[tuple[str, str]]
    ) -> None:
        self.state = state
        rest = [pair for pair in query if pair[0] not in (*_CHOSEN, FIELD, UNIT, "from")]
        #: The calculator to lead back to: the one that is said, if it asks for an activation per sample.
        self.calculator = calculators.get(dict(rest).get("to", "")) or next(iter(calculators.values()))
        #: What the calculator had, to be sent on and back.
        self.kept = [pair for pair in rest if pair[0] != "to"][:_MOST_KEPT]
        self.found = _found(state)

    @property
    def query(self) -> str:
        """The query that gives this state of the chooser."""
        pairs = self.state.pairs()
        chosen = [(name, pairs[name]) for name in _CHOSEN if name in pairs]
        return urlencode([("to", self.calculator.slug), *self.kept, *chosen])

    @property
    def size(self) -> str:
        """The size that is filled in."""
        if self.found is None:
            return ""
        return isolated(
            f"{size(self.found.nbytes, 'GB', self.state.lang)}\N{NO-BREAK SPACE}GB", self.state.lang
        )

    @property
    def sentence(self) -> str:
        """What was found, of what."""
        found = self.found
        if found is None:
            return ""
        entry = self.state.catalogue.find(self.state.model)
        return in_language(
            Sentence(
                "{what}: {one_more} in the micro-batch adds {size} to the peak ({precision}, {checkpointing}, "
                "{trained}).",
                one_more=samples_of(found.profile).one_more,
                what=what_is_trained(entry.title if entry else self.state.model, found.seq_len),
                size=self.size,
                precision=kind_of(found.profile).precision or "fp32",
                checkpointing=CHECKPOINTING_NAMES[checkpointing_of(found.profile)],
                trained=trained_name(trained_of(self.state.wanted)),
            ),
            self.state.lang,
        )

    @property
    def source(self) -> str:
        """Where it is from."""
        return in_language(source_of(self.found.profile), self.state.lang) if self.found else ""

    @property
    def back(self) -> str:
        """The calculator with the size filled in, where there is one."""
        filled = [(FIELD, self.found.filled_in)] if self.found else []
        return address(f"/{self.state.lang}/{self.calculator.slug}", urlencode([*self.kept, *filled]))


def activation_page(site: Site, lang: str, query: list[tuple[str, str]], origin: str) -> Stored:
    """The chooser in a state, on a shelf that has what it leads back to."""
    chosen = [pair for pair in query if pair[0] in _CHOSEN]
    state = read_plan_state(site.models, lang, chosen)
    view = ActivationView(asking(site.shelf), state, query)
    html = site.render(
        "plan_activation.html",
        lang,
        origin=origin,
        path=f"/{lang}/{SLUG}",
        form=PlanForm(PlanAnswer(state)),
        view=view,
        preload=site.assets.with_imports("plan.js"),
        switch={other: address(f"/{other}/{SLUG}", view.query) for other in site.languages},
    )
    return Stored(html.encode(), "text/html", state.status, REVALIDATE)


def asking(shelf: Shelf) -> dict[str, Calculator]:
    """The calculators that ask for the activation per sample, by slug."""
    return {each.slug: each for each in shelf if any(field.name == FIELD for field in each.all_fields)}


def _found(state: PlanState) -> Activation | None:
    """The activation per sample of what is chosen; None, with a note in the state, where there is none."""
    if state.wrong or not state.profiles:
        return None
    wanted = state.wanted
    kind = Kind(wanted.get("precision"), None, wanted.get("lora"), wanted.get("quantize"))
    try:
        profile = choose(holding(state.profiles, wanted.get("seq_len")), kind, wanted.get("checkpointing"))[0]
        seq_len = seq_len_for(profile, wanted.get("seq_len"))
        return Activation(profile.activation_at(seq_len), seq_len, profile)
    except BadInput as wrong:
        state.add(wrong)
        return None
