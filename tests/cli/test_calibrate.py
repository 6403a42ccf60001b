"""`batchfit calibrate`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchfit.cli import cli
from batchfit.profile import MemoryProfile
from tests.planning.decoder import SMALL, decoder

GIB = 2**30


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *arguments], catch_exceptions=False)


def test_two_points_make_a_profile_that_plans(tmp_path: Path) -> None:
    path = tmp_path / "P.json"
    result = call("--point", "2:20GiB", "--point", "8:50GiB", "--save", str(path), "--json")
    data = json.loads(result.stdout)
    assert data["constant_bytes"] == 10 * GIB
    assert data["activation_per_sample_bytes"] == 5 * GIB
    assert [point["residual_bytes"] for point in data["points"]] == [0, 0]
    assert MemoryProfile.load(path).peak(4).allocated_bytes == 30 * GIB
    asked = ["plan", str(path), "--batch", "64", "--gpu", "a100-80gb", "--gpus", "2", "--json"]
    planned = json.loads(CliRunner().invoke(cli, asked, catch_exceptions=False).stdout)
    assert planned["plans"][0]["micro_batch"] == 8
    assert planned["plans"][0]["relative_step_time"] is None


def test_the_terminal_tells_how_far_off_each_point_is() -> None:
    result = call("--point", "2:21.4GiB", "--point", "8:58.1GiB", "--point", "4:33GiB")
    assert result.exit_code == 0
    assert "8.85 GiB whatever the micro-batch, and 6.139 GiB for each sample." in result.output
    assert "the line is off by +1.27%" in result.output


def test_a_traced_profile_is_corrected_in_its_overhead_alone(tmp_path: Path) -> None:
    traced = tmp_path / "traced.json"
    profile = decoder(SMALL)
    profile.save(traced)
    more = profile.peak(4, 1, 1024).allocated_bytes + GIB
    result = call("--profile", str(traced), "--point", f"4:{more}", "--seq-len", "1024")
    assert "The overhead is corrected by 1 GiB; everything else is as traced." in result.output


@pytest.mark.parametrize(
    ("points", "complaint"),
    [
        (["2"], "must be a micro-batch and a size such as 8:61.2GiB; you typed '2'"),
        (["x:5GiB"], "you typed 'x:5GiB'"),
        (["2:lots"], "must be a size such as 0.5GB"),
        (["0:5GiB"], "must have a micro-batch of 1 or more"),
        (["2:5GiB"], "two different micro-batches"),
        (["2:5GiB", "4:3GiB"], "must be memory that grows"),
    ],
)
def test_points_that_cannot_be_used(points: list[str], complaint: str) -> None:
    result = call(*(word for point in points for word in ("--point", point)))
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = call("--point", "2:20GiB", "--point", "8:50GiB", "--save", str(tmp_path / "no" / "P.json"))
    assert result.exit_code == 2
    assert "--save cannot write" in result.stderr
