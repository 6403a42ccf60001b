"""Activation checkpointing: which blocks of a model recompute their activations in backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from batchfit.errors import BadInput

_aten = torch.ops.aten

#: The matrix products of linear layers, without and with a bias. Every second one is kept.
_PRODUCTS = {_aten.mm.default, _aten.addmm.default}

#: What selective checkpointing keeps, after torchtitan: results that are expensive to compute again for their size.
_KEPT = {
    *_PRODUCTS,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten.convolution.default,
}


def checkpoint_blocks(model: nn.Module, kind: str) -> None:
    """Makes `model`'s repeated blocks recompute in backward: "full" keeps only each block's input, "selective" also
    every second matrix product and attention's result. "none" leaves what the model's own code does.

    Models of transformers know their blocks, as do those of diffusers ("full"); of others they are the children of
    lists and sequences of alike modules. Raises BadInput where the model has no such blocks.
    """
    if kind == "none":
        return
    options: dict[str, Any] = {"use_reentrant": False}
    if kind == "selective":
        options["context_fn"] = _selective
    if getattr(model, "supports_gradient_checkpointing", False):
        enable: Any = (
            getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        )
        enable(options)
        return
    if kind == "full" and getattr(model, "_supports_gradient_checkpointing", False):
        model.enable_gradient_checkpointing()  # type: ignore[operator]
        return
    blocks = repeated_blocks(model)
    if not blocks:
        raise BadInput(
            "checkpointing",
            "{kind} needs repeated blocks, and {model} has none (a ModuleList or Sequential of alike modules)",
            kind=kind,
            model=type(model).__name__,
        )
    for block in blocks:
        block.forward = _checkpointed(block.forward, options)


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost modules that stand in a ModuleList or Sequential beside others of their class."""
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        children = list(module.children())
        kinds = {type(child) for child in children}
        alike = isinstance(module, (nn.ModuleList, nn.Sequential)) and len(children) > 1 and len(kinds) == 1
        # A list of plain layers is no list of blocks: recomputing one linear layer saves nothing.
        if alike and any(True for _ in children[0].children()):
            found.extend(children)
            return
        for child in children:
            visit(child)

    visit(model)
    return found


def _checkpointed(forward: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, **options, **kwargs)

    return recomputed


def saving_policy(kind: str) -> Callable[[Any], bool] | None:
    """A fresh policy for one pass over a block: told of each operator in turn, it says whether its result is kept. It
    counts the matrix products to keep every second one. None where `kind` keeps nothing.
    """
    if kind != "selective":
        return None
    products = 0

    def keeps(operator: Any) -> bool:
        nonlocal products
        if operator in _PRODUCTS:
            products += 1
            return products % 2 == 1
        return operator in _KEPT

    return keeps


def _selective() -> Any:
    """A fresh policy for each block, once as it runs and once as it is recomputed."""
    passes = {True: saving_policy("selective"), False: saving_policy("selective")}

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keeps = passes[context.is_recompute]
        assert keeps is not None
        return CheckpointPolicy.MUST_SAVE if keeps(operator) else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
