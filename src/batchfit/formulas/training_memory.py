"""Memory of training a decoder on one GPU: weights, gradients, optimizer state, master copy and activations.

Sizes are in bytes. Three numbers say what a precision is: bytes of a weight, of its master copy (0 where there is
none) and of an activation. Gradients have the weights' precision; optimizer state that of the copy which is updated.
Where activations have fewer bytes than weights, that is autocast.

The states are those of Rajbhandari et al. 2020 ("ZeRO", arXiv:1910.02054): section 3.1 for the 16 bytes a parameter of
mixed-precision Adam (2 weights, 2 gradients, 4 + 4 + 4 for the fp32 copy, momentum and variance), section 5 for what
each stage divides by the replicas: 1 optimizer state and master copy, 2 gradients too, 3 weights too.
"""

from __future__ import annotations

from batchfit.formulas import optimizer_state

FP32_BYTES = 4


def per_replica(nbytes: int, replicas: int, zero_stage: int, sharded_from: int) -> int:
    """What one replica holds of `nbytes`: all of it, or from stage `sharded_from` on its part, rounded up."""
    return -(-nbytes // replicas) if zero_stage >= sharded_from else nbytes


def weights_bytes(parameters: int, weight_value_bytes: int, replicas: int, zero_stage: int) -> int:
    """Bytes of the weights."""
    return per_replica(parameters * weight_value_bytes, replicas, zero_stage, 3)


def gradients_bytes(parameters: int, weight_value_bytes: int, replicas: int, zero_stage: int) -> int:
    """Bytes of the gradients: one for each parameter, in the weights' precision."""
    return per_replica(parameters * weight_value_bytes, replicas, zero_stage, 2)


def master_copy_bytes(parameters: int, master_value_bytes: int, replicas: int, zero_stage: int) -> int:
    """Bytes of the fp32 copy that the optimizer updates where the weights have 16 bits."""
    return per_replica(parameters * master_value_bytes, replicas, zero_stage, 1)


def optimizer_bytes(
    parameters: int,
    hidden_size: int,
    full_values: int,
    eight_bit_values: int,
    scales: int,
    factored_values: int,
    weight_value_bytes: int,
    master_value_bytes: int,
    replicas: int,
    zero_stage: int,
) -> int:
    """Bytes of optimizer state; its kinds of values are those of `optimizer_state`."""
    updated = max(weight_value_bytes, master_value_bytes)
    state = optimizer_state.optimizer_state_bytes(
        parameters, hidden_size, full_values, eight_bit_values, scales, factored_values, updated
    )
    return per_replica(state, replicas, zero_stage, 1)


def states_bytes(
    weights_bytes: int, gradients_bytes: int, optimizer_bytes: int, master_copy_bytes: int
) -> int:
    """Bytes that do not depend on the batch: for mixed-precision Adam on one GPU, 16 for each parameter."""
    return weights_bytes + gradients_bytes + optimizer_bytes + master_copy_bytes


def states_per_parameter(parameters: int, states_bytes: int) -> float:
    """Bytes of states on each GPU for each parameter of the model."""
    return states_bytes / parameters


def layer_activation(
    hidden_size: int,
    key_value_dim: int,
    intermediate_size: int,
    gated: int,
    weight_value_bytes: int,
    activation_value_bytes: int,
) -> int:
    """Bytes that a layer keeps for backward for each token, with an attention kernel that keeps no scores.

    Counted from the tensors that PyTorch's autograd keeps of a layer as transformers writes it, without dropout, v
    being bytes of an activation: 6·v·h for the inputs and results of two norms, the queries and the attention's output;
    2·v·k for keys and values; in the MLP four tensors of i values where it is `gated`, otherwise two. A gated layer's
    norms are RMSNorm, written out, which keeps its input in fp32 besides: 8·h. Under autocast norms keep fp32 and every
    projection its own copy of its input (10·h more), and the cache of keys their fp32 form (4·k more).

    With LayerNorm, i = 4·h, k = h and the masks of two dropouts, this is the 34·s·b·h of Korthikanti et al. 2022
    (arXiv:2205.05198, section 4.1).
    """
    hidden = 6 * activation_value_bytes + 8 * gated
    key_value = 2 * activation_value_bytes
    inner = (2 + 2 * gated) * activation_value_bytes
    if activation_value_bytes < weight_value_bytes:
        hidden = hidden + 10
        key_value = key_value + FP32_BYTES
    return hidden * hidden_size + key_value * key_value_dim + inner * intermediate_size


def output_activation(vocabulary: int, activation_value_bytes: int) -> int:
    """Bytes for each token at the output layer: logits, their fp32 form, its log-softmax, and its gradient."""
    logits = activation_value_bytes if activation_value_bytes < FP32_BYTES else 0
    return vocabulary * (logits + 3 * FP32_BYTES)


def token_activation(
    layers: int,
    hidden_size: int,
    weight_value_bytes: int,
    recomputes: int,
    layer_activation: int,
    output_activation: int,
) -> int:
    """Bytes of activations for each token of a micro-batch at their peak.

    Without checkpointing, all layers keep theirs until backward begins at the output layer. With full checkpointing a
    layer keeps its input alone, in the weights' precision, and what it computes again is freed before the next layer
    does: on top are the output layer's or one layer's, whichever takes more.
    """
    if recomputes == 1:
        return layers * weight_value_bytes * hidden_size + max(layer_activation, output_activation)
    return layers * layer_activation + output_activation


def activations_bytes(micro_batch: int, sequence_length: int, token_activation: int) -> int:
    """Bytes of activations of a micro-batch."""
    return micro_batch * sequence_length * token_activation


def copies_bytes(
    parameters: int, weight_value_bytes: int, activation_value_bytes: int, replicas: int, zero_stage: int
) -> int:
    """Bytes of the copies of weights that autocast makes in the precision of activations, and keeps to the end of
    backward; where weights are sharded, those of a share."""
    copy = activation_value_bytes if activation_value_bytes < weight_value_bytes else 0
    return per_replica(parameters * copy, replicas, zero_stage, 3)


def micro_batch_bytes(states_bytes: int, copies_bytes: int, activations_bytes: int) -> int:
    """Bytes on each GPU at the peak of forward and backward, with gradients that earlier micro-batches have left."""
    return states_bytes + copies_bytes + activations_bytes


def optimizer_step_bytes(
    parameters: int,
    step_values: int,
    weight_value_bytes: int,
    master_value_bytes: int,
    replicas: int,
    zero_stage: int,
    states_bytes: int,
) -> int:
    """Bytes on each GPU at the peak of the optimizer step, when activations are gone: the states, and temporary
    values where the optimizer works on all parameters at once."""
    updated = max(weight_value_bytes, master_value_bytes)
    return states_bytes + per_replica(parameters * step_values * updated, replicas, zero_stage, 1)


def total_bytes(micro_batch_bytes: int, optimizer_step_bytes: int) -> int:
    """Bytes on each GPU at the higher of the two peaks."""
    return max(micro_batch_bytes, optimizer_step_bytes)
