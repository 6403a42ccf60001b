"""What a trace takes for granted where a run depends on data, or on versions of libraries that are not run here."""

from __future__ import annotations

from batchfit.trace.settings import Settings

_QUANTIZED = {
    "nf4": "every product with 4-bit weights makes a 16-bit copy of the weight (since bitsandbytes 0.50 only those of "
    "more than 1536 rows and those in backward)",
    "int8": "no activation is an outlier for LLM.int8(): how many columns are depends on the data",
}
_QUANTIZED["nf4-double"] = _QUANTIZED["nf4"]
_QUANTIZED["gptq-4bit"] = _QUANTIZED["gptq-4bit-per-channel"] = (
    "every product with 4-bit weights makes a 16-bit copy of the weight, as the Triton kernels of AutoGPTQ and "
    "GPTQModel do"
)

_LOSSES = {
    "chunked": "the loss is taken in 8 pieces of the sequence, as torchtune does",
    "fused": "the loss is fused with the output layer as in Liger-Kernel 0.8; its rows are taken by powers of two, so "
    "memory grows by steps with the micro-batch",
}

_OPTIMIZER = "the optimizer is the one asked for; the trainer's own default is adamw-fused since PyTorch 2.8"
_TRAINERS = {
    "hf": _OPTIMIZER,
    "trl": f"{_OPTIMIZER}; 16-bit weights train under autocast, SFTConfig's default",
}

_COMPILED = (
    "torch.compile finds no graph breaks; its kernels are those of Inductor, and models of transformers run without a "
    "cache of keys and values (use_cache=False)"
)


def assumed(settings: Settings) -> tuple[str, ...]:
    """The assumptions that go with these settings, a sentence each."""
    said = (
        _QUANTIZED.get(settings.quantize or ""),
        _LOSSES.get(settings.loss),
        _TRAINERS.get(settings.trainer),
        _COMPILED if settings.compile != "none" else None,
    )
    return tuple(sentence for sentence in said if sentence is not None)
