"""The arithmetic of sharding, on a profile whose numbers are small enough to follow by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from batchfit.errors import BadInput
from batchfit.profile import (
    Affinity,
    Compute,
    Line,
    MemoryProfile,
    Model,
    Polynomial,
    Provenance,
    ReservedPoint,
    SeqRange,
    States,
    Unit,
)
from batchfit.sharding import DDP, FSDP, FSDP1, NAMES, ZeRO, named, shard

# Four blocks of 100 parameters and a rest of 200, in fp32, trained by Adam: 2400 bytes of weights and as many of
# gradients, 4800 of optimizer state.
BLOCK = Unit("layers.*", 4, 100, 100, 400, 400)
REST = Unit("(root)", 1, 200, 200, 800, 800)
STEEP = 50


def line(where: str, **parts: tuple[float, float]) -> Line:
    amounts: dict[str, tuple[Polynomial, Polynomial]] = {
        name: ((float(c),), (float(s),)) for name, (c, s) in parts.items()
    }
    constant: Polynomial = (sum(c[0] for c, _ in amounts.values()),)
    return Line(constant, (sum(s[0] for _, s in amounts.values()),), amounts, where)


def held(where: str, gradients: float, activations: float, slope: float, **more: tuple[float, float]) -> Line:
    return line(
        where,
        weights=(2400, 0),
        gradients=(gradients, 0),
        optimizer=(4800, 0),
        activations=(activations, slope),
        **more,
    )


@pytest.fixture
def profile() -> MemoryProfile:
    return MemoryProfile(
        model=Model("small", 600, 600, (BLOCK, REST)),
        settings={"precision": "fp32"},
        states=States(2400, 2400, 4800, 0),
        phases={
            "first_micro": (
                held("forward: layers.*.mlp", 0, 0, 44),
                held("backward: head", 0, 0, STEEP),
                # In the first block of backward, with the head's 400 bytes of gradients and half the block's.
                held("backward: layers.*.mlp", 600, 10, 48),
                held("backward: layers.*.mlp", 1800, 10, 18),
                held("backward: embedding", 2400, 0, 1),
            ),
            "later_micro": (
                held("backward: head", 2400, 100, STEEP),
                held("backward: layers.*.mlp", 2400, 60, 48),
            ),
            "optimizer_step": (
                line("optimizer step", weights=(2400, 0), gradients=(2400, 0), optimizer=(7200, 0)),
            ),
        },
        reserved=(),
        compute=Compute((0,), (0,), (0,), ((0,), (0,)), ((0,), (0,)), 960, 0, 0, 600),
        ledger=(),
        seq_len=None,
        affinity=Affinity((2, 3), None, None, True),
        assumptions=(),
        provenance=Provenance("traced", {}, 0, ""),
    )


def highest(profile: MemoryProfile, phase: str, micro_batch: int, where: str = "") -> Line:
    lines = [found for found in profile.phases[phase] if found.where.startswith(where)]
    return max(lines, key=lambda found: found.at(micro_batch))


def with_kinds(found: Line) -> Line:
    """The line with its activations told apart: what is constant is a norm's, what grows an MLP's and attention's."""
    constant, slope = found.parts.get("activations", ((0.0,), (0.0,)))
    kinds: dict[str, tuple[Polynomial, Polynomial]] = {
        "norm": (constant, (0.0,)),
        "MLP": ((0.0,), (slope[0] * 0.75,)),
        "attention": ((0.0,), (slope[0] * 0.25,)),
    }
    return replace(found, activations=kinds if found.parts.get("activations") else {})


def parts(found: Line, micro_batch: int) -> dict[str, int]:
    return found.parts_at(micro_batch)


class TestDDP:
    def test_buckets_are_as_large_as_the_gradients_and_always_there(self, profile: MemoryProfile) -> None:
        replica = shard(profile, DDP(), 8)
        for phase, lines in profile.phases.items():
            assert [found.at(7) for found in replica.phases[phase]] == [found.at(7) + 2400 for found in lines]
        assert replica.states.buffers_bytes == 2400
        assert replica.peak(1).parts["buffers"] == 2400

    def test_views_into_the_buckets_cost_nothing_more_but_are_there_from_the_start(
        self, profile: MemoryProfile
    ) -> None:
        replica = shard(profile, DDP(gradient_as_bucket_view=True), 8)
        assert replica.peak(100, 2).allocated_bytes == profile.peak(100, 2).allocated_bytes
        # With one micro-batch the gradients, 2400 bytes, were not there in forward; now they are.
        assert replica.peak(100).allocated_bytes == profile.peak(100, 2).allocated_bytes
        assert highest(replica, "optimizer_step", 1).at(1) == highest(profile, "optimizer_step", 1).at(1)

    def test_skipping_the_reduction_makes_views_take_memory_after_all(self, profile: MemoryProfile) -> None:
        views = shard(profile, DDP(gradient_as_bucket_view=True, gradient_sync=False), 2)
        assert views.phases["later_micro"] == shard(profile, DDP(), 2).phases["later_micro"]
        assert views.phases["first_micro"] == shard(profile, DDP(True), 2).phases["first_micro"]


class TestFSDP:
    def test_states_are_shards(self, profile: MemoryProfile) -> None:
        assert shard(profile, FSDP(), 4).states == States(600, 600, 1200, 0)
        step = highest(shard(profile, FSDP(), 4), "optimizer_step", 1)
        assert parts(step, 1) == {"weights": 600, "gradients": 600, "optimizer": 1800}

    def test_before_the_blocks_the_rest_and_the_last_block_are_gathered(self, profile: MemoryProfile) -> None:
        found = highest(shard(profile, FSDP(), 4), "first_micro", 1000)
        assert found.where == "backward: head"
        assert parts(found, 1000) == {
            "weights": 600 + 800,
            "optimizer": 1200,
            "activations": 50_000,
            "buffers": 400,
        }

    def test_in_the_blocks(self, profile: MemoryProfile) -> None:
        lines = [
            found
            for found in shard(profile, FSDP(), 4).phases["first_micro"]
            if found.where == "backward: layers.*.mlp"
        ]
        by_activations = sorted(lines, key=lambda found: -found.at(1000))
        told = [(found.per_sample[0], parts(found, 0)) for found in by_activations]
        root_and_block = {"weights": 600 + 800 + 400, "optimizer": 1200, "activations": 10}
        assert told == [
            # The first block: its half and the head's gradients are whole, the next block is gathered ahead.
            (48, root_and_block | {"gradients": 600, "buffers": 400}),
            # From the second on, one block more in shards, and the input of its reduction. Each block keeps 10
            # bytes a sample.
            (38, root_and_block | {"gradients": 600 + 100, "buffers": 400 + 400}),
            (28, root_and_block | {"gradients": 600 + 200, "buffers": 400 + 400}),
            # Nothing is gathered ahead of the last block of backward.
            (18, root_and_block | {"gradients": 600 + 300, "buffers": 400}),
        ]

    def test_at_the_end_the_roots_gradients_are_whole_twice(self, profile: MemoryProfile) -> None:
        found = highest(shard(profile, FSDP(), 4), "first_micro", 0, "backward: reduce-scatter of (root)")
        assert parts(found, 1000) == {
            "weights": 600,
            "gradients": 800 + 400,
            "optimizer": 1200,
            "buffers": 800,
        }

    def test_in_forward_two_blocks_worth_and_three_when_one_is_gathered(self, profile: MemoryProfile) -> None:
        replica = shard(profile, FSDP(), 4)
        inside = highest(replica, "first_micro", 9, "forward: layers")
        assert (parts(inside, 9)["weights"], parts(inside, 9)["buffers"]) == (600 + 800 + 400, 400)
        gathering = highest(replica, "first_micro", 9, "forward: all-gather of layers.*")
        assert (parts(gathering, 9)["weights"], parts(gathering, 9)["buffers"]) == (600 + 800 + 400, 800)
        assert parts(gathering, 9)["activations"] == 9 * (44 - 10)

    def test_later_micro_batches_hold_the_shards_of_all_gradients(self, profile: MemoryProfile) -> None:
        replica = shard(profile, FSDP(), 4)
        first, later = highest(replica, "first_micro", 1000), highest(replica, "later_micro", 1000)
        assert later.at(1000) - first.at(1000) == 600

    def test_without_gradient_sync_they_hold_whole_gradients(self, profile: MemoryProfile) -> None:
        replica = shard(profile, FSDP(gradient_sync=False), 4)
        found = highest(replica, "later_micro", 1000)
        assert parts(found, 1000)["gradients"] == 2400
        assert found.at(1000) - highest(replica, "first_micro", 1000).at(1000) == 2400 + 100

    def test_blocks_that_stay_gathered(self, profile: MemoryProfile) -> None:
        replica = shard(profile, FSDP(reshard_after_forward=False), 4)
        found = highest(replica, "first_micro", 1000)
        assert parts(found, 1000)["weights"] == 600 + 2400
        assert "buffers" not in parts(found, 1000)

    def test_mixed_precision_gathers_half_and_keeps_shards_in_fp32(self, profile: MemoryProfile) -> None:
        policy = FSDP(param_dtype="bf16", reduce_dtype="fp32", sharded_dtype="fp32")
        replica = shard(profile, policy, 4)
        top = next(
            found for found in replica.phases["first_micro"] if found.where == "backward: layers.*.mlp"
        )
        assert parts(top, 0) == {
            "weights": 600 + 400 + 200,
            "gradients": 300,
            "optimizer": 1200,
            "activations": 10,
            "buffers": 200,
        }

    def test_a_mixed_precision_profile_loses_autocasts_copies(self, profile: MemoryProfile) -> None:
        mixed = replace(
            profile,
            settings={"precision": "bf16-mixed"},
            states=replace(profile.states, buffers_bytes=8),
            phases={"first_micro": (held("backward: head", 0, 0, STEEP, buffers=(8 + 1200, 0)),)},
        )
        found = highest(shard(mixed, FSDP(), 4), "first_micro", 1000)
        assert parts(found, 1000)["weights"] == 600 + 400
        assert parts(found, 1000)["buffers"] == 8 + 200

    def test_hybrid_sharding_shards_within_groups(self, profile: MemoryProfile) -> None:
        grouped, alone = shard(profile, FSDP(shard_size=4), 32), shard(profile, FSDP(), 4)
        assert grouped.phases == alone.phases
        with pytest.raises(BadInput, match="shard_size: must divide the 32 replicas; you gave 5"):
            shard(profile, FSDP(shard_size=5), 32)

    def test_a_model_without_blocks_is_gathered_whole(self, profile: MemoryProfile) -> None:
        whole = replace(profile, model=Model("one", 600, 600, (Unit("(root)", 1, 600, 600, 2400, 2400),)))
        found = highest(shard(whole, FSDP(), 4), "first_micro", 1000)
        assert parts(found, 1000)["weights"] == 600 + 2400
        assert "buffers" not in parts(found, 1000)

    def test_frozen_weights_are_gathered_but_have_no_gradients(self, profile: MemoryProfile) -> None:
        frozen = replace(
            profile,
            model=Model(
                "adapters",
                600,
                40,
                (
                    replace(BLOCK, trainable_parameters=10, trainable_weights_bytes=40),
                    replace(REST, trainable_parameters=0, trainable_weights_bytes=0),
                ),
            ),
            phases={"first_micro": (held("backward: layers.*.mlp", 20, 0, 48),)},
        )
        found = highest(shard(frozen, FSDP(), 4), "first_micro", 1000, "backward: layers")
        assert parts(found, 1000)["weights"] == 600 + 800 + 400
        # Nothing tells what a block keeps for backward, so each counts as much as the first, with the shards
        # (10 bytes a block) of those before: the last but one is the highest.
        assert parts(found, 1000)["gradients"] == 20 + 2 * 10
        assert parts(found, 1000)["buffers"] == 400 + 40

    def test_an_unknown_type_is_named(self) -> None:
        with pytest.raises(BadInput, match="reduce_dtype: must be one of fp32, bf16, fp16; you typed fp8"):
            FSDP(reduce_dtype="fp8")


class TestFSDP1:
    def test_the_rest_and_the_last_block_are_gathered_before_the_blocks(self, profile: MemoryProfile) -> None:
        found = highest(shard(profile, FSDP1(), 4), "first_micro", 1000)
        assert found.where == "backward: head"
        assert parts(found, 1000) == {
            "weights": 600 + 800 + 400,
            "optimizer": 1200,
            "activations": 50_000,
        }
        alone = highest(shard(profile, FSDP1(backward_prefetch="none"), 4), "first_micro", 1000)
        assert parts(alone, 1000)["weights"] == 600 + 800

    def test_gradients_of_a_block_become_one(self, profile: MemoryProfile) -> None:
        where = "backward: gradients of layers.* in one"
        found = highest(shard(profile, FSDP1(), 4), "first_micro", 0, where)
        # The third of four blocks: its own twice, the head's, and the shards of two; it and the next are gathered.
        assert parts(found, 0) == {
            "weights": 600 + 800 + 2 * 400,
            "gradients": 2 * 400 + 600 + 2 * 100,
            "optimizer": 1200,
            "activations": 0,
        }
        wide = shard(profile, FSDP1(param_dtype="bf16", reduce_dtype="fp32", sharded_dtype="fp32"), 4)
        # Once the block is freed: 200 bytes of gradients in bf16, 400 in fp32 and their shard of 100.
        assert parts(highest(wide, "first_micro", 0, where), 0)["gradients"] == 500 + 300 + 2 * 100

    def test_no_sync_keeps_whole_gradients_in_the_type_they_are_computed_in(
        self, profile: MemoryProfile
    ) -> None:
        policy = FSDP1(gradient_sync=False, param_dtype="bf16", reduce_dtype="fp32")
        found = highest(shard(profile, policy, 4), "later_micro", 1000)
        assert parts(found, 1000)["gradients"] == 1200

    def test_frozen_weights_have_gradients_where_they_are_flattened_with_trained_ones(
        self, profile: MemoryProfile
    ) -> None:
        units = (
            replace(BLOCK, trainable_parameters=10, trainable_weights_bytes=40),
            replace(REST, trainable_parameters=0, trainable_weights_bytes=0),
        )
        adapters = replace(profile, model=Model("adapters", 600, 40, units))
        flat = replace(adapters, settings={**profile.settings, "flat_gradients": True})
        assert shard(adapters, FSDP1(), 4).states.gradients_bytes == 40
        assert shard(flat, FSDP1(), 4).states.gradients_bytes == 400
        with pytest.raises(
            BadInput, match="must be fsdp1 for a profile traced with flat_gradients; you gave fsdp"
        ):
            shard(flat, FSDP(), 4)

    def test_trained_weights_left_out_are_whole_on_every_replica(self, profile: MemoryProfile) -> None:
        units = (
            replace(BLOCK, trainable_parameters=10, trainable_weights_bytes=40),
            replace(REST, trainable_parameters=0, trainable_weights_bytes=0),
        )
        adapters = replace(
            profile,
            model=Model("adapters", 600, 40, units),
            states=States(2400, 160, 320, 0),
            phases={"first_micro": tuple(held("backward: layers.*.mlp", g, 0, 48) for g in (40, 160))},
        )
        apart = shard(adapters, FSDP1(backward_prefetch="none", trained_whole=True), 4)
        # Frozen weights in quarters, and 160 bytes of adapters with their gradients and optimizer state as on one GPU.
        assert apart.states == States((2400 - 160) // 4 + 160, 160, 320, 0)
        found = highest(apart, "first_micro", 1000)
        assert parts(found, 1000)["weights"] == (2400 - 160) // 4 + 160 + 800 + (400 - 40)
        assert parts(found, 1000)["gradients"] == 160
        assert not any("in one" in line.where for line in apart.phases["first_micro"])

    def test_an_unknown_prefetch_is_named(self) -> None:
        with pytest.raises(
            BadInput, match="backward_prefetch: must be one of pre, post, none; you typed 'ahead'"
        ):
            FSDP1(backward_prefetch="ahead")


class TestZeRO:
    """On a profile in bf16: 1200 bytes of weights and gradients, and Adam's state traced in 2400."""

    @pytest.fixture
    def half(self, profile: MemoryProfile) -> MemoryProfile:
        def halved(found: Line) -> Line:
            return line(found.where, **{name: (c[0] / 2, s[0]) for name, (c, s) in found.parts.items()})

        units = tuple(
            replace(
                u, weights_bytes=u.weights_bytes // 2, trainable_weights_bytes=u.trainable_weights_bytes // 2
            )
            for u in profile.model.units
        )
        return replace(
            profile,
            model=replace(profile.model, units=units),
            settings={"precision": "bf16"},
            states=States(1200, 1200, 2400, 0),
            phases={phase: tuple(map(halved, lines)) for phase, lines in profile.phases.items()},
        )

    @pytest.mark.parametrize(
        ("stage", "states"),
        [
            # 600 parameters on 4 replicas: 150 in fp32 (600 bytes) and Adam's two states of them (1200).
            (1, States(1200, 1200, 1800, 0)),
            (2, States(1200, 300, 1800, 0)),
            (3, States(300, 300, 1800, 0)),
        ],
    )
    def test_states(self, half: MemoryProfile, stage: int, states: States) -> None:
        assert shard(half, ZeRO(stage), 4).states == states

    def test_the_bucket_is_there_in_backward_and_in_stage_3_always(self, half: MemoryProfile) -> None:
        # A bucket of 100 elements in 16 bits, and as much again while it is flattened.
        for stage in (1, 2, 3):
            replica = shard(half, ZeRO(stage, reduce_bucket_size=100), 4)
            assert highest(replica, "later_micro", 9, "backward").parts_at(9)["buffers"] == 400
            step = highest(replica, "optimizer_step", 1).parts_at(1)
            assert step.get("buffers", 0) == (400 if stage == 3 else 0)
        two = shard(half, ZeRO(2, reduce_bucket_size=100, overlap_comm=True), 4)
        assert highest(two, "later_micro", 9, "backward").parts_at(9)["buffers"] == 600

    def test_gradients_in_a_later_micro_batch(self, half: MemoryProfile) -> None:
        def gradients(stage: int, phase: str) -> int:
            return highest(shard(half, ZeRO(stage), 4), phase, 9, "backward").parts_at(9)["gradients"]

        assert (gradients(1, "first_micro"), gradients(1, "later_micro")) == (1200, 1200)
        assert (gradients(2, "first_micro"), gradients(2, "later_micro")) == (300, 600)
        assert (gradients(3, "first_micro"), gradients(3, "later_micro")) == (300, 300)

    def test_the_step_upcasts_the_partitions_gradients(self, half: MemoryProfile) -> None:
        step = highest(shard(half, ZeRO(2), 4), "optimizer_step", 1).parts_at(1)
        # The temporaries of the step, a third of the traced optimizer part, are in fp32 and of the partition too.
        assert step == {"weights": 1200, "gradients": 300 + 600, "optimizer": 600 + 1800}
        tiled = highest(shard(half, ZeRO(3, sub_group_size=10), 4), "optimizer_step", 1).parts_at(1)
        assert tiled["gradients"] == 300 + 40

    def test_stage_3_gathers_up_to_the_live_limit(self, half: MemoryProfile) -> None:
        assert highest(shard(half, ZeRO(3), 4), "later_micro", 9).parts_at(9)["weights"] == 300 + 1200
        limited = shard(half, ZeRO(3, stage3_max_live_parameters=200), 4)
        assert highest(limited, "later_micro", 9).parts_at(9)["weights"] == 300 + 400


class TestAll:
    @pytest.mark.parametrize("name", NAMES)
    def test_one_replica_is_the_profile_itself(self, profile: MemoryProfile, name: str) -> None:
        assert shard(profile, named(name), 1) is profile

    @pytest.mark.parametrize("name", NAMES)
    def test_kinds_of_activations_are_told_apart_on_a_replica_too(
        self, profile: MemoryProfile, name: str
    ) -> None:
        phases = {phase: tuple(map(with_kinds, lines)) for phase, lines in profile.phases.items()}
        told = shard(replace(profile, phases=phases), named(name), 4)
        silent = shard(profile, named(name), 4)
        for phase, lines in told.phases.items():
            for found, other in zip(lines, silent.phases[phase], strict=True):
                # Kinds change nothing else, and are all of the activations.
                assert replace(found, activations={}) == other
                for which, whole in enumerate(found.parts.get("activations", ((0.0,), (0.0,)))):
                    kinds = (amount[which] for amount in found.activations.values())
                    assert sum(map(sum, kinds)) == pytest.approx(sum(whole))
        peak = told.peak(300, 2)
        assert sum(peak.activations.values()) == peak.parts["activations"] > 0
        assert not silent.peak(300, 2).activations

    @pytest.mark.parametrize("name", [n for n in NAMES if n != "none"])
    def test_parts_sum_to_their_lines_and_the_profile_round_trips(
        self, profile: MemoryProfile, name: str
    ) -> None:
        replica = shard(profile, named(name), 4)
        for lines in replica.phases.values():
            for found in lines:
                assert sum(found.parts_at(5).values()) == pytest.approx(found.at(5), abs=len(found.parts))
        assert MemoryProfile.from_json(replica.to_json()) == replica
        assert replica.settings["sharding"] == name
        assert replica.settings["replicas"] == 4

    @pytest.mark.parametrize("name", ["zero1", "zero2", "zero3", "fsdp", "fsdp1"])
    def test_more_replicas_never_hold_more(self, profile: MemoryProfile, name: str) -> None:
        peaks = [shard(profile, named(name), g).peak(3, 2).allocated_bytes for g in (2, 4, 8, 64)]
        assert peaks == sorted(peaks, reverse=True)

    def test_it_holds_over_sequence_lengths(self, profile: MemoryProfile) -> None:
        def squared(found: Line) -> Line:
            activations: tuple[Polynomial, Polynomial] = ((0.0,), (0.0, 1.0, 2.0))
            parts = {**found.parts, "activations": activations}
            return Line((sum(c[0] for c, _ in parts.values()),), activations[1], parts, found.where)

        long = replace(
            profile,
            seq_len=SeqRange(1, 100, (1, 50, 100), None, None),
            phases={phase: tuple(map(squared, lines)) for phase, lines in profile.phases.items()},
        )
        for name in NAMES:
            replica = shard(long, named(name), 4)
            apart = (
                replica.peak(1000, 2, seq_len=100).allocated_bytes
                - replica.peak(1000, 2, seq_len=50).allocated_bytes
            )
            assert apart == 1000 * (50 + 2 * (100**2 - 50**2))

    def test_what_cannot_be_sharded(self, profile: MemoryProfile) -> None:
        with pytest.raises(
            BadInput, match="must be one of none, ddp, zero1, zero2, zero3, fsdp, fsdp1; you typed 'zero4'"
        ):
            named("zero4")
        with pytest.raises(BadInput, match="replicas: must be a whole number of 1 or more; you gave 0"):
            shard(profile, DDP(), 0)
        with pytest.raises(BadInput, match="sharding: is 'ddp' in this profile already"):
            shard(shard(profile, DDP(), 2), FSDP(), 2)
        measured = replace(profile, phases={"first_micro": (Line((100,), (3,), {}, "measured"),)})
        with pytest.raises(
            BadInput, match="says what its peaks are made of; in this one, first_micro does not"
        ):
            shard(measured, FSDP(), 2)

    def test_it_imports_no_torch(self) -> None:
        code = "import sys, batchfit.sharding; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestReserved:
    def test_streams_have_pools_of_their_own(self, profile: MemoryProfile) -> None:
        """The stream that gathers holds the root and a block at once, the one that reduces the shards of all gradients;
        what the default stream has beyond its own peak is the share of one GPU."""
        profile = replace(profile, reserved=(ReservedPoint(4, 1, None, 1000, 1200),))
        sharded = shard(profile, FSDP(), 4)
        (point,) = sharded.reserved
        peak = sharded.peak(4, 1)
        assert point.allocated_bytes == peak.allocated_bytes
        units = {unit.name: unit for unit in profile.model.units}
        gathered = sum(unit.weights_bytes for unit in units.values() if unit.count == 1)
        gathered += next(unit.weights_bytes for unit in units.values() if unit.count > 1)
        pools = gathered + sharded.states.gradients_bytes
        assert pools < point.reserved_bytes <= 1.2 * peak.allocated_bytes + pools

    def test_what_fsdp1_gathers_is_in_flight_twice_more(self, profile: MemoryProfile) -> None:
        profile = replace(profile, reserved=(ReservedPoint(4, 1, None, 1000, 1000),))
        sharded = shard(profile, FSDP1(), 4)
        (point,) = sharded.reserved
        units = {unit.count > 1: unit.weights_bytes for unit in profile.model.units}
        # The root and a block are gathered at the peak, in the stream that has room for two blocks more.
        others = 2 * units[True] + sharded.states.gradients_bytes
        assert point.reserved_bytes <= point.allocated_bytes + others
        assert point.reserved_bytes > point.allocated_bytes
