"""Autocast as CUDA has it, for tensors of any device: which operations run in 16 bit and which in 32.

PyTorch's own kernels for CUDA's autocast pass by whatever is not on CUDA, and CPU autocast has other lists. So
Python kernels take their place while a trace runs; the dispatcher calls them where it would call PyTorch's, below
`torch.nn.functional` and inside composite operations alike. The lists are those of ATen/autocast_mode.h.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch.utils.checkpoint import DefaultDeviceType

from batchfit.trace.tracker import Kernel, Tracker

LOWER_PRECISION = [
    "_convolution.deprecated",
    "_convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "convolution",
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "prelu",
    "addmm",
    "addmv",
    "addr",
    "matmul",
    "einsum",
    "mm",
    "mv",
    "linalg_vecdot",
    "linear",
    "addbmm",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "linalg_multi_dot",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
    "_scaled_dot_product_flash_attention",
    "scaled_dot_product_attention",
]

FLOAT32 = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "native_layer_norm",
    "rms_norm",
    "group_norm",
    "frobenius_norm.dim",
    "nuclear_norm",
    "nuclear_norm.dim",
    "cosine_similarity",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "margin_ranking_loss",
    "multilabel_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "binary_cross_entropy_with_logits",
    "dist",
    "pdist",
    "cdist",
    "renorm",
    "logsumexp",
    "upsample_nearest1d",
    "_upsample_nearest_exact1d",
    "upsample_nearest2d",
    "_upsample_nearest_exact2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "_upsample_bilinear2d_aa",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bicubic2d_aa",
]

#: These take the type of their result as an argument, and are given float32 where the caller gave none.
FLOAT32_RESULT = [
    "prod",
    "prod.dim_int",
    "softmax.int",
    "log_softmax.int",
    "cumprod",
    "cumsum",
    "linalg_vector_norm",
    "linalg_matrix_norm",
    "linalg_matrix_norm.str_ord",
    "sum",
    "sum.dim_IntList",
]

#: These have another overload that takes the result's type, and are sent there.
FLOAT32_OVERLOAD = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}

WIDEST = [
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "vdot",
    "grid_sampler",
    "index_put",
    "tensordot",
    "scatter_add",
]

#: Refused by autocast: binary_cross_entropy on probabilities is unsafe in half precision.
BANNED = ["binary_cross_entropy"]

_KEY = torch._C.DispatchKey.AutocastCUDA
_KEYS = torch._C.DispatchKeySet(_KEY)

_Kernel = Callable[..., Any]


class Autocast:
    """A context in which `torch.autocast("cuda", ...)` works on the tensors that `eligible` says are on the GPU.

    Outside such an autocast it does nothing. Casts of float32 leaves that need gradients (parameters) are kept
    until the outermost autocast ends, as PyTorch keeps them, and `tracker` counts them as buffers.
    """

    def __init__(self, eligible: Callable[[torch.Tensor], bool], tracker: Tracker) -> None:
        self._eligible = eligible
        self._tracker = tracker
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._exit: ExitStack | None = None

    def __enter__(self) -> Autocast:
        with ExitStack() as stack:
            library = torch.library.Library("aten", "IMPL")
            stack.callback(library._destroy)
            with warnings.catch_warnings():
                # "Overriding a previously registered kernel" is what we mean to do.
                warnings.simplefilter("ignore")
                for operator, kernel in self._kernels().items():
                    library.impl(operator, kernel, "AutocastCUDA")
                    self._tracker.stand_in(operator, Kernel(kernel, called=_reached))
            stack.enter_context(
                mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False)
            )
            stack.enter_context(mock.patch("torch.cuda.is_bf16_supported", return_value=True))
            # Whose autocast a checkpointed block's recomputation restores where its arguments do not say.
            stack.enter_context(mock.patch.object(DefaultDeviceType, "_default_device_type", "cuda"))
            stack.enter_context(torch._C._IncludeDispatchKeyGuard(_KEY))
            stack.enter_context(mock.patch("torch.clear_autocast_cache", self._copies.clear))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._exit is not None
        self._exit.close()
        self._copies.clear()

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """`tensor` as `dtype`, if autocast may touch it: on the GPU, floating, and not float64."""
        if (
            not tensor.is_floating_point()
            or tensor.dtype in (dtype, torch.float64)
            or not self._eligible(tensor)
        ):
            return tensor
        if not self._kept(tensor, dtype):
            return tensor.to(dtype)
        found = self._copies.get(id(tensor))
        if found is None:
            with self._tracker.categorised("buffers"):
                # The tensor is held too, so that its id stays its own.
                found = self._copies[id(tensor)] = tensor, tensor.to(dtype)
        return found[1]

    def _kept(self, tensor: torch.Tensor, dtype: torch.dtype) -> bool:
        return (
            dtype == torch.get_autocast_dtype("cuda")
            and tensor.dtype is torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
        )

    def _cast_all(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, torch.Tensor):
            return self.cast(value, dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast_all(item, dtype) for item in value)
        return value

    def _kernels(self) -> dict[Any, _Kernel]:
        made = {operator: self._lower(operator) for operator in _present(LOWER_PRECISION)}
        made |= {operator: self._float32(operator) for operator in _present(FLOAT32)}
        made |= {operator: self._float32_result(operator) for operator in _present(FLOAT32_RESULT)}
        made |= {
            _operator(name): self._float32_overload(_operator(name), _operator(other))
            for name, other in FLOAT32_OVERLOAD.items()
        }
        made |= {operator: self._widest(operator) for operator in _present(WIDEST)}
        return made

    def _lower(self, operator: Any) -> _Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                dtype = torch.get_autocast_dtype("cuda")
                return operator(
                    *self._cast_all(args, dtype), **{k: self._cast_all(v, dtype) for k, v in kwargs.items()}
                )

        return kernel

    def _float32(self, operator: Any) -> _Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                to = torch.float32
                return operator(
                    *self._cast_all(args, to), **{k: self._cast_all(v, to) for k, v in kwargs.items()}
                )

        return kernel

    def _float32_result(self, operator: Any) -> _Kernel:
        at = next(i for i, a in enumerate(operator._schema.arguments) if a.name == "dtype")

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                given = args[at] if len(args) > at else kwargs.get("dtype")
                if given is not None or not self._narrow(args[0]):
                    return operator(*args, **kwargs)
                return operator(*args[:at], **{**kwargs, "dtype": torch.float32})

        return kernel

    def _float32_overload(self, operator: Any, with_dtype: Any) -> _Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                if not self._narrow(args[0]):
                    return operator(*args, **kwargs)
                return with_dtype(*args, **{**kwargs, "dtype": torch.float32})

        return kernel

    def _widest(self, operator: Any) -> _Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_KEYS):
                floating = [
                    t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor) and self._floating(t)
                ]
                widest = torch.get_autocast_dtype("cuda")
                if any(t.dtype is torch.float32 for t in floating):
                    widest = torch.float32
                return operator(
                    *self._cast_all(args, widest), **{k: self._cast_all(v, widest) for k, v in kwargs.items()}
                )

        return kernel

    def _floating(self, tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point() and self._eligible(tensor)

    def _narrow(self, tensor: torch.Tensor) -> bool:
        return self._floating(tensor) and tensor.dtype in (torch.float16, torch.bfloat16)


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _present(names: list[str]) -> list[Any]:
    """The operators of `names` that this version of PyTorch has an autocast kernel for."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [_operator(name) for name in names if has(f"aten::{name}", "AutocastCUDA")]


def _reached() -> bool:
    """Whether an operation is on its way through autocast: it is on, and the kernel has not run yet."""
    return not torch._C._dispatch_tls_is_dispatch_key_excluded(_KEY)
