"""Training memory of a language model: what weights, gradients, optimizer and activations take on each GPU."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Cards, Curve, Output, Source, Stack, Table
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.calculators.optimizer_memory import OPTIMIZERS, VALUES
from batchfit.fields import Bound, Choice, Field
from batchfit.formulas import training_memory as memory
from batchfit.presets import models

ZERO = Source("Rajbhandari et al., ZeRO, 2020, section 3.1", "https://arxiv.org/abs/1910.02054")
ZERO_STAGES = Source("Rajbhandari et al., ZeRO, 2020, section 5", "https://arxiv.org/abs/1910.02054")
ACTIVATIONS = Source("Korthikanti et al., 2022, section 4", "https://arxiv.org/abs/2205.05198")
CHECKPOINTING = Source("Chen et al., 2016, section 4", "https://arxiv.org/abs/1604.06174")

_OFFERED = ("adamw", "adamw-fused", "adamw-8bit", "adafactor", "lion", "lion-8bit", "momentum", "sgd")
_NUMBERS = tuple(bound.name for bound in VALUES)


def _precision(weight: int, master: int, activation: int) -> dict[str, int]:
    return {
        "weight_value_bytes": weight,
        "master_value_bytes": master,
        "activation_value_bytes": activation,
    }


CALCULATOR = Calculator(
    slug="llm-training-memory",
    category="training",
    title="LLM training memory",
    purpose=(
        "Add up weights, gradients, optimizer state, master copy and activations of a language model, "
        "and see on which GPUs training fits."
    ),
    answer=(
        "{total_bytes} on each GPU at the peak. The states of {parameters} take {states_bytes}, "
        "the activations {activations_bytes}."
    ),
    updated=date(2026, 11, 30),
    related=("gradient-accumulation", "optimizer-memory", "lora-parameters", "attention-memory"),
    presets=(
        models(
            parameters="parameters",
            layers="layers",
            hidden_size="hidden_size",
            key_value_dim="key_value_dim",
            intermediate_size="intermediate_size",
            vocabulary="vocabulary",
            gated="gated",
        ),
    ),
    fields=(
        Field(
            name="parameters",
            symbol="N",
            label="Parameters",
            help="All parameters of the model, every one of them trained.",
            kind="whole",
            unit="parameters",
            counted=counted.PARAMETERS,
            suffixes=True,
            minimum=1000,
            maximum=10**13,
            default="7B",
            group="Model",
        ),
        asked.LAYERS,
        asked.HIDDEN_SIZE,
        asked.KEY_VALUE_DIM,
        asked.INTERMEDIATE_SIZE,
        asked.VOCABULARY,
        Field(
            name="gated",
            symbol="γ",
            label="Kind of layer",
            help=(
                "Gated MLP and RMSNorm as in Llama, Mistral and Qwen, or plain MLP and LayerNorm as in GPT and "
                "Pythia."
            ),
            kind="choice",
            default="yes",
            choices=(
                Choice("yes", "Gated MLP, RMSNorm", {"gated": 1}),
                Choice("no", "Plain MLP, LayerNorm", {"gated": 0}),
            ),
            binds=(Bound("gated", "γ", "Gated MLP"),),
            group="Model",
        ),
        Field(
            name="precision",
            symbol="P",
            label="Precision",
            help="The precision of weights and gradients, and whether an fp32 copy of the weights is kept.",
            kind="choice",
            default="mixed",
            choices=(
                Choice("mixed", "16-bit weights, fp32 master copy", _precision(2, 4, 2)),
                Choice("bf16-mixed", "fp32 weights, autocast to 16 bits", _precision(4, 0, 2)),
                Choice("bf16", "bf16 throughout", _precision(2, 0, 2)),
                Choice("fp32", "fp32 throughout", _precision(4, 0, 4)),
            ),
            binds=(
                Bound("weight_value_bytes", "w", "Bytes per weight"),
                Bound("master_value_bytes", "w_m", "Bytes per weight of the master copy"),
                Bound("activation_value_bytes", "w_a", "Bytes per activation value"),
            ),
            group="Training",
        ),
        Field(
            name="optimizer",
            symbol="O",
            label="Optimizer",
            help="What it keeps for each parameter stays on the GPU throughout training.",
            kind="choice",
            default="adamw",
            choices=tuple(
                Choice(one.value, one.label, {name: one.numbers[name] for name in _NUMBERS})
                for one in OPTIMIZERS
                if one.value in _OFFERED
            ),
            binds=VALUES,
            group="Training",
        ),
        Field(
            name="checkpointing",
            symbol="C",
            label="Activation checkpointing",
            help="Keep each layer’s input alone and compute the rest again in the backward pass: a third more work.",
            kind="choice",
            default="none",
            choices=(
                Choice("none", "None: keep every activation", {"recomputes": 0}),
                Choice("full", "Full: recompute every layer", {"recomputes": 1}),
            ),
            binds=(Bound("recomputes", "c", "Layers are recomputed"),),
            group="Training",
        ),
        replace(asked.MICRO_BATCH, default="2"),
        replace(asked.SEQUENCE_LENGTH, maximum=2**20),
        Field(
            name="sharding",
            symbol="Z",
            label="Sharding",
            help="What the data-parallel GPUs divide among them instead of each holding all of it.",
            kind="choice",
            default="none",
            choices=(
                Choice("none", "None (DDP)", {"zero_stage": 0}),
                Choice("zero1", "ZeRO-1: optimizer state", {"zero_stage": 1}),
                Choice("zero2", "ZeRO-2: and gradients", {"zero_stage": 2}),
                Choice("zero3", "ZeRO-3 or FSDP: and weights", {"zero_stage": 3}),
            ),
            binds=(Bound("zero_stage", "z", "ZeRO stage"),),
            group="Parallelism",
        ),
        replace(asked.REPLICAS, group="Parallelism"),
    ),
    outputs=(
        Output(
            name="weights_bytes",
            symbol="W",
            label="Weights",
            kind="bytes",
            unit="GB",
            formula=memory.weights_bytes,
            reading="{parameters} ({precision}).",
            detail=True,
            sources=(ZERO, ZERO_STAGES),
        ),
        Output(
            name="gradients_bytes",
            symbol="G",
            label="Gradients",
            kind="bytes",
            unit="GB",
            formula=memory.gradients_bytes,
            reading="One for each parameter, in the precision of the weights.",
            detail=True,
            sources=(ZERO, ZERO_STAGES),
        ),
        Output(
            name="optimizer_bytes",
            symbol="S",
            label="Optimizer state",
            kind="bytes",
            unit="GB",
            formula=memory.optimizer_bytes,
            reading="What {optimizer} keeps for each parameter.",
            detail=True,
            sources=(ZERO, ZERO_STAGES),
        ),
        Output(
            name="master_copy_bytes",
            symbol="M_w",
            label="Master copy",
            kind="bytes",
            unit="GB",
            formula=memory.master_copy_bytes,
            reading="The fp32 weights that the optimizer updates where those of the model have 16 bits.",
            detail=True,
            sources=(ZERO, ZERO_STAGES),
        ),
        Output(
            name="states_bytes",
            symbol="B",
            label="States",
            kind="bytes",
            unit="GB",
            formula=memory.states_bytes,
            reading="Weights, gradients, optimizer state and master copy: all that does not depend on the batch.",
        ),
        Output(
            name="states_per_parameter",
            symbol="β",
            label="States per parameter",
            kind="number",
            unit="bytes",
            counted=counted.BYTES,
            formula=memory.states_per_parameter,
            reading="On each GPU, for each of the {parameters}.",
            detail=True,
        ),
        Output(
            name="layer_activation",
            symbol="A_l",
            label="Activations of one layer per token",
            kind="whole",
            unit="bytes",
            counted=counted.BYTES,
            formula=memory.layer_activation,
            reading="What one layer keeps for backward, with an attention kernel that keeps no scores.",
            detail=True,
            sources=(ACTIVATIONS,),
        ),
        Output(
            name="output_activation",
            symbol="A_o",
            label="Activations of the output layer per token",
            kind="whole",
            unit="bytes",
            counted=counted.BYTES,
            formula=memory.output_activation,
            reading="The logits, their fp32 copy, its log-softmax and its gradient.",
            detail=True,
            sources=(ACTIVATIONS,),
        ),
        Output(
            name="token_activation",
            symbol="A_t",
            label="Activations per token",
            kind="whole",
            unit="bytes",
            counted=counted.BYTES,
            formula=memory.token_activation,
            reading="All layers and the output layer together, at their peak.",
            detail=True,
            sources=(ACTIVATIONS, CHECKPOINTING),
        ),
        Output(
            name="activations_bytes",
            symbol="A",
            label="Activations",
            kind="bytes",
            unit="GB",
            formula=memory.activations_bytes,
            reading="{micro_batch} of {sequence_length}, {token_activation} each token.",
        ),
        Output(
            name="copies_bytes",
            symbol="W_c",
            label="16-bit copies of the weights",
            kind="bytes",
            unit="GB",
            formula=memory.copies_bytes,
            reading="Autocast makes them in the forward pass and drops them after backward.",
            detail=True,
        ),
        Output(
            name="micro_batch_bytes",
            symbol="M_b",
            label="Peak of forward and backward",
            kind="bytes",
            unit="GB",
            formula=memory.micro_batch_bytes,
            reading="States, copies and activations together, gradients in full as with accumulation.",
            detail=True,
        ),
        Output(
            name="optimizer_step_bytes",
            symbol="M_o",
            label="Peak of the optimizer step",
            kind="bytes",
            unit="GB",
            formula=memory.optimizer_step_bytes,
            reading="The states, and temporary tensors where {optimizer} updates all parameters at once.",
            detail=True,
        ),
        Output(
            name="total_bytes",
            symbol="M",
            label="Total on each GPU",
            kind="bytes",
            unit="GB",
            formula=memory.total_bytes,
            reading="The higher of the two peaks; leave headroom on top.",
        ),
    ),
    sections=(
        Stack(
            "What fills the GPU in forward and backward",
            {
                "weights": "weights_bytes",
                "gradients": "gradients_bytes",
                "optimizer": "optimizer_bytes",
                "activations": "activations_bytes",
                "buffers": "master_copy_bytes",
                "overhead": "copies_bytes",
            },
        ),
        Cards("Cards it fits on", "total_bytes"),
        Table(
            "Sharding side by side",
            over="sharding",
            columns=(
                "weights_bytes",
                "gradients_bytes",
                "optimizer_bytes",
                "master_copy_bytes",
                "total_bytes",
            ),
        ),
        Table(
            "Precisions side by side",
            over="precision",
            columns=("states_per_parameter", "states_bytes", "activations_bytes", "total_bytes"),
        ),
        Curve(
            "Memory against sequence length",
            over="sequence_length",
            outputs=("total_bytes", "states_bytes"),
            low="512",
            high="131072",
            log_x=True,
        ),
    ),
    planner=(
        "The planner reads memory profiles traced from real models, phase by phase, with the temporary memory of the "
        "optimizer step and what PyTorch reserves. Where the two differ, trust the planner."
    ),
)
