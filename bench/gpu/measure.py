"""One configuration on a real GPU, in a process of its own: three steps of a plain loop, and what they took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from bench.gpu.configurations import CONFIGURATIONS, MODELS, Configuration

STEPS = 3


def measured(configuration: Configuration, device: str = "cuda") -> dict[str, Any]:
    """Bytes at the peak of the steps: allocated, reserved, and what the driver counts for this process (None where it
    does not tell). On the CPU (`device`) the loop runs and nothing is measured."""
    import torch

    model, make_batch = _model(configuration, device)
    optimizer = _optimizer(configuration, model)
    scaler = torch.amp.GradScaler("cuda", enabled=configuration.precision == "fp16-mixed")
    for _ in range(STEPS):
        for _ in range(configuration.accumulation_steps):
            batch = _on(make_batch(configuration.micro_batch), device, _weights(configuration))
            with _kernel(configuration), _autocast(configuration, device):
                output = model(**batch)
            scaler.scale(output.loss / configuration.accumulation_steps).backward()
            del output
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    if device != "cuda":
        return {}
    torch.cuda.synchronize()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "process_bytes": _process_bytes(),
    }


def _weights(configuration: Configuration) -> Any:
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(configuration.precision, torch.float32)


def _model(configuration: Configuration, device: str) -> tuple[Any, Any]:
    """The model as a trace of the same settings has it, with weights."""
    from batchfit.trace.adapters import add_lora
    from batchfit.trace.checkpointing import checkpoint_blocks

    training = MODELS[configuration.model]()
    model: Any = training.model.to(_weights(configuration))
    lora = configuration.settings()["lora"]
    if lora is not None:
        model = _with_values(add_lora(model, lora))
    if configuration.attention != "sdpa":
        model.set_attn_implementation("eager" if configuration.attention == "eager" else "sdpa")
    checkpoint_blocks(model, configuration.checkpointing)
    return model.to(device).train(), training.make_batch


def _with_values(model: Any) -> Any:
    """Adapters, which are made without data, filled with small numbers."""
    import torch
    from torch import nn

    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                values = torch.full_like(parameter, 0.01, device="cpu")
                module._parameters[name] = nn.Parameter(values, requires_grad=parameter.requires_grad)
    return model


def _optimizer(configuration: Configuration, model: Any) -> Any:
    from batchfit.trace.optimizers import create_optimizer

    return create_optimizer(configuration.optimizer, model)


def _on(batch: dict[str, Any], device: str, weights: Any) -> dict[str, Any]:
    return {
        name: value.to(device, weights if value.is_floating_point() else None)
        for name, value in batch.items()
    }


def _autocast(configuration: Configuration, device: str) -> AbstractContextManager[Any]:
    import torch

    name, _, mixed = configuration.precision.partition("-")
    if not mixed:
        return nullcontext()
    return torch.autocast(device, {"bf16": torch.bfloat16, "fp16": torch.float16}[name])


def _kernel(configuration: Configuration) -> AbstractContextManager[Any]:
    """Flash attention and no other where it is asked for."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.FLASH_ATTENTION) if configuration.attention == "flash" else nullcontext()


def _process_bytes() -> int | None:
    """What nvidia-smi shows for this process."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    for line in said.splitlines():
        pid, _, mebibytes = line.partition(",")
        if pid.strip() == str(os.getpid()) and mebibytes.strip().isdigit():
            return int(mebibytes) * 2**20
    return None


if __name__ == "__main__":
    wanted = next(c for c in CONFIGURATIONS if c.name == sys.argv[1])
    print(json.dumps(measured(wanted)))
