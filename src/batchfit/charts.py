"""Pictures of plans as SVG, to scale and labelled in place: memory bar, memory against micro-batch, Pareto front.

Shapes carry classes and no style, so that pages theme them and a strict Content-Security-Policy holds; `standalone`
puts the style into the picture, for files and notebooks. Memory has the same colours in the same order everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from unicodedata import category, east_asian_width

from batchfit.bidi import isolated
from batchfit.languages import SOURCE
from batchfit.numbers import format_number
from batchfit.palette import COLOURS, FILLS, INTERFACE, KINDS, PARTS, style_of
from batchfit.planning.result import Plan, Plans
from batchfit.planning.sensitivity import Curve
from batchfit.profile import Peak
from batchfit.sentences import Sentence, Size, in_language, parted
from batchfit.sentences import size as plain_size
from batchfit.units import UNITS

#: The width of every picture in its own units; pages scale it.
WIDTH = 720

#: Points nearer than this to the picture's end have their label before them.
_LABEL_ROOM = 110


def standalone(svg: str) -> str:
    """The picture with its style inside, complete in a file or a notebook."""
    return svg.replace(">", f"><style>{STYLE}</style>", 1)


def _toned(paper: int) -> str:
    """What of the style depends on the paper: 0 for light, 1 for dark."""
    colour = {name: pair[paper] for name, pair in INTERFACE.items()}
    curve = COLOURS["optimizer" if paper else "weights"]
    return (
        f".bf text{{fill:{colour['ink']}}}.bf .axis{{stroke:{colour['edge']}}}.bf .grid{{stroke:{colour['line']}}}"
        f".bf .curve,.bf .reserved{{stroke:{curve}}}.bf .point{{fill:{curve}}}"
        f".bf .limit{{stroke:{colour['wrong']}}}.bf .limit-text{{fill:{colour['wrong']}}}"
        f".bf .answer{{fill:{colour['answer']};stroke:{colour['paper']}}}"
        f".bf .answer-text{{fill:{colour['answer']};font-weight:600}}"
        f".bf .on-dark{{fill:{INTERFACE['paper'][0]}}}.bf .on-light{{fill:{INTERFACE['ink'][0]}}}"
    )


#: The style of a picture that stands alone on light paper.
LIGHT_STYLE = (
    ".bf text{font:12px system-ui,sans-serif}.bf .small{font-size:11px}.bf .end{text-anchor:end}"
    ".bf .middle{text-anchor:middle}.bf .axis,.bf .grid,.bf .curve,.bf .reserved,.bf .limit{fill:none}"
    ".bf .curve{stroke-width:2}.bf .reserved{stroke-dasharray:5 3}.bf .limit{stroke-width:1.5}"
    + "".join(f".bf .{part}{{fill:{colour}}}" for part, colour in FILLS.items())
    + _toned(0)
)

#: The same, light or dark as the reader's screen is.
STYLE = LIGHT_STYLE + f"@media(prefers-color-scheme:dark){{{_toned(1)}}}"

#: Parts and kinds whose colour is light enough for dark text.
LIGHT_FILLS = (
    "optimizer",
    "activations",
    "free",
    "mlp",
    "norm",
    "residual-stream",
    "logits-and-loss",
    "other",
)


#: What the parts of memory are called for people.
PART_NAMES = {
    "weights": Sentence("weights"),
    "gradients": Sentence("gradients"),
    "optimizer": Sentence("optimizer"),
    "activations": Sentence("activations"),
    "buffers": Sentence("buffers"),
    "overhead": Sentence("overhead"),
    "allocator": Sentence("allocator"),
    "free": Sentence("free"),
}

#: What the kinds of layers are called.
KIND_NAMES = {
    "attention": Sentence("attention"),
    "MLP": Sentence("MLP"),
    "convolution": Sentence("convolution"),
    "norm": Sentence("norms"),
    "embedding": Sentence("embeddings"),
    "residual stream": Sentence("residual stream"),
    "logits and loss": Sentence("logits and loss"),
    "other": Sentence("other activations"),
}

#: Kinds that have less than this share of the activations are drawn with the others.
_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the memory bar: what it holds and how many bytes. `style` is whose colour it has: the part's, or
    that of a kind of layer among activations."""

    part: str
    label: Sentence
    nbytes: int
    kind: str = ""

    @property
    def style(self) -> str:
        """As style sheets name it."""
        return style_of(self.kind or self.part)


def segments(plan: Plan) -> list[Segment]:
    """What the bar shows, in order: the peak's parts, what the allocator reserves beyond them, what stays free."""
    found = stretches(plan.parts, plan.activations)
    if plan.peak_reserved_bytes is not None and plan.peak_reserved_bytes > plan.peak_allocated_bytes:
        beyond = plan.peak_reserved_bytes - plan.peak_allocated_bytes
        found.append(Segment("overhead", PART_NAMES["allocator"], beyond))
    if plan.headroom_bytes > 0:
        found.append(Segment("free", PART_NAMES["free"], plan.headroom_bytes))
    return found


def stretches(parts: Mapping[str, int], activations: Mapping[str, int]) -> list[Segment]:
    """The parts of a peak, in order; activations by kind of layer where that is known."""
    found: list[Segment] = []
    for part in PARTS:
        if part == "activations" and activations:
            found += _kinds(activations)
        elif parts.get(part, 0) > 0:
            found.append(Segment(part, PART_NAMES[part], parts[part]))
    return found


def _kinds(activations: Mapping[str, int]) -> list[Segment]:
    """Activations by kind, what is too little to be seen among the others."""
    least = sum(activations.values()) * _LEAST_SHARE
    shown = {kind: n for kind, n in activations.items() if kind != "other" and n >= least}
    if rest := sum(activations.values()) - sum(shown.values()):
        shown["other"] = rest
    return [
        Segment("activations", KIND_NAMES[kind], shown[kind], kind)
        for kind in KINDS
        if shown.get(kind, 0) > 0
    ]


def pictures_of(answered: Plans, lang: str = SOURCE) -> dict[str, Callable[[], str]]:
    """What draws the pictures that there are of an answer, in a language: of the best plan, or of the nearest where
    nothing fits."""
    shown = answered.best or (answered.nearest[0].plan if answered.nearest else None)
    found: dict[str, Callable[[], str]] = {}
    if shown is not None:
        found["memory"] = partial(memory_bar, shown, lang)
    if answered.curve is not None:
        found["micro-batch"] = partial(memory_curve, answered.curve, lang)
    if any(plan.relative_step_time is not None for plan in answered.front):
        found["pareto"] = partial(pareto_front, answered.front, lang)
    return found


def memory_bar(plan: Plan, lang: str = SOURCE, width: int = WIDTH) -> str:
    """The peak on one GPU as a stacked bar, with the card's line where the peak goes beyond it."""
    return _bar(segments(plan), lang, width, plan.capacity_bytes)


def peak_bar(peak: Peak, lang: str = SOURCE, width: int = WIDTH) -> str:
    """A peak of a profile, of which no card is known, as the same bar."""
    return _bar(stretches(peak.parts, peak.activations), lang, width)


def _bar(shown: Sequence[Segment], lang: str, width: int, capacity_bytes: int | None = None) -> str:
    """The stretches one after the other, to scale; the card's line where its capacity is given."""
    total = max(capacity_bytes or 1, sum(segment.nbytes for segment in shown))
    shapes: list[str] = []
    x, beneath = 0.0, _Beneath(width, _TOP + (_STRIP if any(each.kind for each in shown) else 0))
    for segment in shown:
        room = segment.nbytes / total * width
        label, size = in_language(segment.label, lang), size_text(segment.nbytes, lang)
        title = _element("title", f"{label}: {size}")
        shapes.append(_group(title + _rectangle(x, 24, room, 44, segment.style)))
        if room >= 12 + max(text_length(label, 12), text_length(size, 11)):
            tone = "on-light" if segment.style in LIGHT_FILLS else "on-dark"
            shapes.append(_text(x + 6, 43, label, f"{tone} in-{segment.part}"))
            shapes.append(_text(x + 6, 59, size, f"{tone} small in-{segment.part}"))
        else:
            # What has no room inside is named beneath, in order, by its colour.
            shapes += beneath.named(segment.style, f"{label} {size}")
        x += room
    shapes += _under_kinds(shown, width / total, width, lang)
    if capacity_bytes is not None:
        line = capacity_bytes / total * width
        shapes.append(_path(f"M{line:.1f} 18V74", "limit"))
        anchor = "end" if line > width / 2 else ""
        shapes.append(_text(line, 12, _on_the_card(capacity_bytes, lang), f"limit-text small {anchor}"))
    parts = parted(
        (f"{in_language(each.label, lang)} {size_text(each.nbytes, lang)}" for each in shown), lang
    )
    said = Sentence("Memory on one GPU at the peak: {parts}.", parts=parts)
    return _picture(beneath.end, in_language(said, lang), shapes, width)


#: Where the bar ends, and what the line under the kinds of activations takes with its name.
_TOP, _STRIP = 76, 18


def _under_kinds(shown: Sequence[Segment], scale: float, width: float, lang: str) -> list[str]:
    """A line under the kinds of layers, which says that together they are the activations."""
    kinds = [index for index, segment in enumerate(shown) if segment.kind]
    if not kinds:
        return []
    before = sum(segment.nbytes for segment in shown[: kinds[0]])
    nbytes = sum(shown[index].nbytes for index in kinds)
    text = f"{in_language(PART_NAMES['activations'], lang)} {size_text(nbytes, lang)}"
    half = text_length(text, 11) / 2
    middle = min(max((before + nbytes / 2) * scale, half), width - half)
    return [
        _rectangle(before * scale, 70, nbytes * scale, 3, "activations"),
        _text(middle, 86, text, "small middle"),
    ]


def size_text(nbytes: int, lang: str) -> str:
    """A size in a label, held together whatever stands beside it."""
    return isolated(plain_size(nbytes, lang), lang)


class _Beneath:
    """The names of segments too narrow to hold them, in rows beneath the bar."""

    def __init__(self, width: int, top: int) -> None:
        self._width, self._top = width, top
        self._x, self._rows = 0.0, 0

    def named(self, part: str, text: str) -> list[str]:
        """A segment's colour and name, in the row that has room for it."""
        taken = 13 + text_length(text, 11)
        if not self._rows or (self._x and self._x + taken > self._width):
            self._x, self._rows = 0.0, self._rows + 1
        x, y = self._x, self._top - 12 + 18 * self._rows
        self._x += taken + 14
        return [_rectangle(x, y, 9, 9, part), _text(x + 13, y + 9, text, "small")]

    @property
    def end(self) -> int:
        """Where they end."""
        return self._top + (18 * self._rows + 2 if self._rows else 0)


def _on_the_card(capacity_bytes: int, lang: str) -> str:
    return in_language(Sentence("{capacity} on the card", capacity=Size(capacity_bytes)), lang)


def memory_curve(curve: Curve, lang: str = SOURCE, width: int = WIDTH) -> str:
    """Peak memory against micro-batch with the card's line and the chosen micro-batch."""
    left, right, top, bottom = 62, width - 14, 20, 250
    most = max(curve.micro_batches)
    highest = max(max(curve.allocated_bytes), max(curve.reserved_bytes or [0]), curve.capacity_bytes) * 1.05

    def x(micro_batch: float) -> float:
        return left + (right - left) * (micro_batch / most)

    def y(size: float) -> float:
        return bottom - (bottom - top) * size / highest

    shapes = _grid([(y(size), size_text(size, lang)) for size in byte_ticks(highest)], left, right)
    shapes += [
        _text(x(tick), bottom + 18, format_number(tick, lang), "small middle") for tick in count_ticks(most)
    ]
    shapes.append(_text(right, bottom + 36, in_language(Sentence("micro-batch size"), lang), "small end"))
    names = {"curve": Sentence("allocated"), "reserved": Sentence("reserved")}
    for sizes, style in ((curve.allocated_bytes, "curve"), (curve.reserved_bytes, "reserved")):
        if sizes is not None:
            points = " ".join(
                f"{x(b):.1f},{y(s):.1f}" for b, s in zip(curve.micro_batches, sizes, strict=True)
            )
            shapes.append(_element("polyline", points=points, style=style))
            offset = 26 if style == "curve" else -5
            shapes.append(_text(right, y(sizes[-1]) + offset, in_language(names[style], lang), "small end"))
    shapes.append(_path(f"M{left} {bottom}H{right}", "axis"))
    limit = y(curve.capacity_bytes)
    shapes.append(_path(f"M{left} {limit:.1f}H{right}", "limit"))
    shapes.append(_text(left + 6, limit - 5, _on_the_card(curve.capacity_bytes, lang), "limit-text small"))
    known: dict[str, object] = {
        "first": curve.micro_batches[0],
        "last": most,
        "capacity": Size(curve.capacity_bytes),
    }
    if curve.chosen not in curve.micro_batches:
        said = Sentence("Peak memory from micro-batch {first} to {last}; the card has {capacity}.", **known)
        return _picture(bottom + 44, in_language(said, lang), shapes, width)
    size = curve.allocated_bytes[list(curve.micro_batches).index(curve.chosen)]
    label = f"{format_number(curve.chosen, lang)}: {size_text(size, lang)}"
    offset, style = (-10, "answer-text end") if x(curve.chosen) > width - _LABEL_ROOM else (10, "answer-text")
    shapes.append(_circle(x(curve.chosen), y(size), 5, "answer"))
    shapes.append(_text(x(curve.chosen) + offset, y(size) + 16, label, style))
    said = Sentence(
        "Peak memory from micro-batch {first} to {last}; the plan has {plan}; the card has {capacity}.",
        plan=label,
        **known,
    )
    return _picture(bottom + 44, in_language(said, lang), shapes, width)


def pareto_front(front: Sequence[Plan], lang: str = SOURCE) -> str:
    """Memory against time per sample of the plans that no other beats in both; the fastest is 1."""
    timed = [plan for plan in front if plan.relative_step_time is not None]
    if not timed:
        return ""
    left, right, top, bottom = 62, WIDTH - 20, 20, 250
    highest = max(plan.capacity_bytes for plan in timed) * 1.05
    slowest = max(2.0, *(plan.relative_step_time or 0 for plan in timed)) * 1.05

    def x(time: float) -> float:
        return left + (right - left) * time / slowest

    def y(size: float) -> float:
        return bottom - (bottom - top) * size / highest

    shapes = _grid([(y(size), size_text(size, lang)) for size in byte_ticks(highest)], left, right)
    shapes += [
        _text(x(tick), bottom + 18, f"{format_number(tick, lang)}×", "small middle")
        for tick in count_ticks(int(slowest))
    ]
    shapes.append(_text(right, bottom + 36, in_language(Sentence("time per sample"), lang), "small end"))
    shapes.append(_path(f"M{left} {bottom}H{right}", "axis"))
    labelled: list[tuple[float, float, float]] = []
    for index, plan in enumerate(timed):
        at, height = x(plan.relative_step_time or 0), y(plan.peak_reserved_bytes or plan.peak_allocated_bytes)
        label = in_language(Sentence("{batch}, {how}", batch=plan.batch, how=plan.how), lang)
        title = _element("title", f"{label}: {in_language(plan.memory, lang)}")
        circle = _circle(at, height, 5, "answer" if index == len(timed) - 1 else "point")
        shapes.append(_group(title + circle))
        # A name stands behind its point, before it where it has no room there, and is left out beside another.
        long = text_length(label, 11)
        end = at + 9 + long > WIDTH
        start = at - 9 - long if end else at + 9
        if all(
            abs(height - beside) > 14 or start > last or first > start + long
            for beside, first, last in labelled
        ):
            shapes.append(_text(at + (-9 if end else 9), height + 4, label, f"small{' end' if end else ''}"))
            labelled.append((height, start, start + long))
    plans = parted((in_language(_on_the_front(plan, lang), lang) for plan in timed), lang)
    said = Sentence("Memory against time: {plans}.", plans=plans)
    return _picture(bottom + 44, in_language(said, lang), shapes)


def _on_the_front(plan: Plan, lang: str) -> Sentence:
    time = format_number(plan.relative_step_time or 0, lang, min_fraction=2, max_fraction=2)
    return Sentence(
        "{batch} ({how}): {memory}, {time}",
        batch=plan.batch,
        how=plan.how,
        memory=plan.memory,
        time=f"{time}×",
    )


# ---- Scales --------------------------------------------------------------------------------------------------


def byte_ticks(highest: float) -> list[int]:
    """Four to eight round sizes in binary units up to `highest`."""
    unit = next(UNITS[name] for name in ("TiB", "GiB", "MiB", "KiB", "B") if highest >= 4 * UNITS[name])
    return [tick * unit for tick in count_ticks(int(highest / unit))]


def count_ticks(highest: int) -> list[int]:
    """Round whole numbers up to `highest`, eight at most, from the first step on."""
    step = next(
        step
        for power in range(19)
        for step in (10**power, 2 * 10**power, 5 * 10**power)
        if highest / step <= 8
    )
    return list(range(step, highest + 1, step))


# ---- SVG -----------------------------------------------------------------------------------------------------


def _picture(height: int, description: str, shapes: Iterable[str], width: int = WIDTH) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bf" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(description)}">' + "".join(shapes) + "</svg>"
    )


def _grid(ticks: Iterable[tuple[float, str]], left: int, right: int) -> list[str]:
    shapes = []
    for y, label in ticks:
        shapes.append(_path(f"M{left} {y:.1f}H{right}", "grid"))
        shapes.append(_text(left - 6, y + 4, label, "small end"))
    return shapes


def text_length(text: str, size: int) -> float:
    """About how long a text is in a font of that size: ideographs are as wide as high, other letters half of it; marks
    on letters and signs of direction have no width."""
    return sum(
        size if east_asian_width(letter) in "WF" else size * 0.54
        for letter in text
        if category(letter) not in ("Mn", "Cf")
    )


def _element(name: str, content: str = "", style: str = "", **attributes: str) -> str:
    given = {"class": style, **attributes}
    written = "".join(f' {key}="{escape(value)}"' for key, value in given.items() if value)
    return f"<{name}{written}>{escape(content)}</{name}>"


def _group(inner: str) -> str:
    return f"<g>{inner}</g>"


def _text(x: float, y: float, content: str, style: str = "") -> str:
    return _element("text", content, style.strip(), x=f"{x:.1f}", y=f"{y:.1f}")


def _path(d: str, style: str) -> str:
    return _element("path", style=style, d=d)


def _rectangle(x: float, y: float, width: float, height: float, style: str) -> str:
    return _element(
        "rect", style=style, x=f"{x:.1f}", y=f"{y}", width=f"{max(width, 0.0):.1f}", height=f"{height}"
    )


def _circle(x: float, y: float, radius: int, style: str) -> str:
    return _element("circle", style=style, cx=f"{x:.1f}", cy=f"{y:.1f}", r=str(radius))
