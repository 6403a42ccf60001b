"""Configurations that other people published, read as a person reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchfit import frameworks
from batchfit.settings import TrainingSettings

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "cases" / "frameworks.json").read_text(encoding="utf-8")
)["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["source"].replace(" ", ":"))
def test_a_published_configuration_is_read_rightly(case: dict[str, Any]) -> None:
    expected = dict(case["settings"])
    if "lora_targets" in expected:
        expected["lora_targets"] = tuple(expected["lora_targets"])
    name, found = frameworks.read_settings(case["text"], filename=case["filename"])
    assert name == case["framework"]
    assert found == TrainingSettings(**expected)


def test_every_framework_with_a_file_of_its_own_has_a_published_case() -> None:
    """Python is written by hand for each program, and Lightning's YAML names each project's own classes."""
    without = {"lightning", "lightning-python", "nemo", "trainer", "trainer-python"}
    readable = {name for name in frameworks.names() if frameworks.framework(name).read}
    assert readable - {case["framework"] for case in CASES} == without
