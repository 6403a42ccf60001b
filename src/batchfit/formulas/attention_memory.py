"""What attention keeps in memory for backward: eager, which writes its scores out, and flash, which does not.

b samples of s tokens, H query heads and K key-value heads of size d, w bytes a value. Sources: Korthikanti et al.
2022, arXiv:2205.05198, section 4.1 (the 5·a·s²·b of softmax, dropout mask and dropout); Dao et al. 2022,
arXiv:2205.14135, section 3.1 (flash keeps the output and one softmax statistic a row, recomputes the rest).
"""

from __future__ import annotations

#: Bytes of the logarithm of a row's sum of exponentials, which flash attention keeps in fp32.
LOG_SUM_EXP_BYTES = 4
FP32_BYTES = 4


def softmax_bytes(value_bytes: int, upcasts: int) -> int:
    """Bytes of a probability as softmax gives it: in fp32 where it is computed so (`upcasts` is 1)."""
    return FP32_BYTES if upcasts == 1 else value_bytes


def score_bytes(value_bytes: int, upcasts: int, drops: int) -> int:
    """Bytes that eager attention keeps for each pair of tokens and each head.

    The result of softmax; what is multiplied with the values, where that is another tensor; and where attention
    `drops`, a mask of one byte. In 16 bits: 2; with dropout, as Korthikanti et al. count, 5; where softmax is in fp32,
    6; with both, 7.
    """
    apart = drops == 1 or softmax_bytes(value_bytes, upcasts) > value_bytes
    return softmax_bytes(value_bytes, upcasts) + (value_bytes if apart else 0) + drops


def scores_bytes(micro_batch: int, heads: int, sequence_length: int, score_bytes: int) -> int:
    """Bytes of the s × s matrices that eager attention keeps in one layer: b·H·s² times the bytes of a score."""
    return micro_batch * heads * sequence_length * sequence_length * score_bytes


def eager_layer_bytes(
    micro_batch: int, sequence_length: int, heads: int, head_size: int, value_bytes: int, scores_bytes: int
) -> int:
    """Bytes that one layer of eager attention keeps: scores, queries, keys, values and the output.

    Keys and values are repeated for every query head, as products of whole matrices need them.
    """
    return scores_bytes + 4 * micro_batch * sequence_length * heads * head_size * value_bytes


def flash_layer_bytes(
    micro_batch: int, sequence_length: int, heads: int, key_value_heads: int, head_size: int, value_bytes: int
) -> int:
    """Bytes that one layer of flash attention keeps: queries, keys, values, the output, and a number for each row."""
    tokens = micro_batch * sequence_length
    tensors = 2 * (heads + key_value_heads) * head_size * value_bytes
    return tokens * (tensors + heads * LOG_SUM_EXP_BYTES)


def eager_bytes(layers: int, eager_layer_bytes: int) -> int:
    """Bytes that all layers keep by the time backward begins, where attention is eager."""
    return layers * eager_layer_bytes


def flash_bytes(layers: int, flash_layer_bytes: int) -> int:
    """Bytes that all layers keep by the time backward begins, where attention is flash."""
    return layers * flash_layer_bytes


def saved_bytes(eager_bytes: int, flash_bytes: int) -> int:
    """Bytes that flash attention saves."""
    return eager_bytes - flash_bytes


def times_less(eager_bytes: int, flash_bytes: int) -> float:
    """How many times the memory of flash attention eager attention takes."""
    return eager_bytes / flash_bytes


def even_length(head_size: int, value_bytes: int, score_bytes: int) -> float:
    """The sequence length at which the scores take as much as queries, keys, values and output: 4·d·w / x tokens."""
    return 4 * head_size * value_bytes / score_bytes
