"""What a compiled module keeps from forward to backward: the cut that AOTAutograd's partitioner makes.

torch.compile traces forward and backward into one graph and cuts it where the least bytes cross, recomputing what is
cheap (`torch._functorch.partitioners.min_cut_rematerialization_partition`). Activation checkpointing reaches the
partitioner as a tag on each operation of forward: recompute it, or keep its result.
"""

from __future__ import annotations

import operator
from typing import Any

from torch import fx
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

from batchfit.trace.checkpointing import saving_policy
from batchfit.trace.compiled.fusion import base_of


class Partition:
    """Cuts the joint graph of a module, checkpointed as `checkpoint_blocks` would; its first so many inputs are its
    weights and buffers, which are there anyway.

    After the cut, `donated` names the kept tensors that are nobody else's: backward may write over them.
    """

    def __init__(self, checkpointing: str, parameters: int) -> None:
        self._checkpointing = checkpointing
        self._parameters = parameters
        self.donated: frozenset[str] = frozenset()

    def __call__(
        self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        if self._checkpointing != "none":
            _tag(joint, self._checkpointing)
        options["static_lifetime_input_indices"] = list(range(self._parameters))
        forward, backward = min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **options
        )
        self.donated = _donated(forward, num_fwd_outputs)
        return forward, backward


def _donated(forward: fx.GraphModule, outputs: int) -> frozenset[str]:
    """What forward keeps that shares no memory with its inputs and outputs (`bw_donated_idxs` in AOTAutograd)."""
    (results,) = (node.args[0] for node in forward.graph.nodes if node.op == "output")
    assert isinstance(results, (list, tuple))
    shown = {base_of(result) for result in results[:outputs] if isinstance(result, fx.Node)}
    kept = [result for result in results[outputs:] if isinstance(result, fx.Node)]
    return frozenset(n.name for n in kept if base_of(n).op == "call_function" and base_of(n) not in shown)


def _tag(joint: fx.GraphModule, checkpointing: str) -> None:
    """Marks the operations of forward as torch.compile's higher-order `checkpoint` does
    (torch/_higher_order_ops/wrap.py, `TagActivationCheckpoint.tag_nodes`)."""
    keeps = saving_policy(checkpointing)
    for node in joint.graph.nodes:
        if node.op != "call_function" or node.meta.get("partitioner_tag") == "is_backward":
            continue
        if node.target is operator.getitem:
            node.meta["recompute"] = node.args[0].meta["recompute"]
        else:
            kept = keeps is not None and keeps(node.target)
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
        node.meta["ac_graph_id"] = 1
