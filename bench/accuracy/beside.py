"""What a training process holds on a card beside PyTorch's allocator, between published figures.

At least the context that the catalogue of GPUs has for the card's generation, and NCCL's documented buffers. At most
what out-of-memory messages of training processes on cards of that generation leave (in use, less allocated, less
reserved but unallocated), and the largest published figure for one communicator within a node.
"""

from __future__ import annotations

from batchfit.gpus import find_gpu
from batchfit.planning.fit import capacity

MIB = 2**20

#: A100 80 GB, adapters trained by transformers: 36.41 GiB in use, 35.40 GiB allocated, 9.57 MiB reserved but
#: unallocated. Others on that card leave 0.49 to 0.51 GiB. More kernels, of more libraries, are loaded by some.
CONTEXT_AT_MOST = {"Ampere": 1025 * MIB}

#: NVIDIA/nccl, issue 964: what one communicator took on four A100 with NVLink, of two of them and of more.
NCCL_AT_MOST_OF_TWO = 544 * MIB
NCCL_AT_MOST = 688 * MIB


def beside_allocator(gpu: str, replicas: int) -> tuple[int, int]:
    """The least and the most bytes on a card of this name for one of `replicas` processes, one communicator each."""
    card = find_gpu(gpu)
    room = capacity(card, replicas)
    context = max(room.context_bytes, CONTEXT_AT_MOST.get(card.architecture, 0))
    communication = 0 if replicas < 2 else NCCL_AT_MOST_OF_TWO if replicas == 2 else NCCL_AT_MOST
    return room.context_bytes + room.communication_bytes, context + communication
