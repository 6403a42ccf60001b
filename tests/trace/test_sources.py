"""Where models come from: configs, a hub, a person's own functions."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from batchfit.errors import BadInput
from batchfit.trace import Training
from batchfit.trace.run import trace

pytestmark = pytest.mark.torch

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in (TINY | changes).items() if value is not None}))
    return path


def test_a_config_or_its_folder(tmp_path: Path) -> None:
    path = write(tmp_path)
    by_file, by_folder = trace(str(path), seq_len=16), trace(str(tmp_path), seq_len=16)
    assert by_file.phases == by_folder.phases
    assert by_file.model.name == tmp_path.name
    assert by_file.settings["seq_len"] == 16
    assert by_file.seq_len is not None
    assert by_file.seq_len.maximum == 16
    assert trace(str(path), seq_len=32).activation_per_sample > by_file.activation_per_sample


def test_a_config_without_architectures_is_a_causal_language_model(tmp_path: Path) -> None:
    named = trace(str(write(tmp_path)), seq_len=16)
    assert trace(str(write(tmp_path, architectures=None)), seq_len=16).phases == named.phases


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {
                "model_type": "t5",
                "architectures": ["T5ForConditionalGeneration"],
                "d_model": 32,
                "num_layers": 2,
            },
            "t5",
        ),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, "bert"),
        ({"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 32}, "vit"),
    ],
)
def test_other_tasks(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    profile = trace(str(write(tmp_path, **changes)))
    assert profile.affinity.affine
    assert profile.activation_per_sample > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "lama"},
            r"config\.json: has the model_type 'lama', .* does not know; nearest are llama",
        ),
        ({"model_type": None}, r'config\.json: is not a transformers config: it has no "model_type"'),
        (
            {"architectures": ["LlamaForCausalLMM"]},
            r"names the architecture 'LlamaForCausalLMM', .*; nearest are LlamaForCausalLM, .* are known\)$",
        ),
        (
            {"architectures": ["Trainer"]},
            r"names the architecture 'Trainer', which transformers .* does not know",
        ),
        ({"hidden_size": "wide"}, r"config\.json: (is not a config of llama|does not make a model): "),
    ],
)
def test_configs_that_make_no_model(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        trace(str(write(tmp_path, **changes)))


@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed", "fp16-mixed"])
def test_experts_in_every_precision(tmp_path: Path, precision: str) -> None:
    path = write(tmp_path, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=4)
    profile = trace(str(path), seq_len=16, precision=precision)
    assert profile.affinity.affine
    assert profile.states.weights_bytes == profile.model.parameters * (2 if precision == "bf16" else 4)


def test_what_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing\.json: cannot be read: No such file or directory$"):
        trace("missing.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadInput, match=r"config\.json: is not JSON: "):
        trace(str(tmp_path))
    (tmp_path / "config.json").write_text('"' + "x" * (1 << 20) + '"')
    with pytest.raises(BadInput, match="is larger than 1 MiB"):
        trace(str(tmp_path))
    with pytest.raises(BadInput, match=r"^model: must be a config\.json .*; you gave 'llama'$"):
        trace("llama")


def test_no_code_that_a_config_names_is_run(tmp_path: Path) -> None:
    path = write(
        tmp_path, model_type="mine", auto_map={"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}
    )
    (tmp_path / "mine.py").write_text("raise SystemExit('this was run')")
    with pytest.raises(BadInput, match="has the model_type 'mine'"):
        trace(str(path))


def test_learned_positions_are_no_more_than_there_are(tmp_path: Path) -> None:
    path = write(
        tmp_path, model_type="gpt2", architectures=["GPT2LMHeadModel"], n_positions=64, n_head=4, n_embd=32
    )
    with pytest.raises(BadInput, match=r"^seq_len: must be at most 64 tokens, .*; you gave 65$"):
        trace(str(path), seq_len=65)


class _Hub(BaseHTTPRequestHandler):
    """A hub with one repository, `someone/tiny`, that notes what it is asked for."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        found = self.path == "/someone/tiny/resolve/main/config.json"
        body = json.dumps(TINY).encode() if found else b"{}"
        self.send_response(200 if found else 404)
        if not found:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Hub]]:
    import huggingface_hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    _Hub.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield _Hub
    server.shutdown()
    thread.join()
    server.server_close()


def test_only_the_config_is_fetched_from_the_hub(hub: type[_Hub]) -> None:
    profile = trace("hf:someone/tiny", seq_len=16)
    assert profile.model.name == "someone/tiny"
    assert hub.asked
    assert {path.rpartition("/")[2] for path in hub.asked} == {"config.json"}


def test_what_the_hub_does_not_have(hub: type[_Hub]) -> None:
    with pytest.raises(BadInput, match=r"^model: hf:someone/else has no config\.json that can be fetched: "):
        trace("hf:someone/else")
    with pytest.raises(
        BadInput, match=r"^model: must be hf:owner/name; you gave 'hf:a//b'|^model: must be hf:owner"
    ):
        trace("hf:a//b")


def test_timm_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(BadInput, match=r"^timm: is needed for timm:name .*: pip install timm$"):
        trace("timm:resnet50")


CODE = """
import torch
from torch import nn
from torch.nn import functional as F
from helper import WIDTH

def cnn():
    model = nn.Sequential(nn.Conv2d(3, WIDTH, 3), nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    model(torch.randn(1, 3, 16, 16))
    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])
    return model, lambda b: (torch.randn(b, 3, 16, 16), torch.zeros(b, dtype=torch.long)), loss

def huge():
    return nn.Linear(1 << 20, 1 << 20), lambda b: torch.zeros(b, 1 << 20), lambda m, x: m(x).sum()

def wrong():
    return nn.Linear(2, 2)

def reads():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)
        def forward(self, x):
            y = self.layer(x)
            if y.sum().item() > 0:
                return y.mean()
            return -y.mean()
    return Gated(), lambda b: torch.randn(b, 8)

def breaks():
    return nn.Linear(8, 8), lambda b: torch.randn(b, 9)

def no_loss():
    return nn.Linear(8, 8), lambda b: torch.randn(b, 8)
"""


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "helper.py").write_text("WIDTH = 16\n")
    path = tmp_path / "own.py"
    path.write_text(CODE)
    return str(path)


def test_a_function_in_a_file(code: str) -> None:
    profile = trace(f"{code}:cnn", precision="fp32")
    assert profile.affinity.affine
    assert profile.model.parameters == 3 * 16 * 9 + 16 + 32 + 16 * 14 * 14 * 10 + 10
    assert profile.activation_per_sample > 3 * 16 * 14 * 14 * 4


def test_a_model_of_four_tebibytes_takes_no_memory(code: str) -> None:
    assert trace(f"{code}:huge", precision="fp32").states.weights_bytes == 4 * ((1 << 40) + (1 << 20))


def test_a_function_in_a_module(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert trace("own:cnn").model == trace(f"{code}:cnn").model


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "wrong",
            r"own\.py:wrong: must return a batchfit\.Training\(model, make_batch\), .*; it returned Linear$",
        ),
        (
            "nothing",
            r"^model: .*own\.py has no function nothing; it has cnn, huge, wrong, reads, breaks, no_loss$",
        ),
        (
            "reads",
            r"own\.py:\d+: in forward, `if y\.sum\(\)\.item\(\) > 0:` needs the values of a tensor \(item\), ",
        ),
        ("breaks", r"^model: stopped with RuntimeError: .*\[2, 9\] X \[8, 8\]"),
        (
            "no_loss",
            r"^loss: must be a tensor of one number .* gave a tensor of shape \(2, 8\); give loss=\.\.\., ",
        ),
    ],
)
def test_functions_that_cannot_be_traced(code: str, function: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        trace(f"{code}:{function}")


def test_files_and_modules_that_are_not_there() -> None:
    with pytest.raises(BadInput, match=r"^model: there is no file none\.py$"):
        trace("none.py:f")
    with pytest.raises(BadInput, match=r"^model: no\.such\.module cannot be imported: "):
        trace("no.such.module:f")


def test_a_lightning_module_in_three_lines() -> None:
    class Lit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> dict[str, torch.Tensor]:
            return {"loss": self.layer(batch).mean()}

        def configure_optimizers(self) -> Any:
            return {"optimizer": torch.optim.SGD(self.parameters(), momentum=0.9), "lr_scheduler": None}

    def training() -> Training:
        return Training.lightning(Lit(), make_batch=lambda b: torch.randn(b, 8))

    profile = trace(training, precision="fp32")
    assert profile.model.name == "Lit"
    # Momentum keeps one buffer of the parameters' size, where AdamW would keep two.
    assert profile.states.optimizer_bytes == profile.states.weights_bytes
