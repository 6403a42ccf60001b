"""torch-kitsune: `predict_memory`, or `estimate_lora_memory` where there are adapters, over the model on the meta
device in the type of the row's weights. Its peak has 15 % for what it calls overhead."""

from __future__ import annotations

from bench.accuracy.peers._model import model
from bench.accuracy.peers._shape import lora, one_gpu
from bench.accuracy.question import Question

NAME = "torch-kitsune"
PACKAGES = ("torch-kitsune==0.7.0",)


def peak(question: Question) -> float:
    """Its peak, in bytes."""
    from kitsune.predict.estimator import predict_memory
    from kitsune.predict.lora_estimator import LoRAConfig, estimate_lora_memory

    one_gpu(question)
    adapters = lora(question)
    made = model(question, question.trace["weights"])
    shape, dtype = (question.trace["seq_len"],), {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    asked = {"batch_size": question.micro_batch, "dtype": dtype[question.trace["weights"]]}
    if adapters is None:
        return float(predict_memory(made, shape, optimizer="adamw", **asked).total_bytes)
    config = LoRAConfig(adapters[0], tuple(adapters[1]), use_qlora=bool(question.trace.get("quantize")))
    return float(estimate_lora_memory(made, shape, config=config, **asked).total_bytes)
