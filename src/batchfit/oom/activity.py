"""What a training step was doing when memory ran out, as the traceback above the message shows it."""

from __future__ import annotations

import re
from dataclasses import replace

from batchfit.oom.log import frames
from batchfit.oom.message import OutOfMemory

#: A frame (file, function and code, in one line) -> what the step was doing, and what was being made. The first
#: that fits counts, from the innermost frame outwards.
_CLUES: tuple[tuple[str, str | None, str | None], ...] = (
    (
        r"_init_group|get_state_buffer|init_state|exp_avg\w*'?\]? = torch\.(?:zeros|empty)",
        "optimizer step",
        "optimizer state",
    ),
    (r"\b(?:torch\.)?_foreach_|_multi_tensor_\w+", "optimizer step", "optimizer temporaries"),
    (r"/optim/\S* step\b|\boptim\w*\.step\(|scaler\.step\(", "optimizer step", None),
    (r"clip_grad_norm", "gradient clipping", None),
    (
        r"evaluation_loop|prediction_step|validation_step|_maybe_log_save_evaluate|\bevaluate\(",
        "evaluation",
        None,
    ),
    (
        r"recompute_fn|unpack_hook|checkpoint\.py \S*(?:backward|recompute)",
        "backward",
        "recomputed activations",
    ),
    (r"cross_entropy|log_softmax|lm_head|\blogits\b|loss_function\.py|compute_loss", None, "logits"),
    (
        r"scaled_dot_product_attention|attn_weights|attention_scores|attention_probs|eager_attention",
        None,
        "attention",
    ),
    (
        r"all_gather|unshard|_alloc_storage|_sync_module_states|_sync_params|broadcast_coalesced|Reducer",
        "sharding",
        None,
    ),
    (r"\.backward\(|run_backward| backward ", "backward", None),
    (r"from_pretrained|load_state_dict|load_model|\.to\(\s*device|\.cuda\(", "model load", None),
    (r"module\.py (?:_apply|convert)|\bt\.to\(", "model load", None),
    (r" forward\b|forward_call", "forward", None),
)

_LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python|<frozen|<string>|runpy\.py")


def with_traceback(message: OutOfMemory, before: str) -> OutOfMemory:
    """The message with what the traceback in the log `before` it shows, if there is one."""
    activity = tensor = where = None
    for file, line, function, code in reversed(list(frames(before))):
        if where is None and not _LIBRARY.search(file):
            name = re.split(r"[/\\]", file)[-1]
            where = f"{name}:{line}"
        doing, making = _clue(f"{file} {function} {code}")
        if activity is None:
            activity, tensor = doing, tensor or making
        elif doing == "evaluation":
            activity = doing
    if activity is None and tensor is None:
        activity, tensor = _clue_in_code(before)
    if activity is None and tensor is not None:
        activity = "forward"
    return replace(message, activity=activity, tensor=tensor, where=where)


def _clue_in_code(before: str) -> tuple[str | None, str | None]:
    """What the last line of code shows, where only the end of a traceback was pasted."""
    lines = [line for line in before.rpartition("\n")[0].splitlines() if re.search(r"\w", line)]
    code = lines[-1] if lines else ""
    return _clue(f" {code}") if re.search(r"[=(.]\w", code) else (None, None)


def _clue(frame: str) -> tuple[str | None, str | None]:
    return next(
        ((doing, making) for pattern, doing, making in _CLUES if re.search(pattern, frame)), (None, None)
    )
