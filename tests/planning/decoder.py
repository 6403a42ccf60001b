"""Hand-made profiles of decoders, physically sensible, for tests: sizes from the architecture, lines by counting.

They are no predictions: a traced profile says where memory goes in far more detail.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchfit.palette import PARTS
from batchfit.profile import (
    Affinity,
    Compute,
    LedgerEntry,
    Line,
    MemoryProfile,
    Model,
    Polynomial,
    Provenance,
    ReservedPoint,
    SeqRange,
    States,
    Unit,
)


@dataclass(frozen=True)
class Shape:
    """A decoder's architecture."""

    name: str
    layers: int
    hidden: int
    ffn: int
    kv: int
    vocab: int
    parameters: int


LLAMA_8B = Shape("llama-3.1-8b", 32, 4096, 14336, 1024, 128256, 8_030_261_248)
SMALL = Shape("small", 12, 768, 3072, 768, 50257, 124_439_808)


def decoder(
    shape: Shape = LLAMA_8B,
    *,
    precision: str = "bf16-mixed",
    checkpointing: str = "none",
    lora: int | None = None,
    reserved: float | None = 1.04,
    seq_len: tuple[int, int] | None = (512, 16384),
    optimizer: str = "adamw",
) -> MemoryProfile:
    """A profile with a range of sequence lengths, or of 4096 tokens where `seq_len` is None.

    `reserved` is reserved over allocated memory; None for a profile that was never replayed.
    """
    width = 4 if precision.endswith("-mixed") else 2
    trained = shape.parameters if lora is None else lora * shape.layers * 6 * shape.hidden
    weights, gradients = shape.parameters * width, trained * width
    states = States(weights, gradients, 2 * gradients, 0)
    cast = shape.parameters * 2 if precision.endswith("-mixed") else 0
    # Bytes per token: what a block keeps, once for each block, or its input alone where it is recomputed.
    block = 2 * (10 * shape.hidden + 2 * shape.kv + 4 * shape.ffn)
    kept = (2 * shape.hidden if checkpointing == "full" else block) * shape.layers
    head = 10 * shape.vocab
    kinds = {"logits and loss": head}
    if checkpointing == "full":
        kinds["residual stream"] = kept
    else:
        kinds["MLP"] = 8 * shape.ffn * shape.layers
        kinds["attention"] = kept - kinds["MLP"]
    held = {"weights": weights, "gradients": gradients, "optimizer": 2 * gradients, "buffers": cast}
    lines: dict[str, tuple[Line, ...]] = {
        "first_micro": (_line({**held, "gradients": 0}, kinds, "backward: lm_head", seq_len),),
        "later_micro": (_line(held, kinds, "backward: lm_head", seq_len),),
        "optimizer_step": (
            _line({**held, "optimizer": 3 * gradients, "buffers": 0}, {}, "optimizer step", seq_len),
        ),
    }
    reference = 4096
    points = []
    if reserved is not None:
        for micro_batch in (1, 8):
            points.append(ReservedPoint(micro_batch, 2, None, 10**9, round(10**9 * reserved)))
    return MemoryProfile(
        model=Model(shape.name, shape.parameters, trained, _units(shape, width)),
        settings={
            "precision": precision,
            "optimizer": optimizer,
            "checkpointing": checkpointing,
            "attention": "sdpa",
            "lora": None if lora is None else {"rank": lora, "targets": ["q_proj", "v_proj"]},
            **({"seq_len": reference} if seq_len is None else {}),
        },
        states=states,
        phases=lines,
        reserved=tuple(points),
        compute=_compute(shape, checkpointing, trained, gradients, seq_len),
        ledger=(
            LedgerEntry(
                "modeling.py:10", "logits = self.lm_head(x)", "lm_head", "mm", head * reference, 0, 1
            ),
            LedgerEntry("modeling.py:5", "self.mlp(x)", "model.layers.*.mlp", "mm", kept * reference, 0, 32),
        ),
        seq_len=SeqRange(*seq_len, seq_len, None, None) if seq_len else None,
        affinity=Affinity((2, 3), 5, 0.0, True),
        assumptions=(),
        provenance=Provenance("traced", {"torch": "2.13.0"}, 1.0, "2026-01-01T00:00:00+00:00"),
    )


def family(shape: Shape = LLAMA_8B) -> tuple[MemoryProfile, ...]:
    """The profiles a model of the catalogue has: two precisions, full training and LoRA, with and without
    checkpointing."""
    return tuple(
        decoder(shape, precision=precision, checkpointing=checkpointing, lora=lora)
        for precision in ("bf16", "bf16-mixed")
        for lora in (None, 16)
        for checkpointing in ("none", "full")
    )


def _line(
    held: dict[str, int], per_token: dict[str, int], where: str, seq_len: tuple[int, int] | None
) -> Line:
    """`per_token` are the bytes of activations by kind of layer."""

    def over(nbytes: int) -> Polynomial:
        return (0.0, float(nbytes)) if seq_len else (float(nbytes * 4096),)

    slope = over(sum(per_token.values()))
    parts: dict[str, tuple[Polynomial, Polynomial]] = {
        part: ((float(held[part]),), (0.0,)) for part in PARTS if held.get(part)
    }
    if per_token:
        parts["activations"] = ((0.0,), slope)
    constant: Polynomial = (float(sum(held.values())),)
    kinds: dict[str, tuple[Polynomial, Polynomial]] = {
        kind: ((0.0,), over(nbytes)) for kind, nbytes in per_token.items()
    }
    return Line(constant, slope if per_token else (0.0,), parts, where, kinds)


def _units(shape: Shape, width: int) -> tuple[Unit, ...]:
    block = (shape.parameters - 2 * shape.hidden * shape.vocab) // shape.layers
    rest = shape.parameters - block * shape.layers
    return (
        Unit("model.layers.*", shape.layers, block, block, block * width, block * width),
        Unit("(root)", 1, rest, rest, rest * width, rest * width),
    )


def _compute(
    shape: Shape, checkpointing: str, trained: int, gradients: int, seq_len: tuple[int, int] | None
) -> Compute:
    passes = 4 if checkpointing == "full" else 3
    linear, square = 2.0 * shape.parameters, 2.0 * shape.hidden * shape.layers

    def over(per_token: float, per_token_squared: float) -> Polynomial:
        if seq_len:
            return (0.0, per_token, per_token_squared)
        return (per_token * 4096 + per_token_squared * 4096**2,)

    return Compute(
        forward_flops=over(linear, square),
        step_flops=over(linear * passes, square * (passes + 0.5)),
        attention_flops=over(0.0, square * (passes + 0.5)),
        matmul_bytes=(
            (2.0 * passes * shape.parameters,),
            over(40.0 * passes * shape.hidden * shape.layers, 0.0),
        ),
        other_bytes=((0.0,), over(200.0 * shape.hidden * shape.layers, 0.0)),
        optimizer_bytes=20 * gradients,
        kernels_per_micro_batch=40 * shape.layers * passes,
        kernels_per_optimizer_step=200,
        gradient_elements=trained,
    )
