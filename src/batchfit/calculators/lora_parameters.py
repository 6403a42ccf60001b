"""LoRA parameters: how many parameters adapters train, and what training them takes."""

from dataclasses import replace
from datetime import date

from batchfit.calculator import Calculator, Curve, Output, Source
from batchfit.calculators import _asked as asked
from batchfit.calculators import _counted as counted
from batchfit.fields import Bound, Choice, Field
from batchfit.formulas import lora
from batchfit.presets import models

LORA = Source("Hu et al., LoRA, 2021, section 4.1", "https://arxiv.org/abs/2106.09685")
QLORA = Source("Dettmers et al., QLoRA, 2023", "https://arxiv.org/abs/2305.14314")

CALCULATOR = Calculator(
    slug="lora-parameters",
    category="training",
    title="LoRA parameters",
    purpose=(
        "Count the parameters that LoRA trains at a given rank, "
        "and see how small gradients, optimizer state and the adapter file become."
    ),
    answer="{trainable_parameters} are trained, {trained_share} of all. The adapter file has {adapter_bytes}.",
    updated=date(2026, 11, 30),
    related=("llm-training-memory", "gradient-accumulation", "optimizer-memory"),
    presets=(
        models(
            parameters="parameters",
            layers="layers",
            hidden_size="hidden_size",
            query_dim="query_dim",
            key_value_dim="key_value_dim",
            intermediate_size="intermediate_size",
            gated="gated",
            separate="separate",
        ),
    ),
    fields=(
        Field(
            name="parameters",
            symbol="N",
            label="Parameters of the model",
            help="All parameters of the model that the adapters are added to. LoRA leaves them as they are.",
            kind="whole",
            unit="parameters",
            counted=counted.PARAMETERS,
            suffixes=True,
            minimum=1000,
            maximum=10**13,
            default="8030261248",
            group="Model",
        ),
        asked.LAYERS,
        asked.HIDDEN_SIZE,
        Field(
            name="query_dim",
            symbol="d_q",
            label="Width of queries",
            help="Query heads times head size. In most models it equals the hidden size.",
            kind="whole",
            unit="",
            minimum=1,
            maximum=2**17,
            default="4096",
            group="Model",
        ),
        replace(asked.KEY_VALUE_DIM, default="1024"),
        replace(asked.INTERMEDIATE_SIZE, default="14336"),
        Field(
            name="gated",
            symbol="γ",
            label="MLP",
            help="A gated MLP, as in Llama, has a gate projection beside up and down; a plain one does not.",
            kind="choice",
            default="yes",
            choices=(
                Choice("yes", "Gated: gate, up and down", {"gated": 1}),
                Choice("no", "Plain: up and down", {"gated": 0}),
            ),
            binds=(Bound("gated", "γ", "Gated MLP"),),
            group="Model",
        ),
        Field(
            name="separate",
            symbol="σ",
            label="Projections",
            help=(
                "Whether q, k and v, and gate and up, are modules of their own, or fused into one wide module "
                "as in Phi-3 and GPT-2."
            ),
            kind="choice",
            default="yes",
            choices=(
                Choice("yes", "Separate modules", {"separate": 1}),
                Choice("no", "Fused modules", {"separate": 0}),
            ),
            binds=(Bound("separate", "σ", "Separate modules"),),
            group="Model",
        ),
        Field(
            name="rank",
            symbol="r",
            label="Rank",
            help="Width of the two small matrices that an adapter is made of.",
            kind="whole",
            unit="",
            minimum=1,
            maximum=16384,
            default="16",
            group="Adapters",
        ),
        Field(
            name="modules",
            symbol="T",
            label="Adapted modules",
            help="Projections of each layer that get an adapter. Of a fused module, one of its parts stands for all.",
            kind="choices",
            minimum=1,
            default="q,k,v,o",
            choices=(
                Choice("q", "Query (q)", {"q": 1}),
                Choice("k", "Key (k)", {"k": 1}),
                Choice("v", "Value (v)", {"v": 1}),
                Choice("o", "Attention output (o)", {"o": 1}),
                Choice("gate", "MLP gate", {"gate": 1}),
                Choice("up", "MLP up", {"up": 1}),
                Choice("down", "MLP down", {"down": 1}),
            ),
            binds=(
                Bound("q", "a_q", "Query adapted"),
                Bound("k", "a_k", "Key adapted"),
                Bound("v", "a_v", "Value adapted"),
                Bound("o", "a_o", "Attention output adapted"),
                Bound("gate", "a_g", "MLP gate adapted"),
                Bound("up", "a_u", "MLP up adapted"),
                Bound("down", "a_d", "MLP down adapted"),
            ),
            group="Adapters",
        ),
        Field(
            name="adapter_precision",
            symbol="P",
            label="Precision of the adapters",
            help="PEFT keeps adapters in fp32 even where the model has 16 bits, unless it is told not to.",
            kind="choice",
            default="fp32",
            choices=(
                Choice("fp32", "fp32", {"adapter_value_bytes": 4}),
                Choice("16-bit", "bf16 or fp16", {"adapter_value_bytes": 2}),
            ),
            binds=(Bound("adapter_value_bytes", "w", "Bytes per adapter value"),),
            group="Adapters",
        ),
    ),
    outputs=(
        Output(
            name="attention_adapters",
            symbol="n_a",
            label="In the attention of one layer",
            kind="whole",
            unit="parameters",
            counted=counted.PARAMETERS,
            formula=lora.attention_adapters,
            reading="Rank times inputs plus outputs, for each adapted projection.",
            detail=True,
            sources=(LORA,),
        ),
        Output(
            name="mlp_adapters",
            symbol="n_m",
            label="In the MLP of one layer",
            kind="whole",
            unit="parameters",
            counted=counted.PARAMETERS,
            formula=lora.mlp_adapters,
            reading="Rank times inputs plus outputs, for each adapted projection.",
            detail=True,
            sources=(LORA,),
        ),
        Output(
            name="trainable_parameters",
            symbol="n",
            label="Trainable parameters",
            kind="whole",
            unit="parameters",
            counted=counted.PARAMETERS,
            formula=lora.trainable_parameters,
            reading="In {layers}, with rank {rank} on {modules}.",
            sources=(LORA,),
        ),
        Output(
            name="trained_share",
            symbol="ρ",
            label="Share that is trained",
            kind="share",
            unit="",
            formula=lora.trained_share,
            reading="Of all parameters, the adapters’ own included, as PEFT prints it.",
        ),
        Output(
            name="adapter_bytes",
            symbol="F",
            label="Adapter file",
            kind="bytes",
            unit="MB",
            formula=lora.adapter_bytes,
            reading="As much as the adapters’ weights take in memory.",
        ),
        Output(
            name="adapter_gradients_bytes",
            symbol="G",
            label="Gradients",
            kind="bytes",
            unit="MB",
            formula=lora.adapter_gradients_bytes,
            reading="One for each trainable parameter.",
            detail=True,
        ),
        Output(
            name="adapter_optimizer_bytes",
            symbol="S",
            label="Optimizer state",
            kind="bytes",
            unit="MB",
            formula=lora.adapter_optimizer_bytes,
            reading="AdamW keeps two values for each trainable parameter.",
            detail=True,
        ),
        Output(
            name="training_bytes",
            symbol="B",
            label="What the adapters add in training",
            kind="bytes",
            unit="MB",
            formula=lora.training_bytes,
            reading=(
                "Weights, gradients and optimizer state of the adapters. "
                "The frozen weights and the activations stay."
            ),
        ),
        Output(
            name="full_training_bytes",
            symbol="B_N",
            label="Gradients and optimizer state without LoRA",
            kind="bytes",
            unit="GB",
            formula=lora.full_training_bytes,
            reading="If all {parameters} were trained in the same precision.",
            detail=True,
        ),
    ),
    sections=(
        Curve(
            "Trainable parameters against rank",
            over="rank",
            outputs=("trainable_parameters",),
            low="1",
            high="256",
        ),
    ),
    planner=(
        "The planner traces the model with its adapters, frozen weights in 16, 8 or 4 bits, "
        "and the activations, which LoRA hardly shrinks."
    ),
)
