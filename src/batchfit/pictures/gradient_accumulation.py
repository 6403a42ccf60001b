"""One optimizer step over time: memory rises and falls with each micro-batch, its peak stays flat, gradients add up."""

from __future__ import annotations

from batchfit.calculator import Output
from batchfit.formulas.activation_memory import activation_memory_bytes
from batchfit.pictures import Circle, Line, Picture, Rectangle, Shape, Triangle, Words

# Heights on the canvas, from the top.
TOP = 28  # the peak of activation memory
ZERO = 128  # no activations: the time axis
SUM_TOP = 200  # a complete sum of gradients
SUM_ZERO = 228  # none

OPTIMIZER = 44  # width of the optimizer step, at the right
ARROW = 20  # and of the arrow that leads to it
GAP = 3  # between one micro-batch and the next


# ---- The micro-batches on the time axis: `i` counts those that are drawn ------------------------------------


def slots(accumulation_steps: int, width: int) -> int:
    """Places on the time axis: one for each micro-batch, as far as there is room."""
    return min(accumulation_steps, 8 if width < 500 else 12)


def left_out(accumulation_steps: int, width: int) -> int:
    """1 where the last place but one stands for micro-batches that are left out, else 0."""
    return 1 if accumulation_steps > slots(accumulation_steps, width) else 0


def drawn(accumulation_steps: int, width: int) -> int:
    """Micro-batches that are drawn: the first few, and the last."""
    return slots(accumulation_steps, width) - left_out(accumulation_steps, width)


def number(i: int, accumulation_steps: int, width: int) -> int:
    """A micro-batch's number, from 1."""
    return accumulation_steps if i + 1 == drawn(accumulation_steps, width) else i + 1


def slot_width(accumulation_steps: int, width: int) -> float:
    """Width of one place."""
    return (width - OPTIMIZER - ARROW) / slots(accumulation_steps, width)


def start(i: int, accumulation_steps: int, width: int) -> float:
    """Where a micro-batch's forward pass begins."""
    last = i + 1 == drawn(accumulation_steps, width)
    place = i + left_out(accumulation_steps, width) if last else i
    return place * slot_width(accumulation_steps, width)


def duration(accumulation_steps: int, width: int) -> float:
    """Width of a forward and backward pass. Forward takes a third of it: for each product of matrices that it
    computes, backward computes two, one for the inputs and one for the weights."""
    return slot_width(accumulation_steps, width) - GAP


def activations(i: int, accumulation_steps: int, width: int) -> Triangle:
    """Activations build up in the forward pass and are freed in the backward pass."""
    begin, takes = start(i, accumulation_steps, width), duration(accumulation_steps, width)
    return Triangle(begin, ZERO, begin + takes / 3, TOP, begin + takes, ZERO)


def number_place(i: int, accumulation_steps: int, width: int) -> Words:
    """A micro-batch's number, under it."""
    return Words(start(i, accumulation_steps, width) + duration(accumulation_steps, width) / 2, ZERO + 17)


def rooms_for_names(accumulation_steps: int, width: int) -> int:
    """1 where the first micro-batch is wide enough to name its passes."""
    return 1 if duration(accumulation_steps, width) >= 200 else 0


def forward_name(accumulation_steps: int, width: int) -> Words:
    """The forward pass's name, where there is room under the rising edge."""
    return Words(duration(accumulation_steps, width) * 0.24, ZERO - 7)


def backward_name(accumulation_steps: int, width: int) -> Words:
    """The backward pass's name."""
    return Words(duration(accumulation_steps, width) * 0.6, ZERO - 7)


# ---- A layer for each sample of a micro-batch, where they can be told apart ---------------------------------


def layers(micro_batch: int) -> int:
    """Lines between the samples of one micro-batch."""
    return micro_batch - 1 if micro_batch <= 8 else 0


def all_layers(micro_batch: int, accumulation_steps: int, width: int) -> int:
    """Lines between samples in all micro-batches drawn."""
    return layers(micro_batch) * drawn(accumulation_steps, width)


def layer(i: int, micro_batch: int, accumulation_steps: int, width: int) -> Line:
    """A line from the rising to the falling edge of its micro-batch."""
    part = (i % layers(micro_batch) + 1) / micro_batch
    begin = start(i // layers(micro_batch), accumulation_steps, width)
    takes = duration(accumulation_steps, width)
    y = ZERO - part * (ZERO - TOP)
    return Line(begin + part * takes / 3, y, begin + takes - part * takes * 2 / 3, y)


# ---- Those left out: three dots -----------------------------------------------------------------------------


def dots(accumulation_steps: int, width: int) -> int:
    """Three where micro-batches are left out, else none."""
    return 3 * left_out(accumulation_steps, width)


def dot_x(i: int, accumulation_steps: int, width: int) -> float:
    """A dot's place on the time axis."""
    return (slots(accumulation_steps, width) - 1.5) * slot_width(accumulation_steps, width) + 8 * (i - 1)


def memory_dot(i: int, accumulation_steps: int, width: int) -> Circle:
    """A dot between the micro-batches' activations."""
    return Circle(dot_x(i, accumulation_steps, width), ZERO - 24, 2)


def sum_dot(i: int, accumulation_steps: int, width: int) -> Circle:
    """A dot between the sums of gradients."""
    return Circle(dot_x(i, accumulation_steps, width), SUM_ZERO - 6, 2)


# ---- Gradients, added up for the optimizer ------------------------------------------------------------------


def gradients(i: int, accumulation_steps: int, width: int) -> Rectangle:
    """How much of the sum is there after a micro-batch; the last one completes it."""
    part = number(i, accumulation_steps, width) / accumulation_steps
    height = 3 + part * (SUM_ZERO - SUM_TOP - 3)
    return Rectangle(
        start(i, accumulation_steps, width), SUM_ZERO - height, duration(accumulation_steps, width), height
    )


def arrow(width: int) -> Line:
    """From the gradients to the optimizer."""
    y = (SUM_TOP + SUM_ZERO) / 2
    return Line(width - OPTIMIZER - ARROW + 2, y, width - OPTIMIZER - 9, y)


def arrow_head(width: int) -> Triangle:
    """The head of that arrow."""
    x, y = width - OPTIMIZER - 2, (SUM_TOP + SUM_ZERO) / 2
    return Triangle(x, y, x - 8, y - 4, x - 8, y + 4)


def optimizer(width: int) -> Rectangle:
    """The one optimizer step."""
    return Rectangle(width - OPTIMIZER, SUM_TOP, OPTIMIZER - 1, SUM_ZERO - SUM_TOP)


# ---- Lines and labels ---------------------------------------------------------------------------------------


def peak(width: int) -> Line:
    """The peak, the same for every micro-batch."""
    return Line(0, TOP, width, TOP)


def time(width: int) -> Line:
    """The time axis."""
    return Line(0, ZERO, width - 6, ZERO)


def time_head(width: int) -> Triangle:
    """The head of the time axis."""
    return Triangle(width, ZERO, width - 7, ZERO - 4, width - 7, ZERO + 4)


def peak_label(width: int) -> Words:
    """Above the peak."""
    return Words(0, TOP - 10)


def time_label(width: int) -> Words:
    """At the end of the time axis."""
    return Words(width, ZERO + 17)


def numbers_label(width: int) -> Words:
    """Under the micro-batches' numbers."""
    return Words(0, ZERO + 33)


def gradients_label(width: int) -> Words:
    """Above the sums of gradients."""
    return Words(0, SUM_TOP - 9)


def optimizer_label(width: int) -> Words:
    """Above the optimizer step."""
    return Words(width, SUM_TOP - 9)


def in_one_pass_bytes(micro_batch: int, accumulation_steps: int, activation_per_sample: int) -> int:
    """Bytes of activations on one GPU if a single pass took all the samples of its optimizer step."""
    return activation_memory_bytes(micro_batch * accumulation_steps, activation_per_sample)


PICTURE = Picture(
    height=230,
    widths=(304, 640),
    extra=(
        Output(
            name="in_one_pass_bytes",
            symbol="",
            label="Activation memory in one pass",
            kind="bytes",
            unit="GB",
            formula=in_one_pass_bytes,
            reading="",
        ),
    ),
    caption=(
        "One optimizer step on one GPU: {accumulation_steps} of {micro_batch} each. Activations build up to "
        "{activation_memory_bytes} in every forward pass and are freed by its backward pass, so the peak does not "
        "grow with the steps. The gradients add up, and the optimizer steps once.",
        "All these samples in a single pass would take {in_one_pass_bytes} of activations.",
    ),
    shapes=(
        Shape("activations", activations, times=drawn),
        Shape("layer", layer, times=all_layers),
        Shape("dot", memory_dot, times=dots),
        Shape("peak", peak),
        Shape("peak-label", peak_label, text="peak: {activation_memory_bytes}"),
        Shape("centred", forward_name, times=rooms_for_names, text="forward"),
        Shape("centred", backward_name, times=rooms_for_names, text="backward"),
        Shape("axis", time),
        Shape("head", time_head),
        Shape("centred", number_place, times=drawn, text="{number}", number=number),
        Shape("end", time_label, text="time"),
        Shape("label", numbers_label, text="micro-batch"),
        Shape("gradients", gradients, times=drawn),
        Shape("dot", sum_dot, times=dots),
        Shape("label", gradients_label, text="gradients, added up"),
        Shape("axis", arrow),
        Shape("head", arrow_head),
        Shape("optimizer", optimizer),
        Shape("end", optimizer_label, text="optimizer step"),
    ),
)
