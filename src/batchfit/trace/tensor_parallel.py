"""Tensor and sequence parallelism: what one of t ranks holds and runs of a model, traced without its peers.

Products come in pairs. The first is divided by its columns (each rank computes 1/t of the outputs from the whole
input), the second by its rows (each rank adds up 1/t of the inputs, and the ranks' sums are summed). What lies between
is 1/t of the whole on each rank. What lies outside of pairs is whole on every rank; with sequence parallelism it is
1/t of it, along the sequence. The embedding and the output layer are divided by the vocabulary.

The collectives are PyTorch's functional ones, whose results' shapes need no process group, and as DTensor calls them:
where the sequence is not the outermost dimension, what is gathered or scattered is copied once more.

Sources: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198, section 4.2;
torch.distributed.tensor.parallel (`ColwiseParallel`, `RowwiseParallel`, `PrepareModuleInput`, `loss_parallel`);
torch.distributed._functional_collectives (`all_gather_tensor`, `reduce_scatter_tensor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from batchfit.errors import BadInput

#: How a module can be divided: linear layers by columns or rows, an embedding by its vocabulary; and modules whose
#: first input is brought together along the sequence.
STYLES = ("colwise", "rowwise", "vocabulary", "gather")

_collectives: Any = torch.ops._c10d_functional

#: The name of the collectives' group. Tensors without data never look it up.
GROUP = "tensor parallel"


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """t ranks that share each layer. With `sequence`, what lies outside of divided layers is divided, too, along
    `sequence_dim`."""

    degree: int
    sequence: bool = True
    sequence_dim: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            raise BadInput(
                "degree", "must be a whole number of 1 or more; you gave {given}", given=repr(self.degree)
            )

    def entering(self, x: Tensor) -> Tensor:
        """The whole input of layers divided by columns, from what lies outside: gathered with sequence parallelism.
        Backward sums the ranks' gradients."""
        whole: Tensor = _Entering.apply(x, self)  # type: ignore[no-untyped-call]
        return whole

    def leaving(self, x: Tensor) -> Tensor:
        """What lies outside, from a rank's part of the sums of a layer divided by rows: the ranks' sums, with sequence
        parallelism the rank's share of the sequence."""
        summed: Tensor = _Leaving.apply(x, self)  # type: ignore[no-untyped-call]
        return summed


def all_gather(x: Tensor, ranks: int, dim: int) -> Tensor:
    """The ranks' tensors one after the other along a dimension."""
    whole: Tensor = _collectives.all_gather_into_tensor(x.contiguous(), ranks, GROUP)
    return whole if dim == 0 else torch.cat(whole.chunk(ranks, 0), dim)


def reduce_scatter(x: Tensor, ranks: int, dim: int) -> Tensor:
    """A rank's share along a dimension of the sum of the ranks' tensors."""
    x = x.contiguous() if dim == 0 else torch.cat(x.chunk(ranks, dim))
    share: Tensor = _collectives.reduce_scatter_tensor(x, "sum", ranks, GROUP)
    return share


def all_reduce(x: Tensor) -> Tensor:
    """The sum of the ranks' tensors, a new tensor."""
    summed: Tensor = _collectives.all_reduce(x, "sum", GROUP)
    return summed


class _Entering(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, parallel: TensorParallel) -> Tensor:
        ctx.parallel = parallel
        if not parallel.sequence:
            return x.view_as(x)
        return all_gather(x, parallel.degree, parallel.sequence_dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        parallel: TensorParallel = ctx.parallel
        if not parallel.sequence:
            return all_reduce(gradients[0]), None
        return reduce_scatter(gradients[0], parallel.degree, parallel.sequence_dim), None


class _Leaving(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, parallel: TensorParallel) -> Tensor:
        ctx.parallel = parallel
        if not parallel.sequence:
            return all_reduce(x)
        return reduce_scatter(x, parallel.degree, parallel.sequence_dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        parallel: TensorParallel = ctx.parallel
        if not parallel.sequence:
            return gradients[0], None
        return all_gather(gradients[0], parallel.degree, parallel.sequence_dim), None


def divide(model: nn.Module, plan: Mapping[str, str], parallel: TensorParallel) -> None:
    """Makes `model` (on the meta device) one rank's part of it, in place.

    `plan` gives modules' paths, with * for any part, and how each is divided (STYLES). A linear layer by columns keeps
    1/t of its outputs and takes the whole input; without sequence parallelism its input's gradient is summed over the
    ranks. One by rows keeps 1/t of its inputs, and its result is summed over the ranks. An embedding keeps 1/t of its
    vocabulary, and its result is summed likewise. "gather" brings a module's first input together along the sequence,
    for the layers inside that are divided by columns.

    Code that views a result as heads must take their number from its size (-1). Raises BadInput for a plan that names
    no module or no style, or where a size is not a multiple of t.
    """
    modules = dict(model.named_modules())
    for pattern, style in plan.items():
        if style not in STYLES:
            raise BadInput(
                "plan", "must give {allowed}; you gave {given}", allowed=", ".join(STYLES), given=repr(style)
            )
        found = [(path, module) for path, module in modules.items() if fnmatchcase(path, pattern)]
        if not found:
            raise BadInput("plan", "names {pattern}, and the model has no such module", pattern=pattern)
        for path, module in found:
            _divided(path, module, style, parallel)


def _divided(path: str, module: nn.Module, style: str, parallel: TensorParallel) -> None:
    if style == "gather":
        module.register_forward_pre_hook(lambda _, inputs: (parallel.entering(inputs[0]), *inputs[1:]))
        return
    wanted = nn.Embedding if style == "vocabulary" else nn.Linear
    if not isinstance(module, wanted):
        raise BadInput(
            "plan",
            "divides {path} as {style}, which is for {wanted}; it is a {found}",
            path=path,
            style=style,
            wanted=wanted.__name__,
            found=type(module).__name__,
        )
    if isinstance(module, nn.Embedding):
        module.__class__ = _DividedEmbedding
    dim = 1 if style == "rowwise" else 0
    _keep_share(path, module, "weight", dim, parallel.degree)
    if style == "colwise":
        if getattr(module, "bias", None) is not None:
            _keep_share(path, module, "bias", 0, parallel.degree)
        if not parallel.sequence:
            module.register_forward_pre_hook(lambda _, inputs: (parallel.entering(inputs[0]), *inputs[1:]))
        return
    module.register_forward_hook(lambda _, __, result: parallel.leaving(result))


class _DividedEmbedding(nn.Embedding):
    """A rank's rows; `num_embeddings` stays the whole vocabulary's."""

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = _Embedding.apply(ids, self.weight, self.num_embeddings)  # type: ignore[no-untyped-call]
        return found


class _Embedding(torch.autograd.Function):
    """A rank's rows of an embedding. Its gradient is made for the whole vocabulary, and the rank's share is a view of
    it, as DTensor does (`embedding_dense_backward` is not told that rows are divided)."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor, vocabulary: int) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.vocabulary, ctx.rows = vocabulary, weight.size(0)
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None]:
        (ids,) = ctx.saved_tensors
        whole = torch.ops.aten.embedding_dense_backward(gradients[0], ids, ctx.vocabulary, -1, False)
        return None, whole[: ctx.rows], None


def _keep_share(path: str, module: nn.Module, name: str, dim: int, degree: int) -> None:
    """A rank's share of a weight along a dimension."""
    whole: nn.Parameter = getattr(module, name)
    if whole.size(dim) % degree:
        raise BadInput(
            "degree",
            "must divide the {size} of {path}.{name}; you gave {degree}",
            size=whole.size(dim),
            path=path,
            name=name,
            degree=degree,
        )
    shape = list(whole.shape)
    shape[dim] //= degree
    share = torch.empty(shape, dtype=whole.dtype, device=whole.device)
    setattr(module, name, nn.Parameter(share, whole.requires_grad))


def vocabulary_parallel_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of a rank's share of the logits, [tokens, vocabulary / t] in float32, as PyTorch's
    `loss_parallel` computes it: with all that it keeps and makes on the way.

    Source: torch.distributed.tensor.parallel.loss (`_log_softmax`, `_nll_loss_and_log_softmax_backward`).
    """
    loss: Tensor = _VocabularyParallelLoss.apply(logits, labels)  # type: ignore[no-untyped-call]
    return loss


class _VocabularyParallelLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        shifted = logits - all_reduce(logits.amax(-1, keepdim=True))
        sums = all_reduce(torch.exp(shifted).sum(-1, keepdim=True))
        log_softmax = shifted - torch.log(sums)
        ctx.save_for_backward(log_softmax, labels)
        picked = all_reduce(torch.gather(log_softmax, 1, labels.unsqueeze(1)))
        return -picked.mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        log_softmax, labels = ctx.saved_tensors
        gradient = torch.zeros_like(log_softmax)
        gradient.scatter_(1, labels.unsqueeze(1), -1.0)
        return (gradient + torch.exp(log_softmax)) * gradients[0], None
