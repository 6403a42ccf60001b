"""gpu-mem-calculator: its GPUMemoryCalculator, with its engine for FSDP where states are sharded, else its engine for
PyTorch. The sum of its parts of tensors is compared, which is what it holds against what is allocated; the fifth that
it adds for context and fragmentation is left out. It has no release, so it is that of a commit."""

from __future__ import annotations

from bench.accuracy.peers._model import model
from bench.accuracy.peers._shape import all_trained, decoder
from bench.accuracy.question import CannotExpress, Question

NAME = "gpu-mem-calculator"
PACKAGES = (
    "gpu-mem-calculator @ git+https://github.com/George614/gpu-mem-calculator.git"
    "@2f345d1dcc3c173e09efe47a1e00ca149a2cd785",
)

#: Its level of checkpointing at which whole blocks are recomputed.
_FULL = 4


def peak(question: Question) -> float:
    """Weights, gradients, optimizer and activations on a GPU, in bytes."""
    from gpu_mem_calculator.core.calculator import GPUMemoryCalculator
    from gpu_mem_calculator.core.models import (
        EngineConfig,
        GPUConfig,
        ModelConfig,
        ParallelismConfig,
        TrainingConfig,
    )

    all_trained(question)
    shape = decoder(question)
    if question.trace["weights"] not in ("fp32", "fp16", "bf16"):
        raise CannotExpress(f"weights in {question.trace['weights']}")
    sharded = question.sharding is not None
    found = GPUMemoryCalculator(
        ModelConfig(
            num_parameters=sum(weights.numel() for weights in model(question).parameters()),
            num_layers=shape.layers,
            hidden_size=shape.hidden,
            num_attention_heads=shape.heads,
            vocab_size=shape.vocabulary,
            max_seq_len=question.trace["seq_len"],
        ),
        TrainingConfig(
            batch_size=question.micro_batch,
            gradient_accumulation_steps=question.accumulation_steps,
            dtype=question.trace["weights"],
            activation_checkpointing=0 if question.trace.get("checkpointing", "none") == "none" else _FULL,
        ),
        ParallelismConfig(data_parallel_size=question.replicas),
        EngineConfig(type="fsdp" if sharded else "pytorch_ddp"),
        GPUConfig(num_gpus=question.replicas),
    ).calculate()
    parts = found.breakdown
    gib = parts.model_params_gb + parts.gradients_gb + parts.optimizer_states_gb + parts.activations_gb
    return float(gib * 2**30)
