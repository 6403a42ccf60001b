"""The cards that a batch fits on, told from what its smallest plan takes."""

from __future__ import annotations

from batchfit.errors import BadInput
from batchfit.gpus import Gpu, load_gpus
from batchfit.planning.advice import Situation
from batchfit.planning.fit import capacity
from batchfit.planning.search import least_peaks


def fitting_cards(situation: Situation) -> tuple[Gpu, ...]:
    """Every card on which, in the same number, some plan reaches the target and leaves the headroom free; those with
    the least memory first. Cards without bf16 only where the one asked for is one, since they train in another
    precision; and for several GPUs only cards that sit together in a node."""
    request = situation.request
    least = least_peaks(situation.options, request)
    found = []
    for gpu in load_gpus():
        if not gpu.supports_bf16 and request.gpu.supports_bf16:
            continue
        if request.gpus > 1 and gpu.per_node == 1 and request.gpu.per_node > 1:
            continue
        for replicas, peak in least.items():
            try:
                room = capacity(gpu, replicas, request.headroom)
            except BadInput:  # a headroom that this card has not
                continue
            if peak <= room.capacity_bytes - room.headroom_bytes:
                found.append(gpu)
                break
    return tuple(sorted(found, key=lambda gpu: (gpu.memory_bytes, -gpu.year)))
