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

_HALF = (torch.float16, torch.bfloat16)


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


#: The memory-efficient backward works on tiles of so many queries: heads of up to 64 in small ones (generate_kernels.py
#: beside kernel_backward.h, on a card with the shared memory of an A100).
_TILE, _WIDE_TILE, _SMALL_HEAD, _KEYS_TILE = 64, 128, 64, 64


def _efficient_backward(args: tuple[Any, ...], out: Any) -> int:
    """The memory-efficient backward: one float a row (delta), and a workspace.

    The workspace sums the queries' gradient in float, in whole tiles, and for 16-bit heads too wide for the registers
    those of keys and values too. 32-bit delta is the sum of a product that is there as a whole. Source:
    `_efficient_attention_backward` in native/transformers/cuda/attention_backward.cu, and `workspace_size` in
    mem_eff_attention/kernel_backward.h, for keys that are not split.
    """
    query, key, value = args[1], args[2], args[3]
    batch, heads, rows, head = query.shape
    widest = max(head, value.size(3))
    tile = _TILE if widest <= _SMALL_HEAD else _WIDE_TILE
    workspace = -(-rows // tile) * -(-head // tile) * (4 * tile * tile + 16)
    is_half = query.dtype is not torch.float32
    if is_half and widest > tile:
        workspace += 4 * _up(key.size(2), _KEYS_TILE) * (_up(head, tile) + _up(value.size(3), tile))
    delta = 4 * rows
    product = 0 if is_half else 4 * rows * value.size(3) + delta
    return int(batch * heads * (delta + max(workspace, product)))


def _embedding_backward(args: tuple[Any, ...], out: Any) -> int:
    """Rows of each token's gradient, summed in float, and the indices in order.

    Six lists of indices: sorted, where they were, and where each one's rows start and end
    (`embedding_backward_cuda_kernel` in ATen/native/cuda/EmbeddingBackwardKernel.cu). Up to 3072 indices CUDA sorts
    nothing and needs none of this. It is counted all the same: micro-batches are traced small, and what is told of
    large ones from them would lack it.
    """
    grad, indices = args[0], args[1]
    rows = 4 * grad.size(-1) if grad.dtype in _HALF else grad.element_size() * grad.size(-1)
    return int(indices.numel() * (6 * indices.element_size() + rows))


def _index_put(args: tuple[Any, ...], out: Any) -> int:
    """Adding at positions that may repeat, as the backward of indexing does: they are made into one list and sorted.

    Three lists of 8 bytes (`index_put_with_sort_kernel` in ATen/native/cuda/Indexing.cu).
    """
    accumulates = len(args) > 3 and args[3]
    counts = [t.numel() for t in args[1] if t is not None and t.dtype not in (torch.bool, torch.uint8)]
    return 3 * 8 * max(counts, default=0) if accumulates else 0


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
    _aten._index_put_impl_.default: _index_put,
    _aten.index_put_.default: _index_put,
    _aten.index_put.default: _index_put,
    _aten._foreach_norm.Scalar: _foreach_norm,
}
