"""Planning drags in no more than it needs."""

from pathlib import Path

import pytest

from tests.planning.decoder import decoder
from tests.test_imports import loaded_by


@pytest.mark.parametrize(
    "module", ["planning", "charts", "calibrate", "models", "cache", "cli.plan", "cli.models"]
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import batchfit.{module}") == set()


def test_a_plan_as_json_loads_numpy_alone(tmp_path: Path) -> None:
    decoder().save(tmp_path / "P.json")
    words = ["plan", str(tmp_path / "P.json"), "--batch", "64", "--gpu", "h100-80gb", "--gpus", "8", "--json"]
    call = f"import batchfit.cli as c; c.cli({words!r}, standalone_mode=False)"
    assert loaded_by(call) == {"numpy"}
