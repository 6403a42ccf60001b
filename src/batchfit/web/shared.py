"""A page in a state, as others are shown it: what links, embeds, previews and printed pages have to know of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from markupsafe import Markup

from batchfit.calculator import Calculator, Cards, Curve, Section, Stack, Table
from batchfit.languages import SOURCE
from batchfit.web import card_images, cards, embedding
from batchfit.web.embedding import EmbedOptions
from batchfit.web.instrument import Instrument
from batchfit.web.plan_form import FORM, FURTHER
from batchfit.web.plan_view import PlanView
from batchfit.web.qr import inline_qr
from batchfit.web.site import translator

#: The planner's name in addresses, which no calculator may have.
PLAN = "plan"

#: The home page's: it has the planner in brief.
HOME = ""


@dataclass(frozen=True, slots=True)
class Target:
    """A way to share: where it leads with the page's address and its answer put in. A brand has the same name in
    every language."""

    name: str
    pattern: str
    brand: bool = True

    def href(self, url: str, text: str) -> str:
        """The address, with {url} and {text} filled in."""
        return self.pattern.format(url=quote(url, safe=""), text=quote(text, safe=""))


TARGETS = (
    Target("X", "https://x.com/intent/post?text={text}&url={url}"),
    Target("Facebook", "https://www.facebook.com/sharer/sharer.php?u={url}"),
    Target("LINE", "https://social-plugins.line.me/lineit/share?url={url}&text={text}"),
    Target("E-mail", "mailto:?subject={text}&body={url}", brand=False),
)

# What an embed takes, in pixels, for frames without the script that measures it.
_AROUND = 110  # its title and the link to the page
_FIELD = 125  # a field with its help
_FIELD_ALONE = 90  # one of the planner, of which some stand side by side
_RESULT = 130
_PICTURE = 400
_CURVE = 450
_STACK = 200
_CARDS = 500
_TABLE = 110  # its title and head
_ROW = 50
_ANSWER = 330  # the planner's sentence with the memory bar
_SIDE_BY_SIDE = 672  # from this width on, inputs and answer stand side by side


def address(path: str, query: str = "") -> str:
    """A path with its query, where there is one."""
    return f"{path}?{query}" if query else path


@dataclass(frozen=True, slots=True)
class Shared:
    """A page in a state.

    slug    the name in addresses of what it shows, which embeds and pictures have
    page    that of the page, where it is another
    english what it is, in English: the catalogues have it in other languages
    answer  the result in one sentence; empty where there is none
    query   the query that gives the state, as short as it can be
    inputs, results, below    what the height of an embed is made of: pixels above each other
    """

    origin: str
    lang: str
    slug: str
    english: str
    answer: str
    query: str
    inputs: int
    results: int
    below: int = 0
    page: str | None = None
    options: EmbedOptions = field(default_factory=EmbedOptions)

    @property
    def title(self) -> str:
        """What it is, in its language."""
        return translator(self.lang)(self.english)

    @property
    def path(self) -> str:
        """The page's path."""
        return self.path_in(self.lang)

    def path_in(self, lang: str) -> str:
        """The page's path in another language."""
        return f"/{lang}/{self.slug if self.page is None else self.page}"

    @property
    def usual_path(self) -> str:
        """The page's path where no language is asked for."""
        return "/" if self.page == HOME else self.path_in(SOURCE)

    @property
    def url(self) -> str:
        """The link that people share."""
        return self.origin + address(self.path, self.query)

    @property
    def text(self) -> str:
        """What is said beside the link."""
        return self.answer or self.title

    @property
    def embed_url(self) -> str:
        """The page for other people's pages."""
        options = urlencode(self.options.pairs(), safe=",")
        query = "&".join(filter(None, (self.query, options)))
        return self.origin + address(f"/embed/{self.lang}/{self.slug}", query)

    @property
    def card_url(self) -> str:
        """The picture for link previews; empty where none can be drawn."""
        if not card_images.available():
            return ""
        return self.origin + address(f"/og/{self.lang}/{self.slug}.png", self.query)

    @property
    def card_size(self) -> tuple[int, int]:
        """That picture's width and height, in pixels."""
        return cards.WIDTH, cards.HEIGHT

    @property
    def qr_path(self) -> str:
        """Where QR codes of the page's links are made."""
        return f"/qr{self.path}.svg"

    @property
    def qr(self) -> Markup:
        """The link as a QR code."""
        return inline_qr(self.url)

    @property
    def data_path(self) -> str:
        """The answer as data."""
        return address(f"/{self.lang}/{self.slug}.json", self.query)

    @property
    def text_path(self) -> str:
        """The page as Markdown; empty where there is none."""
        return "" if self.slug == PLAN else address(f"{self.path}.md", self.query)

    def oembed_url(self, format: str) -> str:  # noqa: A002 - oEmbed's own word
        """Where those who embed the page by its link ask for the code."""
        return f"{self.origin}/oembed?{urlencode({'url': self.url, 'format': format})}"

    @property
    def embed_code(self) -> str:
        """The HTML that embeds it."""
        return embedding.code(self.embed_url, self.title, self.height(None), f"{self.origin}/embed.js")

    @property
    def targets(self) -> list[tuple[Target, str]]:
        """The ways to share it, with their addresses."""
        return [(target, target.href(self.url, self.text)) for target in TARGETS]

    def in_languages(self, languages: Iterable[str]) -> dict[str, str]:
        """The same state in each language."""
        return {other: address(self.path_in(other), self.query) for other in languages}

    def height(self, width: int | None) -> int:
        """About what an embed of that width takes, in pixels; None stands for a wide one."""
        side_by_side = width is None or width >= _SIDE_BY_SIDE
        inner = max(self.inputs, self.results) if side_by_side else self.inputs + self.results
        return _AROUND + inner + self.below


def of_calculator(instrument: Instrument, origin: str, options: EmbedOptions | None = None) -> Shared:
    """A calculator's page."""
    calculator, state = instrument.calculator, instrument.state
    return Shared(
        origin=origin,
        lang=state.lang,
        slug=calculator.slug,
        english=calculator.title,
        answer=instrument.answer,
        query=state.query(),
        inputs=_FIELD * (len(state.applying) + sum(map(state.offers, calculator.presets))),
        results=_RESULT * len(calculator.outputs) + (_PICTURE if instrument.picture else 0),
        below=sum(_section_height(section, calculator) for section in calculator.sections),
        options=options or EmbedOptions(),
    )


def _section_height(section: Section, calculator: Calculator) -> int:
    if isinstance(section, Table):
        return _TABLE + _ROW * len(section.values or calculator.field(section.over).choices)
    return {Curve: _CURVE, Stack: _STACK, Cards: _CARDS}[type(section)]


def of_plan(
    view: PlanView, origin: str, options: EmbedOptions | None = None, page: str | None = None
) -> Shared:
    """The planner's page, or another one that has the planner."""
    asked = len(FORM) - len(FURTHER) if options is None or options.show is None else len(options.show)
    return Shared(
        origin=origin,
        lang=view.lang,
        slug=PLAN,
        english="Batch planner",
        answer=view.sentence if view.answered else "",
        query=view.state.query(),
        inputs=_FIELD_ALONE * asked,
        results=_ANSWER,
        page=page,
        options=options or EmbedOptions(),
    )
