"""Which model of the catalogue has the shape that a config.json describes: fine-tuned models keep it, and with it every
byte that training takes.

A catalogue's configuration holds what decides a model's tensors and little else; a published one holds much more.
They are of one shape where all that the catalogue's says is said by the other too, and the other adds nothing that
makes tensors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from batchfit.models import ModelEntry, load_models

#: Keys that change no tensor that training holds: names and versions, ids of tokens, scales, what generating needs.
_NO_SHAPE = re.compile(
    r".*_token_ids?|.*token_index|architectures|.*version|.*dtype|use_cache|initializer_.*|.*init_value|.*_eps|"
    r".*_epsilon|rope_.*|.*rope_theta|rotary_emb_base|rotary_pct|(_)?name_or_path|id2label|label2id|problem_type|"
    r"task_specific_params|pretraining_tp|output_.*|return_.*|max_window_layers|router_.*|max_length|min_length|"
    r"num_beams.*|do_sample|temperature|top_[kp]|.*softcapping|query_pre_attn_scalar|torchscript|cross_attention_hidden_size|"
    r"gradient_checkpointing|mask_.*|apply_spec_augment|routed_scaling_factor|use_bfloat16|partial_rotary_factor"
)
#: Keys that make tensors where the catalogue's config leaves them at what its class fills in.
_ADDED = re.compile(
    r"num_key_value_heads|head_dim|n_inner|sliding_window|(\w+_)?bias|(attention|hidden)_dropout|\w*pdrop|"
    r"num_(local_)?experts|quantization_config"
)
#: Positions that are computed, not learned, take no memory, however many a config allows.
_POSITIONS = "max_position_embeddings"

#: Differences beyond which another model is no neighbour worth naming.
_FEW = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """A key with its value in the config asked about and in the catalogue's, None where it is not there."""

    key: str
    given: object
    known: object


@dataclass(frozen=True, slots=True)
class Match:
    """The model of the catalogue that is nearest; of the same shape where nothing differs."""

    entry: ModelEntry
    differences: tuple[Difference, ...]


def nearest_shape(config: Mapping[str, Any]) -> Match | None:
    """The catalogue's model of the config's shape, or the one that differs least in few numbers; None where none is
    near."""
    matches = (
        Match(entry, tuple(differences(config, known)))
        for entry, known in _configs(load_models())
        if _kind(known) == _kind(config)
    )
    best = min(matches, key=lambda match: len(match.differences), default=None)
    return best if best is not None and len(best.differences) <= _FEW else None


def differences(given: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Difference]:
    """What makes a config another shape than a known one."""
    ours, theirs = _flat(known), _flat(given)
    for key, value in ours.items():
        found = theirs.get(key, _implied(key, theirs))
        if _counts(key, ours) and not _alike(found, value):
            yield Difference(key, found, value)
    for key, value in theirs.items():
        adds = _ADDED.fullmatch(key.rpartition(".")[2]) and _counts(key, theirs)
        if key not in ours and adds and not _alike(_implied(key, ours), value):
            yield Difference(key, value, None)


@cache
def _configs(entries: tuple[ModelEntry, ...]) -> tuple[tuple[ModelEntry, dict[str, Any]], ...]:
    return tuple(
        (entry, json.loads(entry.config.read_text("utf-8"))) for entry in entries if entry.config.is_file()
    )


def _kind(config: Mapping[str, Any]) -> object:
    return config.get("model_type") or config.get("_class_name")


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The config's values by dotted path; what is None is not there."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and not _NO_SHAPE.fullmatch(key) and "quantization" not in key:
            found |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = value
    return found


def _counts(key: str, config: Mapping[str, Any]) -> bool:
    """Whether a key can make a difference in this config."""
    prefix, _, name = key.rpartition(".")
    if name == _POSITIONS:
        inside = f"{prefix}." if prefix else ""
        return not any(other.startswith((f"{inside}rope", f"{inside}rotary")) for other in config)
    if name == "sliding_window" and config.get(key.replace(name, "use_sliding_window")) is False:
        return False
    return not _NO_SHAPE.fullmatch(name)


def _implied(key: str, config: Mapping[str, Any]) -> object:
    """What a key that is not there stands for, as transformers fills it in."""
    prefix, _, name = key.rpartition(".")
    inside = f"{prefix}." if prefix else ""

    def of(other: str) -> Any:
        return config.get(inside + other)

    if name == "head_dim":
        heads, width = of("num_attention_heads"), of("hidden_size")
        computed = width // heads if isinstance(heads, int) and isinstance(width, int) and heads > 0 else None
        return of("qk_rope_head_dim") or computed
    if name == "num_labels":
        return len(of("id2label") or ()) or None
    # The same under another name, or what every config class says that does not write it.
    return {
        "num_key_value_heads": of("num_attention_heads"),
        "num_experts": of("num_local_experts"),
        "num_local_experts": of("num_experts"),
        "attention_bias": of("model_type") == "gpt_neox",
        "tie_word_embeddings": True,
    }.get(name)


def _alike(one: object, other: object) -> bool:
    """Equal, or both nothing: a switch that is off is as good as none."""
    return one == other or (not one and not other)
