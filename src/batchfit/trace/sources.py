"""Where a model comes from: a config file, the hub, timm, or a person's own function."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

from batchfit.errors import BadInput
from batchfit.extras import need
from batchfit.trace.diffusion import diffusion_training
from batchfit.trace.errors import explained
from batchfit.trace.gpu import Gpu
from batchfit.trace.inputs import Inputs, batches_for
from batchfit.trace.protocol import MakeBatch, Training, WholeStep, as_training
from batchfit.trace.settings import Settings

#: A model's config is a page of numbers; what is larger is something else.
_LARGEST_CONFIG = 1 << 20

_AUTO_CLASS = "AutoModelForCausalLM"


@dataclass(frozen=True, slots=True)
class Source:
    """A model on the pretended GPU, how to train on it, and what was taken for granted on the way.

    `at_length` makes batches of so many tokens, where batchfit makes them.
    """

    training: Training | WholeStep
    name: str
    assumptions: tuple[str, ...] = ()
    at_length: Callable[[int], MakeBatch] | None = None


def open_source(text: str, gpu: Gpu, settings: Settings, inputs: Inputs) -> Source:
    """The model that `text` names, made on `gpu`.

    A path to a `config.json` or its folder, `hf:owner/name` (only its config.json is fetched), `timm:name`,
    `FILE.py:FUNCTION` or `package.module:FUNCTION` (see `batchfit.trace.protocol`). No remote code is run.
    Raises BadInput where it is none of these, or cannot be found or read.
    """
    kind, _, rest = text.partition(":")
    if kind == "hf" and rest:
        return _from_config(_fetched(rest), rest, gpu, settings, inputs)
    if kind == "timm" and rest:
        return _from_timm(rest, gpu, inputs)
    path = Path(text)
    if path.is_dir():
        path /= "config.json"
    if path.suffix == ".json":
        return _from_config(path, _name(path), gpu, settings, inputs)
    where, _, function = text.rpartition(":")
    if where and function:
        return from_function(_found(where, function), f"{where}:{function}", gpu)
    raise BadInput(
        "model",
        "must be a config.json or its folder, hf:owner/name, timm:name, FILE.py:FUNCTION or package.module:FUNCTION; "
        "you gave {given}",
        given=repr(text),
    )


def _fetched(repository: str) -> Path:
    need("huggingface_hub", extra="hub", wanted_for="hf:owner/name")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, "config.json", endpoint=os.environ.get("HF_ENDPOINT")))
    except HFValidationError:
        raise BadInput("model", "must be hf:owner/name; you gave {given}", given=f"hf:{repository}") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise BadInput(
            "model",
            "hf:{repository} has no config.json that can be fetched: {error}",
            repository=repository,
            error=str(error).strip().splitlines()[0],
        ) from None


def _from_config(path: Path, name: str, gpu: Gpu, settings: Settings, inputs: Inputs) -> Source:
    data = _read(path)
    if "_class_name" in data:
        return Source(diffusion_training(data, str(path)), name)
    need("transformers", extra="trace", wanted_for="tracing a config.json")
    config = _config(data, path)
    make = _model_class(config, path)
    attention = "eager" if settings.attention == "eager" else "sdpa"
    assumptions: list[str] = []
    dtype = {_dtype_argument(): settings.weights_dtype}
    with torch.device("meta"), _without_values():
        try:
            model = make(config, attn_implementation=attention, **dtype)
        except (ValueError, ImportError) as error:
            if attention == "eager" or "attention" not in str(error):
                raise BadInput(str(path), "does not make a model: {error}", error=str(error)) from error
            assumptions.append(f"{config.model_type} has no other attention than eager")
            model = make(config, attn_implementation="eager", **dtype)
    if data.get("tie_word_embeddings") is False:
        _untie(model)

    def at_length(seq_len: int) -> MakeBatch:
        return batches_for(model, replace(inputs, seq_len=seq_len))

    return Source(Training(model, batches_for(model, inputs)), name, tuple(assumptions), at_length)


def _dtype_argument() -> str:
    """What transformers calls the type of the weights: `torch_dtype` until 4.55."""
    release = importlib.import_module("transformers").__version__.split(".")
    return "dtype" if tuple(map(int, release[:2])) >= (4, 56) else "torch_dtype"


@contextmanager
def _without_values() -> Iterator[None]:
    """Models made in here draw no initial values: on tensors without data that costs time and changes nothing."""
    with ExitStack() as stack:
        for name, function in vars(nn.init).items():
            if name.endswith("_") and not name.startswith("_") and callable(function):
                stack.enter_context(mock.patch.object(nn.init, name, lambda tensor, *_, **__: tensor))
        yield


def _name(path: Path) -> str:
    """A config.json is named by its folder."""
    return path.parent.resolve().name if path.stem == "config" else path.stem


def _untie(model: Any) -> None:
    """Gives the output layer its own weights, as loading a checkpoint that has both does: configs of the T5 family say
    that they are apart, and transformers shares them until they are loaded."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is embedding.weight:
        head.weight = nn.Parameter(torch.empty_like(head.weight))


def _read(path: Path) -> dict[str, Any]:
    """The data of the config in the file `path`. Raises BadInput where it is none."""
    try:
        if path.stat().st_size > _LARGEST_CONFIG:
            raise BadInput(str(path), "is larger than 1 MiB and cannot be a model's config")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(str(path), "cannot be read: {error}", error=error.strerror or str(error)) from None
    except ValueError as error:
        raise BadInput(str(path), "is not JSON: {error}", error=str(error)) from None
    if not isinstance(data, dict) or not {"model_type", "_class_name"} & set(data):
        raise BadInput(str(path), 'is not a transformers config: it has no "model_type"')
    return data


def _config(data: dict[str, Any], path: Path) -> Any:
    """The transformers config that `data` describes: no code that it names is run."""
    from transformers import CONFIG_MAPPING

    kind = str(data["model_type"])
    if kind not in CONFIG_MAPPING:
        raise BadInput(
            str(path),
            "has the model_type {kind}, which transformers {version} does not know; {known}",
            kind=repr(kind),
            version=importlib.import_module("transformers").__version__,
            known=_known(str(kind), list(CONFIG_MAPPING)),
        )
    try:
        return CONFIG_MAPPING[kind].from_dict(data)
    except Exception as error:  # a config class may refuse a value in any way it likes
        raise BadInput(
            str(path), "is not a config of {kind}: {error}", kind=kind, error=str(error)
        ) from error


def _model_class(config: Any, path: Path) -> Callable[..., nn.Module]:
    """The class that the config names first among its `architectures`; a causal language model where it names none."""
    import transformers

    names = getattr(config, "architectures", None) or []
    if names:
        found = getattr(transformers, str(names[0]), None)
        if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
            known = [n for n in dir(transformers) if "For" in n and not n.startswith(("Auto", "TF", "Flax"))]
            raise BadInput(
                str(path),
                "names the architecture {name}, which transformers {version} does not know; {known}",
                name=repr(names[0]),
                version=transformers.__version__,
                known=_known(str(names[0]), known),
            )
        return found._from_config
    auto = getattr(transformers, _AUTO_CLASS)
    if type(config) not in auto._model_mapping:
        raise BadInput(
            str(path),
            'names no "architectures", and {kind} has no causal language model; add the class to the config',
            kind=config.model_type,
        )
    return auto.from_config  # type: ignore[no-any-return]


def _known(given: str, known: list[str]) -> str:
    """The known names nearest to `given`, and how many there are."""
    near = difflib.get_close_matches(given, known, 5, 0.5)
    shown = ", ".join(near or sorted(known)[:8])
    return f"{'nearest are' if near else 'among the known are'} {shown} ({len(known)} are known)"


def _from_timm(name: str, gpu: Gpu, inputs: Inputs) -> Source:
    if importlib.util.find_spec("timm") is None:
        raise BadInput(
            "timm", "is needed for timm:name and is not installed; install it with: pip install timm"
        )
    timm = importlib.import_module("timm")
    if not timm.is_model(name):
        raise BadInput(
            "model",
            "timm has no model {name}; {known}",
            name=repr(name),
            known=_known(name, timm.list_models()),
        )
    with gpu.building():
        model: nn.Module = timm.create_model(name)
    size = inputs.image or tuple(getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224)))

    def batch(b: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(b, *size), torch.zeros(b, dtype=torch.long)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])

    return Source(Training(model, batch, loss), name)


def from_function(make: Callable[[], object], where: str, gpu: Gpu) -> Source:
    """What a person's function returns, called where tensors take no memory. Raises BadInput if it is not of the
    protocol, naming `where` it is."""
    if not callable(make):
        raise BadInput(
            "model", "must be a module, a function or text; you gave {given}", given=type(make).__name__
        )
    with gpu.building(), explained():
        given = make()
    training = as_training(given, where)
    return Source(training, training.name or type(training.model).__name__)


def _found(where: str, function: str) -> Any:
    module = _imported(where)
    make = getattr(module, function, None)
    if not callable(make):
        own = [
            n
            for n, v in vars(module).items()
            if callable(v) and getattr(v, "__module__", "") == module.__name__
        ]
        raise BadInput(
            "model",
            "{where} has no function {function}; it has {defined}",
            where=where,
            function=function,
            defined=", ".join(own) or "none",
        )
    return make


def _imported(where: str) -> Any:
    """The module at `where`, a file or a dotted name. A file's folder is importable from it, as when it is run."""
    if not where.endswith(".py"):
        sys.path.insert(0, "")
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise BadInput(
                "model", "{where} cannot be imported: {error}", where=where, error=str(error)
            ) from None
        finally:
            sys.path.remove("")
    path = Path(where)
    if not path.is_file():
        raise BadInput("model", "there is no file {where}", where=where)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise BadInput("model", "{where} is not Python: {error}", where=where, error=str(error)) from None
    finally:
        sys.path.remove(folder)
        del sys.modules[path.stem]
    return module
