"""The model of time: its limits, what it must do when a setting changes, and its measured error."""

import json
from dataclasses import replace
from importlib import resources
from math import isclose

import numpy as np
import pytest

from batchfit.gpus import find_gpu, load_gpus
from batchfit.planning.costs import Costs
from batchfit.planning.rates import MATMUL_SHARES, Rates, rates
from batchfit.planning.throughput import ERROR_FILE, StepClock, clock, model_error, traffic
from batchfit.profile import MemoryProfile
from bench.accuracy.throughput import measured, relative_errors, rows
from tests.planning.decoder import SMALL, decoder


def card(name: str = "a100-80gb") -> Rates:
    found = rates(find_gpu(name), "bf16-mixed")
    assert found is not None
    return found


def seconds(
    profile: MemoryProfile,
    micro: int,
    steps: int,
    sharding: str = "none",
    replicas: int = 1,
    gpu: str = "a100-80gb",
) -> float:
    return StepClock(profile, card(gpu), sharding, replicas, 4096).explain(micro, steps).seconds


def test_a_large_micro_batch_takes_as_long_as_its_flops() -> None:
    profile, speed = decoder(), card()
    compute = profile.compute
    flops = 64 * sum(c * 4096**power for power, c in enumerate(compute.step_flops))
    attention = 64 * sum(c * 4096**power for power, c in enumerate(compute.attention_flops))
    least = (flops - attention) / speed.matmul + attention / speed.attention
    taken = seconds(profile, 64, 1)
    assert least < taken < 1.5 * least


def test_a_small_micro_batch_wastes_the_card() -> None:
    profile = decoder(seq_len=(16, 16384))
    speed = StepClock(profile, card(), "none", 1, 16)
    one, many = speed.explain(1, 1), speed.explain(512, 1)
    assert one.bound in ("memory", "launches")
    assert many.bound == "compute"
    assert one.micro_batch_seconds > 5 * many.micro_batch_seconds / 512


def test_many_settings_at_once_take_what_each_takes_alone() -> None:
    clocks = [
        StepClock(decoder(checkpointing=kind), card(gpu), sharding, 16, 4096)
        for kind in ("none", "full")
        for gpu in ("a100-80gb", "rtx-4090")
        for sharding in ("ddp", "zero2", "fsdp")
    ]
    micro = np.array([1, 2, 3, 16])
    per_micro, once = Costs.stacked([each.costs for each in clocks]).times(micro)
    for row, each in enumerate(clocks):
        for alone, together in zip(each.costs.times(micro), (per_micro[row], once[row]), strict=True):
            assert alone.tolist() == together.tolist()


def test_launches_bound_a_tiny_model() -> None:
    profile = decoder(SMALL, seq_len=(16, 4096))
    time = StepClock(profile, card("h100-80gb"), "none", 1, 16).explain(1, 1)
    assert time.bound == "launches"
    assert isclose(
        time.micro_batch_seconds, profile.compute.kernels_per_micro_batch * card("h100-80gb").launch
    )


def test_checkpointing_costs_about_a_third() -> None:
    ratio = seconds(decoder(checkpointing="full"), 8, 4) / seconds(decoder(), 8, 4)
    assert 1.2 < ratio < 1.4


def test_accumulation_makes_the_optimizer_rarer() -> None:
    profile = decoder()
    assert seconds(profile, 1, 8) < 8 * seconds(profile, 1, 1)


@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
def test_talking_to_others_never_makes_a_step_faster_but_for_a_shared_optimizer(sharding: str) -> None:
    profile = decoder()
    speed = StepClock(profile, card(), sharding, 8, 4096)
    alone = StepClock(profile, card(), "none", 1, 4096)
    micro = np.array([1, 2, 4])
    assert (speed.costs.times(micro)[0] >= alone.costs.times(micro)[0]).all()


def test_slow_links_hurt_what_sends_with_every_micro_batch() -> None:
    profile, near = decoder(), card()
    far = replace(near, link=near.link / 100)

    def lost(speed: Rates, sharding: str, steps: int) -> float:
        return StepClock(profile, speed, sharding, 8, 4096).explain(1, steps).communication_seconds

    assert lost(far, "fsdp", 32) > 100 * lost(near, "fsdp", 32)
    assert isclose(lost(far, "fsdp", 32), 32 * lost(far, "fsdp", 1))
    # DDP sends once, however many steps are accumulated.
    assert isclose(lost(far, "ddp", 32), lost(far, "ddp", 1))


def test_traffic_follows_the_zero_paper() -> None:
    profile = decoder(precision="bf16")
    size = profile.model.parameters * 2
    ring = 7 / 8
    assert traffic(profile, "ddp", 8).gradients == 2 * size * ring
    assert traffic(profile, "fsdp", 8).per_micro_batch == 3 * size * ring
    assert traffic(profile, "zero3", 8) == traffic(profile, "fsdp", 8)
    zero1 = traffic(profile, "zero1", 8)
    assert zero1.gradients + zero1.weights == 2 * size * ring
    assert traffic(profile, "none", 1).per_micro_batch == 0
    mixed = decoder(precision="bf16-mixed")
    assert traffic(mixed, "fsdp", 8) == traffic(profile, "fsdp", 8)


def test_what_is_not_known_has_no_time() -> None:
    peakless = next(gpu for gpu in load_gpus() if not gpu.peak_16bit and not gpu.peak_fp32)
    assert rates(peakless, "bf16") is None
    assert clock(decoder(), None, "none", 1, 4096) is None


def test_every_measured_share_is_of_a_card_that_there_is() -> None:
    assert set(MATMUL_SHARES) <= {gpu.id for gpu in load_gpus()}
    assert all(0.4 < share <= 1 for share in MATMUL_SHARES.values())
    relative = rates(find_gpu("rtx-4090"), "bf16")
    assert relative is not None
    assert "median of measured cards" in relative.sources[0]


def test_the_error_is_the_measured_one() -> None:
    held = json.loads(resources.files("batchfit").joinpath(ERROR_FILE).read_text("utf-8"))
    assert held == json.loads(json.dumps(measured()))
    assert model_error() == held["relative"]["median"]


def test_the_error_is_of_many_pairs_and_small_enough_to_rank_by() -> None:
    errors = relative_errors(rows())
    assert len(errors) > 300
    assert 0 < model_error() < 0.06
