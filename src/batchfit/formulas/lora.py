"""LoRA: what low-rank adapters add to a decoder, in parameters and bytes.

A module that maps d_in values to d_out keeps its weights frozen and learns beside them the product of a d_out × r and
an r × d_in matrix: r·(d_in + d_out) parameters (Hu et al. 2021, arXiv:2106.09685, section 4.1).
Modules are given as 1 where adapted, else 0. `separate` is 1 where queries, keys and values, and likewise gate and up,
are projections of their own, and 0 where each group is one wide projection, which then has one adapter.
"""

from __future__ import annotations


def module_parameters(rank: int, inputs: int, outputs: int) -> int:
    """Parameters of one adapter: r·(d_in + d_out)."""
    return rank * (inputs + outputs)


def attention_adapters(
    rank: int,
    hidden_size: int,
    query_dim: int,
    key_value_dim: int,
    separate: int,
    q: int,
    k: int,
    v: int,
    o: int,
) -> int:
    """Adapter parameters of one layer's attention.

    `query_dim` is heads times head size; `key_value_dim`, smaller with grouped queries, key-value heads times head
    size.
    """
    out = o * module_parameters(rank, query_dim, hidden_size)
    if separate == 1:
        query = q * module_parameters(rank, hidden_size, query_dim)
        return query + (k + v) * module_parameters(rank, hidden_size, key_value_dim) + out
    return max(q, k, v) * module_parameters(rank, hidden_size, query_dim + 2 * key_value_dim) + out


def mlp_adapters(
    rank: int,
    hidden_size: int,
    intermediate_size: int,
    gated: int,
    separate: int,
    gate: int,
    up: int,
    down: int,
) -> int:
    """Adapter parameters of one layer's MLP. One that is not gated (`gated` is 0) has no gate to adapt."""
    out = down * module_parameters(rank, intermediate_size, hidden_size)
    if separate == 1 or gated == 0:
        return (gate * gated + up) * module_parameters(rank, hidden_size, intermediate_size) + out
    return max(gate, up) * module_parameters(rank, hidden_size, 2 * intermediate_size) + out


def trainable_parameters(layers: int, attention_adapters: int, mlp_adapters: int) -> int:
    """Parameters of all adapters."""
    return layers * (attention_adapters + mlp_adapters)


def trained_share(parameters: int, trainable_parameters: int) -> float:
    """Adapters as a share of all parameters, the model's and their own, as PEFT prints it."""
    return trainable_parameters / (parameters + trainable_parameters)


def adapter_bytes(trainable_parameters: int, adapter_value_bytes: int) -> int:
    """Bytes of the adapters' weights in memory, and as a file but for some kB of names."""
    return trainable_parameters * adapter_value_bytes


def adapter_gradients_bytes(adapter_bytes: int) -> int:
    """Bytes of the adapters' gradients: as many as of their weights."""
    return adapter_bytes


def adapter_optimizer_bytes(adapter_bytes: int) -> int:
    """Bytes of AdamW's state for the adapters: two values for each parameter, in the adapters' precision."""
    return 2 * adapter_bytes


def full_training_bytes(parameters: int, adapter_value_bytes: int) -> int:
    """Bytes of gradients and AdamW state if every parameter were trained in the adapters' precision."""
    return 3 * parameters * adapter_value_bytes


def training_bytes(adapter_bytes: int, adapter_gradients_bytes: int, adapter_optimizer_bytes: int) -> int:
    """Bytes that training adapters adds to those of the frozen model: weights, gradients and optimizer state."""
    return adapter_bytes + adapter_gradients_bytes + adapter_optimizer_bytes
