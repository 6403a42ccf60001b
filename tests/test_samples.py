"""What samples are called: images and audio clips by their name, wherever an answer counts them, in every language."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from batchfit.languages import catalogue, languages
from batchfit.models import load_models, load_profiles
from batchfit.planning import Plans, plan
from batchfit.samples import ANY, samples_of
from batchfit.sentences import Sentence, in_language
from tests.planning.decoder import decoder

#: A model of each kind of samples that has a name, and what English calls one.
NAMED = {"convnext-base": "image", "whisper-small": "audio clip"}


@cache
def answered(model: str, batch: int = 250) -> Plans:
    profiles = load_profiles(model, precision="bf16", trained="full")
    return plan(profiles, batch=batch, gpu="a100-80gb", gpus=8)


def texts(answer: Plans) -> list[str]:
    """Everything that an answer says."""
    return [
        answer.sentence,
        answer.target.said,
        *answer.notes,
        *(near.why for near in answer.nearest),
        *(advice.text for advice in answer.advice),
    ]


@pytest.mark.parametrize(("model", "one"), NAMED.items())
def test_an_answer_calls_samples_by_their_name(model: str, one: str) -> None:
    assert f"= 256 {one}s of {model}" in answered(model, 256).sentence
    assert answered(model).target.said == f"250 {one}s"
    assert {f"2 {one}s below the target, on 8 GPUs", f"6 {one}s above the target, on 8 GPUs"} == {
        near.why for near in answered(model).nearest
    }
    assert any(f"one more {one} per micro-batch takes" in note for note in answered(model, 256).notes)


@pytest.mark.parametrize("lang", languages())
@pytest.mark.parametrize("model", NAMED)
def test_no_text_calls_them_samples(model: str, lang: str) -> None:
    words = catalogue(lang)
    plain = {words.text(text).casefold() for text in ("Samples", "per sample", "one more sample")}
    plain |= {words.count("{n} sample", "{n} samples", n).replace("{n}", "").strip() for n in (1, 2, 5, 100)}
    said = [in_language(text, lang) for batch in (250, 256) for text in texts(answered(model, batch))]
    assert len(said) > 10
    assert [text for text in said for word in plain if word in text.casefold()] == []


def test_texts_and_models_of_ones_own_are_samples() -> None:
    assert samples_of(decoder()) is ANY
    assert "samples of" in plan(decoder(), batch=64, gpu="a100-80gb", gpus=8).sentence


def test_the_catalogue_says_what_samples_are() -> None:
    found = {entry.kind: entry.samples for entry in load_models()}
    assert found["vision"] == found["diffusion"] == "images"
    assert found["audio"] == "audio"
    assert found["decoder"] is found["vision and text"] is None


def test_a_trace_tells_samples_from_the_batch() -> None:
    torch = pytest.importorskip("torch")
    from batchfit.trace.inputs import samples_in

    image, ids = torch.zeros(1, 3, 8, 8), torch.zeros(1, 8, dtype=torch.long)
    assert samples_in({"pixel_values": image, "labels": ids}) == "images"
    assert samples_in((image, ids)) == samples_in([image]) == "images"
    assert samples_in({"input_features": torch.zeros(1, 80, 3000)}) == "audio"
    assert samples_in({"input_ids": ids, "pixel_values": image}) is None
    assert samples_in({"input_ids": ids}) is samples_in(ids) is samples_in("words") is None


def test_a_setting_that_is_not_known_is_samples() -> None:
    for said in ("molecules", 3, None):
        profile = decoder()
        assert samples_of(replace(profile, settings={**profile.settings, "samples": said})) is ANY


def test_the_counted_form_is_a_languages_own() -> None:
    one, many = (answered("convnext-base").target.kind.counted(number) for number in (1, 1001))
    assert str(Sentence("{n}", n=one)) == "1 image"
    assert in_language(Sentence("{n}", n=many), "de") == "1.001 Bilder"
