"""Fields that several calculators ask for, each said once. One that wants another default or bound replaces that."""

from batchfit.calculators import _counted as counted
from batchfit.fields import Field

MICRO_BATCH = Field(
    name="micro_batch",
    symbol="b",
    label="Micro-batch size",
    help="Samples that one GPU runs through forward and backward at a time.",
    kind="whole",
    unit="samples",
    counted=counted.SAMPLES,
    minimum=1,
    maximum=2**12,
    default="4",
    group="Batching",
)

ACCUMULATION_STEPS = Field(
    name="accumulation_steps",
    symbol="a",
    label="Accumulation steps",
    help="Micro-batches whose gradients are added up before the optimizer takes one step.",
    kind="whole",
    unit="steps",
    counted=counted.STEPS,
    minimum=1,
    maximum=2**20,
    default="8",
    group="Batching",
)

REPLICAS = Field(
    name="replicas",
    symbol="g",
    label="Data-parallel GPUs",
    help="Copies of the model that each work on different samples. "
    "GPUs that share one copy (tensor or pipeline parallelism) count once.",
    kind="whole",
    unit="GPUs",
    counted=counted.GPUS,
    minimum=1,
    maximum=2**20,
    default="8",
    group="Training",
)

SEQUENCE_LENGTH = Field(
    name="sequence_length",
    symbol="s",
    label="Sequence length",
    help="Tokens of each sample.",
    kind="whole",
    unit="tokens",
    counted=counted.TOKENS,
    minimum=1,
    maximum=2**30,
    default="4096",
    group="Batching",
)

EFFECTIVE_BATCH_SIZE = Field(
    name="effective_batch_size",
    symbol="E",
    label="Effective batch size",
    help="Samples that contribute to one optimizer step: micro-batch × accumulation steps × GPUs.",
    kind="whole",
    unit="samples",
    counted=counted.SAMPLES,
    minimum=1,
    maximum=2**40,
    default="256",
    group="Training",
)

GPUS = Field(
    name="gpus",
    symbol="n",
    label="GPUs",
    help="All GPUs that train together.",
    kind="whole",
    unit="GPUs",
    counted=counted.GPUS,
    minimum=1,
    maximum=10**6,
    default="64",
    group="Parallelism",
)

LAYERS = Field(
    name="layers",
    symbol="L",
    label="Layers",
    help="Transformer blocks of the model.",
    kind="whole",
    unit="layers",
    counted=counted.LAYERS,
    minimum=1,
    maximum=1000,
    default="32",
    group="Model",
)

HIDDEN_SIZE = Field(
    name="hidden_size",
    symbol="h",
    label="Hidden size",
    help="Width of the model: the values that a token has between two layers.",
    kind="whole",
    unit="",
    minimum=16,
    maximum=2**17,
    default="4096",
    group="Model",
)

KEY_VALUE_DIM = Field(
    name="key_value_dim",
    symbol="k",
    label="Width of keys and values",
    help="Key-value heads times head size. With grouped queries it is smaller than the hidden size.",
    kind="whole",
    unit="",
    minimum=1,
    maximum=2**17,
    default="4096",
    group="Model",
)

INTERMEDIATE_SIZE = Field(
    name="intermediate_size",
    symbol="i",
    label="Intermediate size",
    help="Width of the MLP inside a layer.",
    kind="whole",
    unit="",
    minimum=1,
    maximum=2**19,
    default="11008",
    group="Model",
)

VOCABULARY = Field(
    name="vocabulary",
    symbol="V",
    label="Vocabulary",
    help="Tokens that the model knows: rows of its embedding and of its output layer.",
    kind="whole",
    unit="tokens",
    minimum=1,
    maximum=2**21,
    default="32000",
    group="Model",
)

GPU_HOURS = Field(
    name="gpu_hours",
    symbol="h",
    label="GPU-hours",
    help="Hours times GPUs: 8 GPUs for a week are 1,344.",
    kind="number",
    unit="GPU-hours",
    counted=counted.GPU_HOURS,
    minimum=1,
    maximum=1e12,
    default="1000",
    suffixes=True,
    group="Budget",
)

PEAK_TFLOPS = Field(
    name="peak_tflops",
    symbol="P",
    label="Peak of one GPU",
    help="Dense 16-bit matrix products, in 10¹² operations per second. A card from the list fills it in.",
    kind="number",
    unit="TFLOP/s",
    counted=counted.TFLOPS_A_SECOND,
    minimum=1,
    maximum=1e6,
    default="989",
    group="Hardware",
)

UTILISATION = Field(
    name="utilisation",
    symbol="u",
    label="Utilisation",
    help="The share of the peak that is really executed. 30 to 50% is usual in well-tuned training.",
    kind="share",
    unit="%",
    minimum=0.01,
    maximum=1,
    default="40",
    step="5",
    group="Hardware",
)
