"""How fast a card and its links really are: the data sheet's figures times the shares that benchmarks reach.

Every share is somebody's published measurement of the hardware alone. None is fitted to a training run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median
from types import MappingProxyType

from batchfit.errors import BadInput
from batchfit.gpus import Gpu, load_gpus
from batchfit.kept import kept
from batchfit.profile import MemoryProfile
from batchfit.sentences import Rounded, Sentence, Share

#: Largest share of the dense 16-bit peak that any shape of matrix product was measured to reach.
#: Stas Bekman, Machine Learning Engineering, "Maximum Achievable Matmul FLOPS comparison table", BF16, v2 of the
#: benchmark; MI250X from its v1. GPUs of the catalogue that share the chip are named with it.
MATMUL_SHARES: Mapping[str, float] = MappingProxyType(
    {
        "a100-40gb": 271.2 / 312,
        "a100-80gb": 271.2 / 312,
        "a100-40gb-pcie": 252.9 / 312,
        "a100-80gb-pcie": 252.9 / 312,
        "h100-80gb": 794.5 / 989,
        "h200-141gb": 794.5 / 989,
        "gh200-96gb": 828.6 / 989,
        "gh200-144gb": 828.6 / 989,
        "b200-180gb": 1745.0 / 2250,
        "b300-288gb": 1769.0 / 2250,
        "gb200-186gb": 1822.0 / 2500,
        "mi250x": 147.0 / 191.5,
        "mi300x": 668.4 / 1300,
        "mi325x": 784.9 / 1300,
        "mi355x": 1565.0 / 2300,
        "gaudi2": 418.7 / 432,
        "gaudi3": 1243.0 / 1677,
    }
)

#: Share of the dense 16-bit peak that fused attention reaches, forward and backward, by the card's generation.
#: FlashAttention-2 (Dao, 2023), abstract: 50 to 73 % on A100, the lower end here since training also runs the
#: slower backward; FlashAttention-3 (Shah et al., 2024), abstract: its predecessor reaches 35 % on H100. Later
#: generations have no published figure and take Hopper's, earlier ones Ampere's.
ATTENTION_SHARE = 0.50
ATTENTION_SHARE_FROM_2022 = 0.35

#: Share of the memory bandwidth that streaming kernels reach: BabelStream's triad on GH200, 3.31 of 4.0 TB/s
#: (UoB-HPC/BabelStream, issue 194).
BANDWIDTH_SHARE = 3.31 / 4.0

#: Share of a link's rate in one direction that ring collectives reach: protocol overhead leaves 370 of NVLink 4's
#: 450 GB/s (NVIDIA/nccl-tests, issue 212, by a maintainer; the same 82 % is measured with SHARP off in Machine
#: Learning Engineering, "all-reduce on a single 8x H200 node").
LINK_SHARE = 370 / 450

#: Seconds that PyTorch takes to issue one operation with autograd (pytorch/pytorch, issue 41383: 6.8 s for 10^6;
#: the floor of an operation's time in meta-pytorch/autoparallel's cost model, pull request 146, is 7 us too).
SECONDS_PER_LAUNCH = 6.8e-6

#: Between nodes, bytes per second and GPU in one direction: one 200 Gb/s adapter for each GPU, as in a DGX A100.
#: Clusters differ more here than anywhere else, so `interconnect` states another.
NODE_LINK = 25e9


@dataclass(frozen=True, slots=True)
class Rates:
    """What a step's time is computed from: FLOP/s, bytes/s, seconds per launch, all as reached in practice.

    `link` is what one GPU sends within a node, `node_link` between nodes, in one direction. `sources` says in
    words where each comes from.
    """

    matmul: float
    attention: float
    memory: float
    launch: float
    link: float
    node_link: float
    per_node: int
    sources: tuple[str, ...]

    def bus(self, replicas: int) -> float:
        """Bytes per second that a ring over `replicas` GPUs moves: the slowest link it crosses."""
        return self.link if replicas <= self.per_node else min(self.link, self.node_link)


#: Rates that are kept: those of every card in a precision or two.
_KEPT = 512


@kept(_KEPT)
def rates(gpu: Gpu, precision: str, interconnect: float | None = None) -> Rates | None:
    """What this card reaches in this precision; None where its peak is not known, so that no time can be told.

    `interconnect`: bytes per second and GPU between nodes, in one direction.
    """
    peak = gpu.peak_fp32 if precision == "fp32" else (gpu.peak_16bit or gpu.peak_fp32)
    if not peak:
        return None
    share, source = _matmul_share(gpu)
    attention = ATTENTION_SHARE_FROM_2022 if gpu.year >= 2022 else ATTENTION_SHARE
    return Rates(
        matmul=peak * share,
        attention=peak * min(attention, share),
        memory=gpu.bandwidth * BANDWIDTH_SHARE,
        launch=SECONDS_PER_LAUNCH,
        link=(gpu.link_bandwidth or 0) / 2 * LINK_SHARE or NODE_LINK,
        node_link=interconnect or NODE_LINK * LINK_SHARE,
        per_node=gpu.per_node,
        sources=(
            Sentence(
                "matrix products at {share} of {peak} TFLOP/s ({source})",
                share=Share(share),
                peak=Rounded(peak / 1e12),
                source=source,
            ),
            Sentence("attention kernels at {share} of it", share=Share(min(attention, share))),
            Sentence(
                "memory at {share} of {rate} GB/s",
                share=Share(BANDWIDTH_SHARE),
                rate=Rounded(gpu.bandwidth / 1e9),
            ),
            Sentence("{time} µs to launch a kernel", time=Rounded(SECONDS_PER_LAUNCH * 1e6, 1)),
            Sentence("links at {share} of their rate", share=Share(LINK_SHARE)),
        ),
    )


def parse_rate(text: str, field: str = "interconnect") -> float:
    """Bytes per second in `text`: "200Gb/s" and "200 Gbps" are bits, "25GB/s" bytes, a bare number GB per second.

    Raises BadInput naming `field`.
    """
    body = re.sub(r"\s*(/\s*s(ec)?|ps)$", "", text.strip())
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?)([bB]?)", body)
    rate = float(found[1]) * _MULTIPLES[found[2] or "G"] / (8 if found[3] == "b" else 1) if found else 0.0
    if not rate:
        raise BadInput(field, "must be a rate such as 200Gb/s or 25GB/s; you typed {typed}", typed=repr(text))
    return rate


_MULTIPLES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def computes_in(profile: MemoryProfile) -> str:
    """The precision that the profile's matrix products run in; "fp32" where it does not say."""
    return str(profile.settings.get("precision", "fp32"))


def _matmul_share(gpu: Gpu) -> tuple[float, str]:
    """The card's measured share, else the median of its architecture, else of all."""
    if gpu.id in MATMUL_SHARES:
        return MATMUL_SHARES[gpu.id], Sentence("measured on this card")
    kin = _shares_by_architecture().get(gpu.architecture)
    if kin:
        return median(kin), Sentence("measured on other {architecture} cards", architecture=gpu.architecture)
    return median(MATMUL_SHARES.values()), Sentence("the median of measured cards")


@cache
def _shares_by_architecture() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for gpu in load_gpus():
        if gpu.id in MATMUL_SHARES:
            found.setdefault(gpu.architecture, []).append(MATMUL_SHARES[gpu.id])
    return found
