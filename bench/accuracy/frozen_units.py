"""What FSDP1 keeps where a whole frozen unit is inside of reentrant checkpointing: its input, and that one's gradient.

To know when a frozen unit's backward is done, FSDP1 hooks the gradients of its inputs, and keeps the hooks until the
end of backward. Reentrant checkpointing hands each block a detached copy of its input: a leaf, whose hook is on the
node that accumulates its gradient, and that node keeps both. So every block leaves two hidden states behind.

Sources: torch/distributed/fsdp/_runtime_utils.py (`_register_post_backward_reshard_only_hook`, `_finalize_params`),
torch/autograd/graph.py (`register_multi_grad_hook`), PyTorch 2.4 to 2.13. Until transformers 4.53 checkpointing was
around the wrapped block, since then it is within. A real FullyShardedDataParallel does the same; see the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from batchfit.trace.checkpointing import repeated_blocks


def hold_inputs_of_frozen_units(model: nn.Module) -> None:
    """Makes each repeated block of `model` whose own weights are frozen keep its inputs as FSDP1 does."""
    for block in repeated_blocks(model):
        block.register_forward_pre_hook(_hold, with_kwargs=True)


def _hold(block: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.requires_grad]
    recomputed = torch._C._current_graph_task_id() != -1
    if not (torch.is_grad_enabled() and recomputed and inputs):
        return
    held = torch.autograd.graph.register_multi_grad_hook(inputs, lambda gradients: None)
    # At the end of the whole backward, of which recomputing a block is a part.
    torch.autograd.Variable._execution_engine.queue_callback(held.remove)
