"""What is written reads back the same, or the file says in a note what it could not hold."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given, settings

from batchfit import frameworks
from batchfit.errors import BadInput
from batchfit.settings import TrainingSettings
from tests.frameworks.strategies import RICH, planned

READABLE = [name for name in frameworks.names() if frameworks.framework(name).read]
#: torchtune has no word for "all linear layers": it lists them.
ALL_LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def comparable(field: str, value: Any) -> Any:
    """Targets are a set, and "all linear layers" is what it stands for."""
    if field != "lora_targets":
        return value
    return ALL_LINEAR if value == ("all-linear",) else set(value or ())


def lost(before: TrainingSettings, after: TrainingSettings) -> set[str]:
    """The fields that were said before and are not the same after."""
    said = {
        name: value for name, value in dataclasses.asdict(before).items() if value is not None and value != ()
    }
    now = dataclasses.asdict(after)
    return {name for name in said if comparable(name, said[name]) != comparable(name, now[name])}


@pytest.mark.parametrize("name", READABLE)
@given(before=planned())
@settings(max_examples=150, deadline=None)
def test_nothing_is_lost_in_silence(name: str, before: TrainingSettings) -> None:
    written = frameworks.emit(name, before)
    found, after = frameworks.read_settings(written.text, filename=written.filename)
    assert found == name
    assert lost(before, after) <= {note.field for note in written.notes}


@pytest.mark.parametrize("name", READABLE)
@given(before=planned())
@settings(max_examples=30, deadline=None)
def test_a_file_is_recognized_without_its_name(name: str, before: TrainingSettings) -> None:
    written = frameworks.emit(name, before)
    assert frameworks.read_settings(written.text)[0] == name


@pytest.mark.parametrize("name", frameworks.names())
@given(before=planned())
@settings(max_examples=30, deadline=None)
def test_the_batch_stands_in_one_line(name: str, before: TrainingSettings) -> None:
    text = frameworks.emit(name, before).text
    line = next(line for line in text.splitlines() if "micro-batch ×" in line)
    numbers = [int(number) for number in re.findall(r"\d+", line.replace(",", ""))]
    assert numbers[0] * numbers[1] * numbers[2] == numbers[3] == before.batch


@pytest.mark.parametrize("name", frameworks.names())
def test_every_note_is_in_the_file(name: str) -> None:
    before = dataclasses.replace(RICH, replicas=8, precision="fp16")
    written = frameworks.emit(name, before)
    text = " ".join(written.text.replace("#", " ").split())
    assert written.notes
    for note in written.notes:
        said = f"{note.field}: {' '.join(note.text.split())}"
        assert said in text or said in text.replace('\\"', '"')


@pytest.mark.parametrize("name", frameworks.names())
@pytest.mark.parametrize("field", ["micro_batch", "accumulation_steps"])
def test_a_missing_factor_is_named(name: str, field: str) -> None:
    known: dict[str, Any] = {"micro_batch": 4, "accumulation_steps": 8, "replicas": 8, field: None}
    with pytest.raises(BadInput) as caught:
        frameworks.emit(name, TrainingSettings(**known))
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["composer", "megatron", "nemo", "torchtitan"])
def test_a_framework_of_the_global_batch_needs_the_replicas(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        frameworks.emit(name, TrainingSettings(micro_batch=4, accumulation_steps=8))
    assert caught.value.field == "replicas"


@pytest.mark.parametrize(
    "name", sorted(set(frameworks.names()) - {"composer", "megatron", "nemo", "torchtitan"})
)
def test_without_replicas_the_launcher_decides(name: str) -> None:
    written = frameworks.emit(name, TrainingSettings(micro_batch=4, accumulation_steps=8))
    assert "4 micro-batch × 8 steps × the GPUs you launch on" in written.text
