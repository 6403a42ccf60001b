"""Emitted files in the frameworks' own parsers, where those are installed."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from batchfit import frameworks
from batchfit.settings import TrainingSettings

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.gradient_checkpointing:FutureWarning"),  # the name 4.x knows
]

BASE = TrainingSettings(micro_batch=4, accumulation_steps=8, replicas=8, seq_len=2048, model="gpt2")
PRECISIONS = ("fp32", "bf16", "bf16-mixed")
CHECKPOINTING = ("none", "full", "selective")
UNSHARDED = ("none", "ddp", "fsdp")
ADAPTERS: tuple[dict[str, Any], ...] = (
    {},
    {"lora_rank": 16, "lora_targets": ("q_proj", "v_proj")},
    {"lora_rank": 8, "lora_targets": ("all-linear",), "quantize": "nf4"},
)


def variants(shardings: tuple[str, ...], optimizers: tuple[str, ...]) -> list[TrainingSettings]:
    """Every precision, checkpointing and sharding; the optimizers and adapters take turns."""
    product = itertools.product(PRECISIONS, CHECKPOINTING, shardings)
    turns = zip(product, itertools.cycle(optimizers), itertools.cycle(ADAPTERS), strict=False)
    return [
        dataclasses.replace(
            BASE,
            precision=precision,
            checkpointing=checkpointing,
            sharding=sharding,
            optimizer=optimizer,
            **adapter,
        )
        for (precision, checkpointing, sharding), optimizer, adapter in turns
    ]


def naming(settings: TrainingSettings) -> str:
    return f"{settings.precision}-{settings.checkpointing}-{settings.sharding}-{settings.optimizer}"


HF_OPTIMIZERS = ("adamw", "adamw-fused", "adamw-8bit", "adafactor", "lion", "sgd", "momentum", "adam")


def check_training_arguments(parsed: Any, settings: TrainingSettings) -> None:
    """What transformers made of the file is what was planned."""
    assert parsed.per_device_train_batch_size == 4
    assert parsed.gradient_accumulation_steps == 8
    assert parsed.bf16 == (settings.precision == "bf16-mixed")
    if settings.sharding == "fsdp":
        assert parsed.fsdp_plugin_args["fsdp_version"] == 2
        assert parsed.fsdp_plugin_args["reshard_after_forward"] is True
        planned = settings.checkpointing != "none"
        assert bool(parsed.fsdp_plugin_args.get("activation_checkpointing")) == planned
        assert not parsed.gradient_checkpointing  # both at once would gather the weights twice
    else:
        assert bool(parsed.gradient_checkpointing) == (settings.checkpointing != "none")
    named = {
        "adamw": "adamw_torch",
        "adam": "adamw_torch",
        "adamw-fused": "adamw_torch_fused",
        "momentum": "sgd",
    }
    if settings.optimizer in named:
        assert parsed.optim == named[settings.optimizer]


@pytest.mark.parametrize("settings", variants(UNSHARDED, HF_OPTIMIZERS), ids=naming)
def test_transformers_reads_training_arguments(settings: TrainingSettings, tmp_path: Path) -> None:
    from transformers import HfArgumentParser, TrainingArguments

    path = tmp_path / "training.yaml"
    path.write_text(frameworks.emit("trainer", settings).text + "use_cpu: true\n")
    parser: Any = HfArgumentParser(TrainingArguments)  # type: ignore[arg-type]
    (parsed,) = parser.parse_yaml_file(str(path))
    check_training_arguments(parsed, settings)


@pytest.mark.filterwarnings("default")  # importing DeepSpeed warns of what it misses without a GPU
@pytest.mark.parametrize("name", ["trainer", "trl"])
def test_transformers_reads_zero(name: str, tmp_path: Path) -> None:
    """With the DeepSpeed section inline; transformers refuses one that contradicts its own arguments."""
    pytest.importorskip("deepspeed")
    for settings in variants(("zero1", "zero2", "zero3"), HF_OPTIMIZERS):
        check_zero(name, settings, tmp_path)


def check_zero(name: str, settings: TrainingSettings, tmp_path: Path) -> None:
    trl: Any = import_module("trl")
    transformers: Any = import_module("transformers")
    path = tmp_path / "training.yaml"
    path.write_text(frameworks.emit(name, settings).text + "use_cpu: true\n")
    parser: Any = transformers.HfArgumentParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig))
    _, parsed, _ = parser.parse_yaml_file(str(path))
    config = parsed.hf_deepspeed_config.config
    assert config["zero_optimization"]["stage"] == int((settings.sharding or "")[-1])
    assert config["train_micro_batch_size_per_gpu"] == 4
    assert config["gradient_accumulation_steps"] == 8
    assert config["bf16"]["enabled"] == parsed.bf16 == (settings.precision != "fp32")


@pytest.mark.parametrize("settings", variants(UNSHARDED, HF_OPTIMIZERS), ids=naming)
def test_the_python_of_transformers_runs(settings: TrainingSettings) -> None:
    source = frameworks.emit("trainer-python", settings).text
    on_cpu = source.replace('output_dir="out",', 'output_dir="out",\n    use_cpu=True,')
    namespace: dict[str, Any] = {}
    exec(compile(on_cpu, "train.py", "exec"), namespace)
    check_training_arguments(namespace["training_args"], settings)
    assert callable(namespace["load_model"])


@pytest.mark.parametrize("settings", variants(UNSHARDED, HF_OPTIMIZERS), ids=naming)
def test_trl_reads_its_configuration(settings: TrainingSettings, tmp_path: Path) -> None:
    trl: Any = import_module("trl")
    path = tmp_path / "sft.yaml"
    path.write_text(frameworks.emit("trl", settings).text + "use_cpu: true\n")
    parser: Any = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig))
    _, sft, model = parser.parse_args_and_config(["--config", str(path)])
    check_training_arguments(sft, settings)
    assert sft.max_length == 2048
    assert model.model_name_or_path == "gpt2"
    assert model.use_peft == bool(settings.lora_rank)
    assert model.load_in_4bit == (settings.quantize == "nf4")
    if settings.lora_rank:
        assert model.lora_r == settings.lora_rank
    if settings.precision in ("bf16", "fp32"):
        assert model.dtype == {"bf16": "bfloat16", "fp32": "float32"}[settings.precision]


@pytest.mark.parametrize(
    "settings", variants((*UNSHARDED, "zero1", "zero2", "zero3"), ("adamw-fused",)), ids=naming
)
def test_accelerate_reads_its_configuration(settings: TrainingSettings, tmp_path: Path) -> None:
    load_config_from_file: Any = import_module("accelerate.commands.config.config_args").load_config_from_file
    DistributedType: Any = import_module("accelerate.utils").DistributedType  # noqa: N806
    path = tmp_path / "accelerate.yaml"
    path.write_text(frameworks.emit("accelerate", settings).text)
    config = load_config_from_file(str(path))
    kinds = {"none": "NO", "ddp": "MULTI_GPU", "fsdp": "FSDP"}
    assert config.distributed_type == DistributedType(kinds.get(settings.sharding or "", "DEEPSPEED"))
    assert config.num_processes == 8
    assert config.mixed_precision == ("bf16" if settings.precision == "bf16-mixed" else "no")
    if settings.sharding == "fsdp":
        assert config.fsdp_config["fsdp_version"] == 2
    elif config.distributed_type == DistributedType.DEEPSPEED:
        assert config.deepspeed_config["zero_stage"] == int((settings.sharding or "")[-1])
        assert config.deepspeed_config["gradient_accumulation_steps"] == 8


def test_accelerate_launches_with_its_configuration(tmp_path: Path) -> None:
    """One process on the CPU; several need a GPU or MPI."""
    settings = dataclasses.replace(BASE, replicas=1, precision="bf16-mixed", sharding="none")
    text = frameworks.emit("accelerate", settings).text
    (tmp_path / "accelerate.yaml").write_text(text.replace("use_cpu: false", "use_cpu: true"))
    (tmp_path / "main.py").write_text(
        "from accelerate import Accelerator\n"
        "a = Accelerator(gradient_accumulation_steps=8)\n"
        "print('seen', a.num_processes, a.mixed_precision)\n"
    )
    command = ["-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml", "main.py"]
    result = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "seen 1 bf16" in result.stdout


SHARDED = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp")
DEEPSPEED_OPTIMIZERS = ("adamw", "adamw-fused", "adamw-single", "adam", "lion", "muon", "sgd", "adafactor")


class EightReplicas:
    """What DeepSpeed asks of a launcher: the number of data-parallel GPUs."""

    def get_data_parallel_world_size(self) -> int:
        return 8


@pytest.mark.filterwarnings("default")
def test_deepspeed_reads_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deepspeed")
    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 0)  # or it takes itself to be alone
    for settings in variants(SHARDED, DEEPSPEED_OPTIMIZERS):
        check_deepspeed(settings, tmp_path)


def check_deepspeed(settings: TrainingSettings, tmp_path: Path) -> None:
    DeepSpeedConfig: Any = import_module("deepspeed.runtime.config").DeepSpeedConfig  # noqa: N806
    path = tmp_path / "ds_config.json"
    path.write_text(frameworks.emit("deepspeed", settings).text)
    config = DeepSpeedConfig(str(path), mpu=EightReplicas())
    assert config.train_batch_size == 256
    assert config.train_micro_batch_size_per_gpu == 4
    assert config.gradient_accumulation_steps == 8
    stages = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
    assert config.zero_optimization_stage == stages.get(settings.sharding or "", 0)
    assert config.bfloat16_config.enabled == (settings.precision != "fp32")


@pytest.mark.filterwarnings("default")  # jsonargparse and Lightning warn of each other
def test_lightning_reads_its_configuration(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("jsonargparse")
    for settings in variants(SHARDED, ("adamw",)):
        check_lightning(settings, tmp_path)


def check_lightning(settings: TrainingSettings, tmp_path: Path) -> None:
    pytorch: Any = import_module("lightning.pytorch")
    cli: Any = import_module("lightning.pytorch.cli")

    class Data(pytorch.LightningDataModule):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self, batch_size: int = 1) -> None:
            super().__init__()

    class Command(cli.LightningCLI):  # type: ignore[misc, name-defined, unused-ignore]
        """Parses and checks the file; makes no Trainer, which would look for 16 GPUs."""

        def instantiate_classes(self) -> None:
            pass

    path = tmp_path / "lightning.yaml"
    path.write_text(frameworks.emit("lightning", dataclasses.replace(settings, replicas=16, nodes=2)).text)
    read = Command(pytorch.LightningModule, Data, args=["--config", str(path)], run=False).config
    assert read.data.batch_size == 4
    assert read.trainer.accumulate_grad_batches == 8
    assert (read.trainer.devices, read.trainer.num_nodes) == (8, 2)
    precisions = {"fp32": "32-true", "bf16": "bf16-true", "bf16-mixed": "bf16-mixed"}
    assert read.trainer.precision == precisions[settings.precision or ""]


@pytest.mark.filterwarnings("default")
def test_axolotl_reads_its_configuration() -> None:
    pytest.importorskip("axolotl.utils.schemas.config", exc_type=ImportError)
    yaml: Any = import_module("yaml")
    AxolotlInputConfig: Any = import_module("axolotl.utils.schemas.config").AxolotlInputConfig  # noqa: N806
    needed = {"datasets": [{"path": "data", "type": "alpaca"}], "learning_rate": 1e-4}
    for settings in variants(SHARDED, (*HF_OPTIMIZERS, "muon")):
        config = AxolotlInputConfig(**yaml.safe_load(frameworks.emit("axolotl", settings).text), **needed)
        assert (config.micro_batch_size, config.gradient_accumulation_steps) == (4, 8)
        assert config.sequence_len == 2048
        assert config.lora_r == settings.lora_rank


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_lightning_trains_as_its_python_says(precision: str) -> None:
    """A step is taken once in eight micro-batches of four samples."""
    lightning: Any = pytest.importorskip("lightning")
    import torch

    settings = dataclasses.replace(BASE, replicas=1, sharding="none", precision=precision)
    source = frameworks.emit("lightning-python", settings).text
    quiet = (
        'accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False'
    )
    namespace: dict[str, Any] = {}
    exec(compile(source.replace('accelerator="gpu"', quiet), "train.py", "exec"), namespace)

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            self.sizes: list[int] = []

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            self.sizes.append(len(batch))
            loss: torch.Tensor = self.layer(batch.to(self.layer.weight.dtype)).mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model, trainer = Model(), namespace["make_trainer"]()
    data: Any = torch.zeros(128, 3)
    trainer.fit(model, namespace["make_loader"](data))
    assert set(model.sizes) == {4}
    assert (len(model.sizes), trainer.global_step) == (32, 4)
