"""PyTorch's MemTracker (torch.distributed._tools) over two optimizer steps of the row's model on fake tensors, as its
own example has it. It walks through every operation of every block, so a few rows only are asked."""

from __future__ import annotations

from bench.accuracy.peers._shape import one_gpu
from bench.accuracy.question import CannotExpress, Question

NAME = "PyTorch's MemTracker"

#: So many distinct rows are asked: each takes minutes.
LIMIT = 4


def peak(question: Question) -> float:
    """The peak of the device's memory in its snapshot, in bytes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    from bench.accuracy.building import training

    one_gpu(question)
    if question.trace.get("quantize"):
        raise CannotExpress("weights in few bits")
    made = training(question.trace)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = made.model.to_empty(device="cpu")
        model.train()
        if question.trace.get("checkpointing", "none") != "none":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        batch = made.make_batch(question.micro_batch)
        batch = {name: torch.empty_like(value) for name, value in batch.items()}
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *batch.values())
        with tracker:
            # The second step has the optimizer's state from its beginning.
            for _ in range(2):
                made.loss(model, batch).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
    snapshot = tracker.get_tracker_snapshot("peak")
    return float(max(parts["Total"] for parts in snapshot.values()))
