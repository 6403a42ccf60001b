"""What profiles assume, matched back to sentences."""

from __future__ import annotations

import pytest

from batchfit.assumptions import KNOWN, understood
from batchfit.calibrate import Point, calibrate, correct
from batchfit.languages import languages
from batchfit.models import load_models, load_profiles
from batchfit.planning.eight_bit import with_eight_bit_optimizer
from batchfit.planning.options import sharded
from batchfit.profile import MemoryProfile
from batchfit.sentences import Sentence, in_language
from tests.planning.decoder import decoder


def profiles() -> list[MemoryProfile]:
    """Every way in which a profile comes to be, and what is made of one."""
    (first,) = {entry.name for entry in load_models()} & {"llama-3.1-8b"}
    catalogue = [load_profiles(entry.name)[0] for entry in load_models() if _has_profiles(entry.name)]
    measured = calibrate([Point(1, 10**9), Point(2, 2 * 10**9)]).profile
    less = with_eight_bit_optimizer(decoder())
    assert less is not None
    corrected = correct(decoder(), [Point(1, 10**12)], 4096).profile
    return [*catalogue, measured, less, corrected, sharded(load_profiles(first)[0], "fsdp", 4)]


def _has_profiles(name: str) -> bool:
    from batchfit.models import variants

    return bool(variants(name))


def test_every_assumption_is_understood() -> None:
    texts = {text for profile in profiles() for text in profile.assumptions}
    assert len(texts) > 20
    assert [text for text in texts if not isinstance(understood(text), Sentence)] == []
    assert all(understood(text) == text for text in texts)


def test_those_of_traces_are_understood() -> None:
    pytest.importorskip("torch")
    from batchfit.trace import assumptions, study

    said = [*assumptions._QUANTIZED.values(), *assumptions._LOSSES.values(), *assumptions._TRAINERS.values()]
    said.append(assumptions._COMPILED)
    said += [text.format("a.b (3 blocks)") for text in (study._REFUSED, study._FOLDED)]
    assert [text for text in said if not isinstance(understood(text), Sentence)] == []


@pytest.mark.parametrize("lang", [lang for lang in languages() if lang != "en"])
def test_blocks_are_said_in_every_language(lang: str) -> None:
    text = "Of encoder.block (11 blocks) and decoder.block (12 blocks) a few were traced; each further one adds what "
    said = in_language(understood(f"{text}the last of them added."), lang)
    assert "blocks" not in said
    for part in ("encoder.block", "decoder.block", "11", "12"):
        assert part in said


def test_other_texts_stay_as_they_are() -> None:
    assert understood("Somebody's own note.") == "Somebody's own note."
    assert not isinstance(understood("Somebody's own note."), Sentence)
    assert len({sentence.template for sentence in KNOWN}) == len(KNOWN)
