"""A state and its address: whatever was typed, in whatever language, the address says it to every language."""

from decimal import Decimal
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from batchfit import calculators
from batchfit.languages import languages
from batchfit.numbers import symbols
from batchfit.web.state import State, canonical, read_state

CALCULATOR = calculators.load("gradient-accumulation")
WHOLE = st.integers(1, 2**20)
SIZE = st.decimals(0, 1000, places=6, allow_nan=False) | st.decimals(0, 1000, places=3, allow_nan=False)
#: All that the ten languages to come write numbers like.
LANGUAGES = st.sampled_from(languages())


def state(query: str, lang: str = "en") -> State:
    return read_state(CALCULATOR, lang, parse_qsl(query, keep_blank_values=True))


@given(WHOLE, WHOLE, WHOLE, SIZE, st.sampled_from(["", "GB", "GiB", "MiB", "TB"]), LANGUAGES, LANGUAGES)
def test_an_address_means_the_same_in_every_language(
    b: int, a: int, g: int, size: Decimal, unit: str, one: str, other: str
) -> None:
    first = state(
        f"micro_batch={b}&accumulation_steps={a}&replicas={g}&activation_per_sample={size:f}{unit}", one
    )
    if first.wrong or first.notes:
        reject()  # typed ambiguously, as "0.500" is not but "1.500" is
    second = state(first.query(), other)
    assert second.results == first.results
    assert second.query() == first.query()
    assert not second.notes


@given(st.integers(1, 2**40), WHOLE, WHOLE, LANGUAGES)
def test_a_target_s_address_means_the_same_in_every_language(target: int, b: int, g: int, lang: str) -> None:
    first = state(f"target_batch={target}&micro_batch={b}&replicas={g}")
    assert first.inverse
    assert state(first.query(), lang).results == first.results
    if first.results and first.results.outputs["accumulation_steps"] <= 2**20:
        forward = state(first.other_way(), lang)
        assert not forward.inverse
        reached = first.results.outputs["effective_batch_size"]
        assert forward.results
        assert forward.results.outputs["effective_batch_size"] == reached


def test_defaults_are_left_out_and_mean_the_same_everywhere() -> None:
    for slug in calculators.slugs():
        for lang in languages():
            assert read_state(calculators.load(slug), lang, []).query() == ""
        for field in calculators.load(slug).fields:
            shown = canonical(field, field.read(field.default or ""))
            for lang in languages():
                assert field.read(shown, lang).value == field.default_value()


@pytest.mark.parametrize(
    ("typed", "lang", "query"),
    [
        ("0,75", "de", "0.75"),
        ("0.75", "de", "0.75"),
        ("1,125", "de", "1.1250"),
        ("1.125", "en", "1.1250"),
        ("1.125", "de", "1125"),
        ("0,5 GiB", "de", "0.5GiB"),
        ("512 mib", "en", "512MiB"),
        ("٠٫٧٥", "en", "0.75"),
        ("1e3", "en", "1000"),
    ],
)
def test_what_is_typed_becomes_a_canonical_size(typed: str, lang: str, query: str) -> None:
    found = state(f"activation_per_sample={typed}", lang)
    assert dict(parse_qsl(found.query()))["activation_per_sample"] == query
    field = CALCULATOR.field("activation_per_sample")
    assert canonical(field, found.readings[field.name]) == query


def test_a_number_of_many_zeros_stands_in_its_field_as_every_language_reads_it() -> None:
    for lang in languages():
        separator = symbols(lang).decimal
        budget = calculators.load("compute-optimal-model-size")
        for query, shown in (
            ([], "5.76e23"),
            ([("flops", "1234567000000000000000")], "1.234567e21"),
            ([("flops", "1234567000000000000001")], "1234567000000000000001"),
        ):
            found = read_state(budget, lang, query)
            assert found.typed["flops"] == shown.replace(".", separator)
            assert "flops" not in found.notes
            # What a form sends without a script comes to the same.
            again = read_state(budget, lang, [("flops", found.typed["flops"])])
            assert (again.query(), again.typed) == (found.query(), found.typed)


def test_a_unit_chosen_beside_the_field_gives_way_to_one_typed_into_it() -> None:
    chosen = state("activation_per_sample=2MiB&activation_per_sample_unit=GiB")
    assert chosen.values()["activation_per_sample"] == 2 * 2**20
    unknown = state("activation_per_sample=2&activation_per_sample_unit=parsec")
    assert unknown.values()["activation_per_sample"] == 2 * 10**9


def test_statuses() -> None:
    assert state("").status == 200
    assert state("micro_batch=").status == 200
    assert state("micro_batch=&replicas=0").status == 422
    assert state("micro_batch=x").status == 422
    assert state("micro_batch=1&micro_batch=1").status == 400
    assert state("activation_per_sample_unit=GB&activation_per_sample_unit=GB").status == 400
    assert state("target_batch=5&accumulation_steps=1").status == 400


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["micro_batch", "target_batch", "x", "activation_per_sample"]),
            st.text(max_size=30),
        )
    ),
    LANGUAGES,
)
def test_no_query_is_too_strange(query: list[tuple[str, str]], lang: str) -> None:
    found = read_state(CALCULATOR, lang, query)
    assert (found.results is None) == bool(found.wrong)
    found.query()
    found.other_way()


def test_a_field_that_does_not_apply_is_passed_over() -> None:
    pipeline = calculators.load("pipeline-bubble")
    for query in ("schedule=gpipe", "schedule=gpipe&chunks=4", "schedule=gpipe&chunks=none"):
        found = read_state(pipeline, "en", parse_qsl(query))
        assert not found.wrong
        assert found.query() == "schedule=gpipe"
        assert "chunks" not in {each.name for each in found.applying}
    interleaved = read_state(pipeline, "en", parse_qsl("schedule=interleaved&chunks=none"))
    assert interleaved.wrong.keys() == {"chunks"}
    # Of what a wrong choice says nothing about, all is shown.
    unclear = read_state(pipeline, "en", parse_qsl("schedule=other&chunks=4"))
    assert "chunks" in {each.name for each in unclear.applying}
