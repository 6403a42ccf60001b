"""Reading a person's file: what is understood, and what is said of a value that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchfit import frameworks
from batchfit.errors import BadInput
from batchfit.settings import TrainingSettings
from tests.frameworks.strategies import planned

AXOLOTL = "base_model: gpt2\nmicro_batch_size: 2\ndatasets: []\n"
TRAINER = "output_dir: out\nper_device_train_batch_size: 4\n"


def read(text: str, filename: str = "") -> TrainingSettings:
    return frameworks.read_settings(text, filename=filename)[1]


def message(text: str, filename: str = "") -> str:
    with pytest.raises(BadInput) as caught:
        frameworks.read_settings(text, filename=filename)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            AXOLOTL + "gradient_accumulation_steps: 2.5\n",
            "gradient_accumulation_steps: must be a whole number of 1 or more; the file says 2.5",
        ),
        (
            TRAINER + "bf16: maybe\n",
            "bf16: must be true or false; the file says 'maybe'",
        ),
        (TRAINER + "bf16: true\nfp16: true\n", "fp16: must be false where bf16 is true; the file says True"),
        (
            '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 3}',
            "train_batch_size: must be train_micro_batch_size_per_gpu × gradient_accumulation_steps × GPUs; "
            "256 is no multiple of 3 × 1",
        ),
        (
            '{"train_batch_size": 256, "zero_optimization": {"stage": 4}}',
            "zero_optimization.stage: must be 0, 1, 2 or 3; the file says 4",
        ),
        (
            '{"train_batch_size": 8, "zero_optimization": [1]}',
            "zero_optimization: must be a section of keys and values; the file says [1]",
        ),
        (
            "[training]\nlocal_batch_size = 4\nglobal_batch_size = 30\n"
            "[parallelism]\ndata_parallel_shard_degree = 2\n",
            "training.global_batch_size: must be a multiple of 4 × 2; it is 30",
        ),
        (
            "trainer:\n  devices: 2\n  precision: bf17\n",
            "trainer.precision: must be one of 32-true, bf16-true, 16-true, bf16-mixed, 16-mixed, 32, 16, "
            "bf16; the file says 'bf17'",
        ),
        ("hello: there\n", "file: must hold settings of one of accelerate, axolotl"),
        ("a: [1\n", "file: is not valid YAML: "),
        ('{"a": \n', "file: is not valid JSON: Expecting value"),
        ("just words\n", "file: must hold keys and values; it holds 'just words'"),
        ("[" * 5000 + "\n", "file: is not valid YAML: it is nested too deeply"),
        ("a: " + "x" * 1_000_001 + "\n", "file: must be at most 1,000,000 characters; it has 1,000,005"),
    ],
)
def test_a_value_that_cannot_be_used_is_restated_by_its_key(text: str, said: str) -> None:
    assert message(text).startswith(said)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert message(str(missing)) == f"file: cannot be read: {missing}: No such file or directory"
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert message(str(tmp_path / "binary.yaml")).startswith("file: must be text in UTF-8; ")
    assert "Is a directory" in message(str(tmp_path))


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "training.yaml"
    path.write_text(TRAINER)
    assert frameworks.read_settings(path) == frameworks.read_settings(str(path))
    assert frameworks.read_settings(path)[0] == "trainer"


def test_a_framework_that_is_not_known() -> None:
    with pytest.raises(BadInput, match=r"framework: must be one of accelerate, .*; you gave 'jax'"):
        frameworks.emit("jax", TrainingSettings(micro_batch=1, accumulation_steps=1))
    with pytest.raises(BadInput, match="framework: PyTorch FSDP2 cannot be read back: it is a program"):
        frameworks.read_settings("import torch\n", name="fsdp2")


def test_a_file_that_two_could_own_asks_which() -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: NO\nglobal_train_batch_size: 8\n"
    assert message(text) == "file: could be settings of accelerate or composer: say which"
    assert frameworks.read_settings(text, name="composer")[1].effective_batch == 8


def test_auto_in_deepspeed_is_not_known() -> None:
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    said = dict.fromkeys(keys, "auto") | {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}
    assert read(json.dumps(said)) == TrainingSettings(sharding="zero3")


@pytest.mark.parametrize(
    ("said", "replicas", "steps"),
    [
        (
            {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8},
            8,
            8,
        ),
        ({"train_micro_batch_size_per_gpu": 4}, None, 1),
        ({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4}, None, None),
        ({"train_batch_size": 256}, None, 1),
    ],
)
def test_deepspeed_fills_in_the_batch(said: dict[str, Any], replicas: int | None, steps: int | None) -> None:
    found = read(json.dumps(said))
    assert (found.replicas, found.accumulation_steps) == (replicas, steps)


@pytest.mark.parametrize(
    ("lines", "precision"),
    [
        ("", None),
        ("bf16: true\n", "bf16-mixed"),
        ("fp16: true\n", "fp16-mixed"),
        ("bf16: true\nfsdp: full_shard auto_wrap\n", "bf16-mixed"),
    ],
)
def test_precision_of_training_arguments(lines: str, precision: str | None) -> None:
    assert read(TRAINER + lines).precision == precision


@pytest.mark.parametrize(
    ("lines", "precision"),
    [
        ("dtype: bfloat16\nbf16: true\n", "bf16"),  # autocast over 16-bit weights keeps no 32-bit copy
        ("dtype: float32\nbf16: true\n", "bf16-mixed"),
        ("dtype: float32\nbf16: false\n", "fp32"),
        ("dtype: bfloat16\nbf16: true\nfsdp: true\n", "bf16-mixed"),  # FSDP raises what it trains
        ("dtype: bfloat16\nbf16: true\nfsdp: true\nuse_peft: true\n", "bf16"),  # but not frozen weights
        ("torch_dtype: bfloat16\nbf16: true\nload_in_4bit: true\nuse_peft: true\n", "bf16-mixed"),
        ("", "bf16-mixed"),  # TRL turns autocast on by itself
    ],
)
def test_precision_where_the_weights_are_known(lines: str, precision: str) -> None:
    assert read(TRAINER + "max_length: 1024\nmodel_name_or_path: gpt2\n" + lines).precision == precision


@pytest.mark.parametrize(
    ("lines", "sharding"),
    [
        ("fsdp: full_shard auto_wrap\n", "fsdp"),
        ("fsdp: [shard_grad_op, auto_wrap]\n", "zero2"),
        ("fsdp: true\nfsdp_config:\n  reshard_after_forward: false\n", "zero2"),
        ("fsdp: true\n", "fsdp"),
        ("fsdp: no_shard\n", "ddp"),
        ("deepspeed:\n  zero_optimization:\n    stage: 1\n", "zero1"),
        ("deepspeed: ds_config.json\n", None),
        ("", None),
    ],
)
def test_sharding_of_training_arguments(lines: str, sharding: str | None) -> None:
    assert read(TRAINER + lines).sharding == sharding


def test_what_settings_cannot_hold_is_noted() -> None:
    notes = read(AXOLOTL + "optimizer: adamw_torch_4bit\ngradient_checkpointing: offload\n").notes
    assert "optimizer adamw_torch_4bit is not one of batchfit's optimizers." in notes
    assert "Checkpoints are offloaded to the host; they are counted on the GPU." in notes


SCRIPT = """#!/bin/bash
GPUS_PER_NODE=${{GPUS:-8}}
NNODES=2
MBS="4"
export GBS=256
{arguments}
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes=${{NNODES}} pretrain_gpt.py {use}
"""


@pytest.mark.parametrize(
    ("arguments", "use"),
    [
        (
            "ARGS=(\n  --micro-batch-size $MBS  # comment\n  --global-batch-size $GBS\n  --bf16\n)",
            '"${ARGS[@]}"',
        ),
        ('ARGS="\n  --micro-batch-size ${MBS} \\\n  --global-batch-size ${GBS} \\\n  --bf16\n"', "$ARGS"),
        ('ARGS+=("--micro-batch-size $MBS" "--global-batch-size $GBS" "--bf16")', "${ARGS[@]}"),
        ("", "--micro-batch-size=4 --global-batch-size=256 --bf16"),
    ],
)
def test_megatron_scripts_of_every_quoting(arguments: str, use: str) -> None:
    found = read(SCRIPT.format(arguments=arguments, use=use), "train.sh")
    assert (found.micro_batch, found.accumulation_steps, found.replicas, found.nodes) == (4, 4, 16, 2)
    assert found.precision == "bf16-mixed"


def test_megatron_gpus_that_share_a_replica() -> None:
    script = SCRIPT.format(arguments="", use="--micro-batch-size 4 --global-batch-size 256 {split}")
    split = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2"
    found = read(script.replace("{split}", split), "train.sh")
    assert (found.replicas, found.accumulation_steps) == (2, 32)
    unset = read(script.replace("{split}", "--tensor-model-parallel-size 32"), "train.sh")
    assert unset.replicas is None
    assert any("set the nodes" in note for note in unset.notes)


NEMO = """
import nemo_run as run
from nemo.collections import llm

MICRO = 2
raise SystemExit("this must not run")
recipe = llm.llama3_8b.finetune_recipe(name="mine", num_nodes=2, num_gpus_per_node=8, peft_scheme="lora")
recipe.data.micro_batch_size = 1
recipe.data.micro_batch_size = MICRO
recipe.data.global_batch_size = 64
recipe.trainer.max_steps = steps()
recipe.trainer.strategy.tensor_model_parallel_size = {split}
recipe.model.config.recompute_granularity = "selective"
recipe.optim.config.use_distributed_optimizer = False
recipe.peft.dim = 16
recipe.peft.target_modules = ["linear_qkv", "linear_proj"]
"""


def test_a_nemo_script_is_read_and_never_run() -> None:
    found = read(NEMO.format(split=1), "train.py")
    assert (found.micro_batch, found.accumulation_steps, found.replicas, found.nodes) == (2, 2, 16, 2)
    assert (found.checkpointing, found.sharding, found.lora_rank) == ("selective", "ddp", 16)
    assert found.lora_targets == ("q_proj", "k_proj", "v_proj", "o_proj")
    assert found.model == "llama3_8b"
    # The recipe decides these.
    assert (found.precision, found.optimizer, found.attention, found.seq_len) == (None, None, None, None)


def test_nemo_gpus_that_share_a_replica() -> None:
    found = read(NEMO.format(split=4), "train.py")
    assert (found.replicas, found.accumulation_steps) == (4, 8)
    assert "tensor_model_parallel_size splits each replica over 4 GPUs." in found.notes
    eight = read(NEMO.format(split=1) + "recipe.trainer.plugins = bf16_with_fp8_mixed()\n", "train.py")
    assert eight.precision == "bf16-mixed"
    assert eight.notes == ("bf16_with_fp8_mixed computes in 8 bits, which batchfit does not model.",)
    with pytest.raises(BadInput, match=r"^data.global_batch_size: must be a multiple of 2 × 16; it is 60$"):
        read(NEMO.format(split=1).replace("= 64", "= 60"), "train.py")


def test_python_is_parsed_and_never_run() -> None:
    source = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments
raise SystemExit("this must not run")
STEPS = 8
tokenizer = AutoTokenizer.from_pretrained("other")
model = AutoModelForCausalLM.from_pretrained("gpt2", dtype=torch.bfloat16, attn_implementation="sdpa")
args = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=STEPS,
                         learning_rate=find_rate(), optim="adafactor", bf16=True)
"""
    assert frameworks.read_settings(source) == (
        "trainer-python",
        TrainingSettings(
            micro_batch=4,
            accumulation_steps=8,
            precision="bf16",
            optimizer="adafactor",
            checkpointing="none",
            attention="sdpa",
            model="gpt2",
        ),
    )


def test_references_within_a_file_are_followed() -> None:
    text = "variables:\n  b: 16\nglobal_train_batch_size: ${variables.b}\nmax_seq_len: ${oc.env:LENGTH}\n"
    assert read(text).effective_batch == 16
    assert read(text).seq_len is None
    assert read("global_train_batch_size: ${global_train_batch_size}\n").effective_batch is None


READABLE = [name for name in frameworks.names() if frameworks.framework(name).read]


def outcome(text: str, name: str | None, filename: str = "") -> object:
    """What comes of reading: settings, or the refusal. Anything else that is raised fails the test."""
    try:
        return frameworks.read_settings(text, name=name, filename=filename)[1]
    except BadInput as refused:
        return refused


@pytest.mark.parametrize("name", READABLE)
@given(text=st.text(max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    assert isinstance(outcome(text + "\n", name), TrainingSettings | BadInput)
    assert isinstance(outcome(text + "\n", None), TrainingSettings | BadInput)


ALIASES = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 8)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
VARIABLES = "V0=xxxxxxxxxx\n" + "".join(f"V{n + 1}=$V{n}$V{n}$V{n}$V{n}\n" for n in range(30))


@pytest.mark.parametrize(
    "text",
    [
        AXOLOTL.replace("datasets: []\n", ALIASES).replace("micro_batch_size: 2", "micro_batch_size: *i")
        + "sequence_len: *i\n",
        ALIASES + AXOLOTL + "sequence_len: *i\n",
        "#!/bin/sh\n" + VARIABLES + "x --micro-batch-size $V30\n",
        "x" * 900_000 + "\n",
        " \n" * 400_000 + "a: 1\n",
        "a.b " * 200_000 + "\n",
        "base_model: gpt2\nmicro_batch_size: 0x" + "f" * 20_000 + "\n",
    ],
    ids=["unanchored", "aliases", "variables", "one word", "blank lines", "dots", "digits"],
)
def test_a_text_made_to_keep_a_reader_busy_is_refused(text: str) -> None:
    assert isinstance(outcome(text, None), BadInput)


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JUNK = st.recursive(
    LEAF, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3)
)
DATA_FILES = ("accelerate", "axolotl", "composer", "deepspeed", "lightning", "llamafactory", "torchtitan")


def places(data: Any) -> list[tuple[dict[str, Any], str]]:
    """Every key of a nested mapping, with the mapping it is in."""
    if not isinstance(data, dict):
        return []
    return [(data, key) for key in data] + [place for value in data.values() for place in places(value)]


@pytest.mark.parametrize("name", [*DATA_FILES, "torchtune", "trainer", "trl"])
@given(before=planned(), junk=JUNK, where=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_a_key_of_any_value_is_read_or_refused(
    name: str, before: TrainingSettings, junk: Any, where: Any
) -> None:
    """One key of a good file is given any value that JSON can hold; the file is then read as JSON."""
    yaml = pytest.importorskip("yaml")
    import tomllib

    text = frameworks.emit(name, before).text
    data = tomllib.loads(text) if name == "torchtitan" else yaml.safe_load(text)
    section, key = where.choice(places(data))
    section[key] = junk
    read_back = outcome(json.dumps(data), name, filename="settings.json")
    assert isinstance(read_back, TrainingSettings | BadInput)
