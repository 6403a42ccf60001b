"""`batchfit trace` as a person or a program calls it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from batchfit.cli import cli
from batchfit.cli._sample_lengths import Reserved, SampleLengths
from batchfit.palette import PARTS
from batchfit.profile import MemoryProfile

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.torch

CONFIGS = Path(__file__).parent.parent / "cases" / "configs"
GIB = 2**30

CONTRACT = {
    "profile",
    "peak",
    "states",
    "activation_per_sample_bytes",
    "parameters",
    "trainable_parameters",
    "ledger",
    "assumptions",
    "versions",
    "seconds",
}

NETWORK = """
import torch
from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        print("a person's own chatter")
        x = F.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3)))


def training():
    def batch(b):
        return torch.zeros(b, 3, 32, 32), torch.zeros(b, dtype=torch.long)

    return Net(), batch, lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])


def wrong():
    return 3
"""


def run(*arguments: object, columns: int = 120) -> Result:
    words = ["trace", *map(str, arguments)]
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, words, prog_name="batchfit")


def answer(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trace")
    (made / "net.py").write_text(NETWORK, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def mistral(folder: Path) -> Path:
    """The profile of a published run: Mistral-7B, bf16, full checkpointing, AdamW, 4096 tokens."""
    saved = folder / "mistral.json"
    result = run(
        CONFIGS / "mistral-7b.json", "--seq-len", 4096, "--micro-batch", 4, "--precision", "bf16",
        "--optimizer", "adamw", "--checkpointing", "full", "--save", saved, "--json"
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return saved


# ---- Published runs ----------------------------------------------------------------------------------------------


def test_llama_3_1_8b_counts_what_the_model_has() -> None:
    data = answer(
        CONFIGS / "llama-3.1-8b.json", "--seq-len", 1024, "--precision", "bf16", "--optimizer", "adamw"
    )
    assert set(data) >= CONTRACT
    assert data["parameters"] == data["trainable_parameters"] == 8030261248
    assert data["states"]["weights_bytes"] == 16060522496
    assert data["activation_per_sample_bytes"] == sum(e["bytes_per_sample"] for e in data["ledger"])
    assert {"where", "code", "bytes_per_sample", "fixed_bytes"} <= set(data["ledger"][0])
    assert sum(data["peak"]["parts"].values()) == data["peak"]["allocated_bytes"]


@pytest.mark.parametrize("micro_batch", [4, 8])
def test_mistral_7b_takes_what_was_measured(mistral: Path, micro_batch: int) -> None:
    peak = answer(mistral, "--micro-batch", micro_batch)["peak"]
    assert peak["allocated_bytes"] / GIB == pytest.approx(67.46, rel=0.002)
    assert peak["binding_phase"] == "optimizer_step"


def test_llama_3_2_3b_with_adapters_takes_what_was_measured() -> None:
    peak = answer(
        CONFIGS / "llama-3.2-3b.json", "--seq-len", 768, "--micro-batch", 4, "--precision", "bf16",
        "--lora", 32, "--lora-targets", "q_proj,v_proj"
    )["peak"]  # fmt: skip
    assert peak["allocated_bytes"] <= 20.75 * GIB <= peak["reserved_bytes"]
    assert peak["allocated_bytes"] / GIB == pytest.approx(20.744, rel=0.02)


# ---- Files -------------------------------------------------------------------------------------------------------


def test_a_persons_own_network_and_its_lines(folder: Path) -> None:
    data = answer(f"{folder / 'net.py'}:training", "--precision", "fp32")
    lines = {entry["where"]: entry["code"] for entry in data["ledger"]}
    number = next(n for n, text in enumerate(NETWORK.splitlines(), 1) if "F.relu" in text)
    assert lines[f"{folder / 'net.py'}:{number}"] == "x = F.relu(self.norm(self.conv(x)))"


def test_a_profile_that_is_saved_says_the_same(folder: Path) -> None:
    saved, again = folder / "net.json", folder / "again.json"
    words = (f"{folder / 'net.py'}:training", "--precision", "fp32")
    first = answer(*words, "--save", saved)
    assert answer(saved)["profile"] == first["profile"] == json.loads(saved.read_text("utf-8"))
    answer(*words, "--save", again)
    one, other = MemoryProfile.load(saved), MemoryProfile.load(again)
    # But for when and how long.
    for name in ("model", "settings", "states", "phases", "reserved", "compute", "ledger", "affinity"):
        assert getattr(one, name) == getattr(other, name), name


def test_a_snapshot_is_of_all_blocks(folder: Path) -> None:
    config = json.loads((CONFIGS / "llama-3.2-3b.json").read_text("utf-8"))
    small = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "vocab_size": 200}
    config |= small | {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 9}
    config |= {"bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = folder / "step.pickle"
    data = answer(folder, "--seq-len", 32, "--micro-batch", 3, "--snapshot", path)
    snapshot = pickle.loads(path.read_bytes())
    modules = {entry.get("user_metadata", "") for entry in snapshot["device_traces"][0]}
    assert any("model.layers" in text for text in modules)
    allocated = highest = 0
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            allocated += -(-event["size"] // 512) * 512
        elif event["action"] == "free_completed":
            allocated -= -(-event["size"] // 512) * 512
        highest = max(highest, allocated)
    steps = answer(folder, "--seq-len", 32, "--micro-batch", 3, "--accumulation-steps", 2)["peak"]
    assert highest == pytest.approx(steps["allocated_bytes"], rel=0.001)
    assert data["profile"]["model"]["units"][0]["count"] == 9


def test_a_range_of_lengths(folder: Path) -> None:
    data = answer(CONFIGS / "gpt2.json", "--seq-len", "256..1024", "--precision", "bf16-mixed")
    assert data["seq_len"] == data["profile"]["seq_len"]["maximum"] == 1024
    assert data["profile"]["seq_len"]["minimum"] == 256


def test_samples_of_several_lengths(tmp_path: Path) -> None:
    file = tmp_path / "tokens.txt"
    file.write_text("300\n512, 700\n64\n" + "900 1024\n" * 4)
    data = answer(CONFIGS / "gpt2.json", "--lengths", file, "--micro-batch", 2)
    assert (data["profile"]["seq_len"]["minimum"], data["profile"]["seq_len"]["maximum"]) == (64, 1024)
    told = data["reserved_over_lengths"]
    assert told["in_order_bytes"] > 1.1 * told["longest_first_bytes"]
    assert told["longest_first_bytes"] >= told["expandable_bytes"] > data["peak"]["allocated_bytes"]
    shown = run(CONFIGS / "gpt2.json", "--lengths", file, "--micro-batch", 2).output
    assert "12 samples of 64 to 1,024 tokens" in shown
    assert "expandable_segments:True" in shown


@pytest.mark.parametrize(
    ("first", "expandable", "advised"), [(99, 100, False), (50, 100, True), (100, 60, True)]
)
def test_an_order_that_costs_nothing_needs_no_advice(first: int, expandable: int, advised: bool) -> None:
    lengths = SampleLengths([8, 9, 7], 2)
    lengths.reserved = Reserved(100 * GIB, first * GIB, expandable * GIB)
    assert "3 samples of 7 to 9 tokens, in the order of the file: PyTorch reserves up to 100 GiB." in (
        lengths.sentence()
    )
    assert ("expandable_segments:True" in lengths.sentence()) is advised


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has none"),
        ("12 -4", "has '-4'"),
        ("12 3.5", "has '3.5'"),
        ("0", "has '0'"),
        ("tokens", "has 'tokens'"),
    ],
)
def test_a_file_without_lengths_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "tokens.txt"
    file.write_text(text)
    found = run(CONFIGS / "gpt2.json", "--lengths", file)
    assert found.exit_code == 2
    assert f"--lengths must be a file of whole numbers, the tokens of each sample; {file} {said}" in " ".join(
        found.stderr.split()
    )


def test_a_replica_of_several_holds_less(mistral: Path) -> None:
    alone, sharded = answer(mistral), answer(mistral, "--sharding", "fsdp", "--replicas", 8)
    assert sharded["peak"]["allocated_bytes"] < alone["peak"]["allocated_bytes"] / 2
    assert sharded["states"]["optimizer_bytes"] < alone["states"]["optimizer_bytes"] / 7


def test_flat_parameters_of_fsdp1() -> None:
    asked = (CONFIGS / "gpt2.json", "--seq-len", 64, "--lora", 4, "--lora-targets", "c_attn")
    sharded = ("--sharding", "fsdp1", "--replicas", 8)
    apart, flat = answer(*asked, *sharded), answer(*asked, *sharded, "--flat-gradients")
    assert apart["profile"]["settings"]["sharding"] == "fsdp1"
    # Frozen weights of the blocks have gradients, too, and the optimizer steps adapters alone.
    assert flat["states"]["gradients_bytes"] > 100 * apart["states"]["gradients_bytes"]
    assert flat["states"]["optimizer_bytes"] == apart["states"]["optimizer_bytes"]


def test_16_bit_weights_under_autocast() -> None:
    asked = (CONFIGS / "gpt2.json", "--seq-len", 64)
    plain, autocast = answer(*asked), answer(*asked, "--precision", "bf16-autocast")
    assert autocast["states"] == plain["states"]
    assert autocast["profile"]["settings"]["precision"] == "bf16-autocast"


# ---- For people --------------------------------------------------------------------------------------------------


def test_the_answer_for_people(mistral: Path) -> None:
    result = run(mistral, "--micro-batch", 4)
    assert result.exit_code == 0, result.output
    paragraphs = result.stdout.split("\n\n")
    assert paragraphs[0].startswith(
        "67.46 GiB at micro-batch 4 of 4,096 tokens: the optimizer step binds. PyTorch reserves "
    )
    bar, legend = paragraphs[1].splitlines()[:2]
    # The parts in their order, drawn to scale as wide as the terminal.
    assert [part for part in PARTS if part in legend] == sorted(
        (part for part in PARTS if part in legend), key=legend.index
    )
    assert len(bar) == 120
    assert bar.count("█") / len(bar) == pytest.approx(13.49 / 67.46, abs=0.01)
    assert "▶ optimizer step" in result.stdout
    assert "hidden_states = residual + hidden_states" in result.stdout
    assert "× 31" in result.stdout
    assert "↳ --loss fused" in result.stdout
    assert "100%" in result.stdout
    assert f"batchfit plan {mistral}" in result.stdout


@pytest.mark.parametrize("columns", [72, 100, 160])
def test_it_fits_the_terminal(mistral: Path, columns: int) -> None:
    lines = run(mistral, columns=columns).stdout.splitlines()
    assert max(len(line) for line in lines if not line.startswith("  batchfit")) <= columns


def test_the_ledger_is_as_long_as_asked(mistral: Path) -> None:
    assert "further lines" in run(mistral, "--ledger", 2).stdout
    assert "per sample of" not in run(mistral, "--ledger", 0).stdout


def test_chatter_stays_off_the_answer(folder: Path) -> None:
    result = run(f"{folder / 'net.py'}:training", "--json")
    assert json.loads(result.stdout)
    assert "chatter" not in result.stdout


def test_help_shows_examples() -> None:
    text = run("--help").stdout
    assert "batchfit trace config.json --seq-len 4096" in text
    for option in (
        "--seq-len",
        "--input",
        "--lora-targets",
        "--sharding",
        "--snapshot",
        "--no-fold",
        "--ledger",
    ):
        assert option in text


# ---- What cannot be used -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.json"], "missing.json cannot be read: No such file or directory"),
        (["nonsense"], "MODEL must be a config.json or its folder"),
        (["{net}:nothing"], "has no function nothing; it has"),
        (["{net}:wrong"], "must return a batchfit.Training"),
        (["{net}:training", "--seq-len", "x"], "--seq-len must be a number of tokens such as 1024"),
        (["{net}:training", "--seq-len", "64"], "--seq-len is 64, and the batches are no token ids"),
        (["{net}:training", "--input", "3x32"], "--input must be channels, height and width such as 3x224x224"),
        (["{net}:training", "--optimizer", "adamm"], "--optimizer must be one of sgd"),
        (["{net}:training", "--micro-batch", "0"], "'--micro-batch': 0 is not in the range"),
        (["{net}:training", "--precision", "fp8"], "'--precision': 'fp8' is not one of"),
        (["{net}:training", "--lora-targets", "a"], "--lora-targets needs adapters; give their rank with --lora"),
        (["{net}:training", "--quantize", "nf4"], "--quantize needs adapters to train (lora)"),
        (["{net}:training", "--replicas", "8"], "--replicas needs a --sharding"),
        (["{net}:training", "--save", "{folder}/no/p.json"], "--save {folder}/no/p.json: there is no folder"),
        (["{net}:training", "--checkpointing", "full"], "--checkpointing full needs repeated blocks"),
        (["{mistral}", "--precision", "fp32"], "--precision cannot be changed in"),
        (["{mistral}", "--seq-len", "9"], "--seq-len must be between 4,096 and 4,096 tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_in_one_line(
    folder: Path, mistral: Path, words: list[str], says: str
) -> None:
    names = {"net": folder / "net.py", "folder": folder, "mistral": mistral}
    result = run(*(word.format(**names) for word in words))
    assert result.exit_code == 2, result.output
    assert says.format(**names) in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_an_unknown_architecture_says_which_are_known(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "lama", "architectures": ["LamaForCausalLM"]}))
    result = run(config)
    assert result.exit_code == 2
    assert "'lama'" in result.stderr
    assert "llama" in result.stderr


def test_a_missing_extra_names_the_command_that_installs_it(tmp_path: Path) -> None:
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        textwrap.dedent("""
        import importlib.util
        real = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "torch" else real(name, *rest)
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "batchfit", "trace", str(CONFIGS / "gpt2.json")],
        env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'batchfit[trace]'" in done.stderr


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    program = NETWORK.replace(
        "    return Net(), batch,",
        "    import sys, time\n    print('ready', flush=True)\n    time.sleep(60)\n    return Net(), batch,",
    )
    (tmp_path / "net.py").write_text(program, encoding="utf-8")
    words = ["trace", "net.py:training", "--save", "p.json", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "batchfit", *words],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        # A shell's background jobs ignore interrupts, and hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stderr is not None
    # What a person's code prints goes to the standard error, so that --json stays clean.
    assert process.stderr.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (1, 130)
    assert out == ""
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["net.py"]
