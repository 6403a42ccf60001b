"""Memory that CUDA's own kernels and libraries take, which no operation's result shows: workspaces and temporaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from batchfit.trace.tracker import Tracker

_aten = torch.ops.aten

#: PyTorch's workspace for one cuBLAS handle, CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8, its default before Hopper
#: (ATen/cuda/CUDABlas / CublasHandlePool.cpp: 2 buffers of 4096 KiB and 8 of 16 KiB). cuBLASLt shares it.
CUBLAS_WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * 1024

#: The same on Hopper: 32 MiB.
CUBLAS_WORKSPACE_HOPPER_BYTES = 4096 * 8 * 1024

#: Operations that cuBLAS runs.
_MATRIX_PRODUCTS = {
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.addmv.default,
    _aten.mv.default,
    _aten.dot.default,
}

#: multi_tensor_apply works on chunks of this many elements (ATen/native/cuda/MultiTensorApply.cuh).
_CHUNK = 65536

#: The dense backward of an embedding counts small batches of indices in one kernel and sorts larger ones
#: (ATen/native/cuda/Embedding.cu).
_UNSORTED_INDICES = 3072


def assumed_of_the_card(model: nn.Module) -> tuple[str, ...]:
    """What is taken for granted about the card and its libraries, a sentence each."""
    said = [
        "cuBLAS's workspaces are those of cards before Hopper, 8.1 MiB for forward's thread and for backward's"
    ]
    if any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules()):
        said.append("cuDNN's workspaces are not counted: they depend on the algorithms it picks on the card")
    return tuple(said)


class Kernels:
    """Called after each operation; puts on the timeline what its kernel takes beside its results.

    Each thread of a process has a cuBLAS handle of its own, and autograd runs backward in another thread than
    forward, so a training step holds two workspaces from its first backward on.
    """

    def __init__(self, workspace_bytes: int = CUBLAS_WORKSPACE_BYTES) -> None:
        self._workspace_bytes = workspace_bytes
        self._threads_seen: set[bool] = set()

    def __call__(self, func: Any, args: tuple[Any, ...], out: Any, tracker: Tracker) -> None:
        if func in _MATRIX_PRODUCTS:
            thread = tracker.in_backward
            if thread not in self._threads_seen:
                self._threads_seen.add(thread)
                tracker.permanent(self._workspace_bytes, "overhead")
            return
        temporary = _TEMPORARIES.get(func)
        if temporary is not None:
            # Also where it is nothing, so that steps of all sizes have the same events.
            tracker.transient(temporary(args, out))


def _flash_backward(args: tuple[Any, ...], out: Any) -> int:
    """mha_bwd of flash attention: gradients of the queries summed in float, one number a row, both over rows rounded
    up to 128 and heads to 32; with grouped queries also keys' and values' gradients for every query head."""
    query, key = args[1], args[2]
    batch, heads, rows, head = query.shape
    padded = _up(rows, 128)
    nbytes = batch * heads * padded * (_up(head, 32 if head <= 128 else 64) + 1) * 4
    if key.size(1) != heads:
        nbytes += 2 * batch * heads * key.size(2) * head * key.element_size()
    return int(nbytes)


def _efficient_backward(args: tuple[Any, ...], out: Any) -> int:
    """The memory-efficient backward: one float a row, and the queries' gradient summed in float where it is 16-bit."""
    query = args[1]
    batch, heads, rows, _ = query.shape
    nbytes = batch * heads * _up(rows, 32) * 4
    if query.dtype is not torch.float32:
        nbytes += 4 * query.numel()
    return int(nbytes)


def _embedding_backward(args: tuple[Any, ...], out: Any) -> int:
    """Sorting the indices: sorted, their positions and the counts of each, in the indices' type."""
    indices = args[1]
    if indices.numel() <= _UNSORTED_INDICES:
        return 0
    return 3 * int(indices.numel()) * int(indices.element_size())


def _foreach_norm(args: tuple[Any, ...], out: Any) -> int:
    """Partial norms: for every tensor as many as the largest one has chunks, in the sum's type (float for 16-bit)."""
    tensors = args[0]
    chunks = max(-(-t.numel() // _CHUNK) for t in tensors)
    return int(len(tensors) * chunks * max(4, tensors[0].element_size()))


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


_TEMPORARIES: dict[Any, Callable[[tuple[Any, ...], Any], int]] = {
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
    _aten._foreach_norm.Scalar: _foreach_norm,
}
