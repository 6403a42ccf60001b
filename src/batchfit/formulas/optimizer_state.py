"""What optimizers keep for each parameter, in bytes, once they have made their first step.

full values   numbers in the precision of the parameters that are updated: Adam's two moments (Kingma and Ba 2015,
              arXiv:1412.6980), one momentum for SGD and Lion (Chen et al. 2023, arXiv:2302.06675)
8-bit values  one byte each, and for every block of 256 a scale in fp32 (Dettmers et al. 2022, arXiv:2110.02861;
              bitsandbytes' block size since 0.44); where the values are paged out, their scales stay
factored      Adafactor's: for a matrix of r rows and c columns r + c values instead of r·c (Shazeer and Stern
              2018, arXiv:1804.04235, section 3), in fp32 as transformers keeps them
Muon          a momentum for matrices of hidden layers; embeddings, output layer, norms and biases have AdamW's
              two moments (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks")
"""

from __future__ import annotations

import math

#: Values that share one scale in an 8-bit optimizer, and the bytes of a scale.
BLOCK = 256
SCALE_BYTES = 4
FP32_BYTES = 4


def optimizer_state_bytes(
    parameters: int,
    hidden_size: int,
    full_values: int,
    eight_bit_values: int,
    scales: int,
    factored_values: int,
    updated_value_bytes: int,
) -> int:
    """Bytes of optimizer state for all parameters.

    `full_values` and `eight_bit_values` say how many of each kind there are for a parameter, `scales` how many for a
    block of them, `factored_values` how many for `hidden_size` parameters: 2, as if every matrix were square, which for
    longer ones is a little too much.
    `updated_value_bytes` are those of a parameter that the optimizer updates.
    """
    full = full_values * updated_value_bytes
    eight_bit = eight_bit_values + scales * SCALE_BYTES / BLOCK
    factored = factored_values * FP32_BYTES / hidden_size
    return math.ceil(parameters * (full + eight_bit + factored))


def embedding_parameters(parameters: int, vocabulary: int, hidden_size: int, embedding_matrices: int) -> int:
    """Parameters of the embedding and, where it does not share them, the output layer; no more than there are."""
    return min(parameters, embedding_matrices * vocabulary * hidden_size)


def optimizer_bytes(
    parameters: int,
    embedding_parameters: int,
    hidden_size: int,
    full_values: int,
    eight_bit_values: int,
    scales: int,
    factored_values: int,
    embedding_values: int,
    updated_value_bytes: int,
) -> int:
    """Bytes of optimizer state, with `embedding_values` more for each parameter of embedding and output layer."""
    everywhere = optimizer_state_bytes(
        parameters,
        hidden_size,
        full_values,
        eight_bit_values,
        scales,
        factored_values,
        updated_value_bytes,
    )
    return everywhere + embedding_parameters * embedding_values * updated_value_bytes


def step_bytes(
    parameters: int,
    embedding_parameters: int,
    step_values: int,
    embedding_values: int,
    updated_value_bytes: int,
) -> int:
    """Bytes that the optimizer's step takes for a moment, where it works on many parameters at once (foreach).

    Beside Muon, the AdamW that updates embedding and output layer does; one that goes tensor by tensor takes
    next to nothing.
    """
    values = parameters * step_values + embedding_parameters * embedding_values
    return values * updated_value_bytes


def bytes_per_parameter(parameters: int, optimizer_bytes: int) -> float:
    """Bytes of optimizer state for each parameter."""
    return optimizer_bytes / parameters


def saved_bytes(parameters: int, updated_value_bytes: int, optimizer_bytes: int) -> int:
    """Bytes that are saved against AdamW, which keeps two full values for each parameter."""
    return 2 * parameters * updated_value_bytes - optimizer_bytes
