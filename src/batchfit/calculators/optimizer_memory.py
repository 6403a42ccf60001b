"""Optimizer memory: the bytes that each optimizer keeps for a model, side by side."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Curve, Output, Source, Table
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Bound, Choice, Field
from batchfit.formulas import optimizer_state
from batchfit.presets import models

ADAM = Source("Kingma and Ba, Adam, 2015, algorithm 1", "https://arxiv.org/abs/1412.6980")
EIGHT_BIT = Source("Dettmers et al., 8-bit Optimizers, 2022", "https://arxiv.org/abs/2110.02861")
ADAFACTOR = Source("Shazeer and Stern, Adafactor, 2018, section 3", "https://arxiv.org/abs/1804.04235")
LION = Source("Chen et al., Lion, 2023", "https://arxiv.org/abs/2302.06675")
MUON = Source("Jordan et al., Muon, 2024", "https://kellerjordan.github.io/posts/muon/")

VALUES = (
    Bound("full_values", "n", "Values per parameter"),
    Bound("eight_bit_values", "n_8", "8-bit values per parameter"),
    Bound("scales", "n_c", "Scales per block of 8-bit values"),
    Bound("factored_values", "n_f", "Values per row of a matrix"),
    Bound("step_values", "n_t", "Values per parameter during the step"),
)


def _optimizer(
    value: str,
    label: str,
    full: int = 0,
    *,
    eight_bit: int = 0,
    scales: int = 0,
    factored: int = 0,
    embedding: int = 0,
    step: int = 0,
) -> Choice:
    numbers = {
        "full_values": full,
        "eight_bit_values": eight_bit,
        "scales": scales,
        "factored_values": factored,
        "embedding_values": embedding,
        "step_values": step,
    }
    return Choice(value, label, numbers)


#: By the names that `batchfit trace --optimizer` knows them under. A paged optimizer keeps its values in memory that
#: CPU and GPU share, so there are none here; the scales of 8-bit ones stay on the GPU.
OPTIMIZERS = (
    _optimizer("adamw", "AdamW", 2, step=1),
    _optimizer("adamw-fused", "AdamW, fused", 2),
    _optimizer("adamw-single", "AdamW, one tensor at a time", 2),
    _optimizer("adam", "Adam", 2, step=1),
    _optimizer("adamw-8bit", "AdamW, 8-bit", eight_bit=2, scales=2),
    _optimizer("adamw-paged", "AdamW, paged"),
    _optimizer("adamw-8bit-paged", "AdamW, 8-bit, paged", scales=2),
    _optimizer("adafactor", "Adafactor", factored=2),
    _optimizer("adafactor-torch", "Adafactor of torch.optim", factored=2),
    _optimizer("lion", "Lion", 1),
    _optimizer("lion-8bit", "Lion, 8-bit", eight_bit=1, scales=1),
    _optimizer("muon", "Muon with AdamW", 1, embedding=1),
    _optimizer("rmsprop", "RMSprop", 1, step=1),
    _optimizer("adagrad", "Adagrad", 1, step=2),
    _optimizer("momentum", "SGD with momentum", 1),
    _optimizer("sgd", "SGD"),
)

CALCULATOR = Calculator(
    slug="optimizer-memory",
    category="training",
    title="Optimizer memory",
    purpose="Compare how many bytes each optimizer keeps for every parameter, and what that makes for your model.",
    answer="{optimizer} keeps {optimizer_bytes} for {parameters}, {bytes_per_parameter} each.",
    updated=date(2026, 11, 30),
    related=("llm-training-memory", "lora-parameters", "gradient-accumulation"),
    presets=(models(parameters="parameters", hidden_size="hidden_size", vocabulary="vocabulary"),),
    fields=(
        Field(
            name="parameters",
            symbol="N",
            label="Trained parameters",
            help="Parameters that the optimizer updates. With LoRA, those of the adapters alone.",
            kind="whole",
            unit="parameters",
            counted=counted.PARAMETERS,
            suffixes=True,
            minimum=1000,
            maximum=10**13,
            default="7B",
            group="Model",
        ),
        Field(
            name="optimizer",
            symbol="O",
            label="Optimizer",
            help="The names are those of PyTorch; 8-bit and paged ones are those of bitsandbytes.",
            kind="choice",
            default="adamw",
            choices=OPTIMIZERS,
            binds=(*VALUES, Bound("embedding_values", "n_e", "Further values per embedding parameter")),
            group="Training",
        ),
        Field(
            name="updated_precision",
            symbol="P",
            label="Precision of what is updated",
            help=(
                "fp32 where weights are fp32 or have an fp32 master copy; 16-bit where there is nothing but "
                "16-bit weights."
            ),
            kind="choice",
            default="fp32",
            choices=(
                Choice("fp32", "fp32", {"updated_value_bytes": 4}),
                Choice("16-bit", "bf16 or fp16", {"updated_value_bytes": 2}),
            ),
            binds=(Bound("updated_value_bytes", "w", "Bytes per updated value"),),
            group="Training",
        ),
        replace(asked.HIDDEN_SIZE, maximum=2**20),
        replace(asked.VOCABULARY, maximum=10**8),
        Field(
            name="embedding_matrices",
            symbol="e",
            label="Matrices of that size",
            help=(
                "2 for an embedding and an output layer of its own, 1 where both share one matrix. "
                "Only Muon looks at them."
            ),
            kind="whole",
            unit="",
            minimum=1,
            maximum=2,
            default="2",
            group="Model",
        ),
    ),
    outputs=(
        Output(
            name="embedding_parameters",
            symbol="N_e",
            label="Parameters in embedding and output layer",
            kind="whole",
            unit="parameters",
            formula=optimizer_state.embedding_parameters,
            reading="Muon leaves these to AdamW.",
            detail=True,
            sources=(MUON,),
        ),
        Output(
            name="optimizer_bytes",
            symbol="S",
            label="Optimizer state",
            kind="bytes",
            unit="GB",
            formula=optimizer_state.optimizer_bytes,
            reading="What {optimizer} keeps from its first step on, on a GPU that holds all of it.",
            sources=(ADAM, EIGHT_BIT, ADAFACTOR, LION),
        ),
        Output(
            name="bytes_per_parameter",
            symbol="β",
            label="Bytes per parameter",
            kind="number",
            unit="bytes",
            counted=counted.BYTES,
            formula=optimizer_state.bytes_per_parameter,
            reading="For each of the {parameters}; weights and gradients come on top.",
        ),
        Output(
            name="step_bytes",
            symbol="T",
            label="Needed for a moment during the step",
            kind="bytes",
            unit="GB",
            formula=optimizer_state.step_bytes,
            reading=(
                "Temporary tensors as large as the model, which an optimizer makes that updates all parameters "
                "at once."
            ),
        ),
        Output(
            name="saved_bytes",
            symbol="Δ",
            label="Less than AdamW",
            kind="bytes",
            unit="GB",
            formula=optimizer_state.saved_bytes,
            reading="AdamW keeps two values for each parameter in the same precision.",
            detail=True,
        ),
    ),
    sections=(
        Table(
            "Optimizers side by side",
            over="optimizer",
            columns=("bytes_per_parameter", "optimizer_bytes", "step_bytes"),
        ),
        Curve(
            "Optimizer state against parameters",
            over="parameters",
            outputs=("optimizer_bytes", "step_bytes"),
            low="1M",
            high="1T",
            log_x=True,
            log_y=True,
        ),
    ),
    planner=(
        "The planner traces the optimizer’s step on your own model, tensor by tensor, "
        "with the temporary memory of the step and the peak it makes."
    ),
)
