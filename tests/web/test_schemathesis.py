"""The API against its own description: whatever fits it or breaks it gets an answer that the description knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import is_valid
from schemathesis import GenerationMode

from batchfit import calculators
from batchfit.web.app import create_app
from batchfit.web.store import Store
from tests.everything import CALCULATOR as EVERYTHING

CONFIG = Path(__file__).parent.parent.parent / "schemathesis.toml"

#: As many as a suite has time for; `schemathesis run` tries more.
BOUNDED = settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every operation of the description, by what it is called: "GET /{lang}/plan.json"."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('schemathesis') / 'feedback.db'}")
    config = schemathesis.Config.from_path(CONFIG)
    app = create_app([calculators.load("gradient-accumulation"), EVERYTHING], feedback=store)
    api = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    found: list[Any] = [each.ok() for each in api.get_all_operations()]  # type: ignore[union-attr]
    return {each.label: each for each in found}


def test_the_description_covers_what_there_is(operations: dict[str, Any]) -> None:
    assert set(operations) >= {
        "GET /{lang}/gradient-accumulation.json",
        "GET /{lang}/plan.json",
        "POST /{lang}/plan.json",
        "POST /{lang}/feedback.json",
    }


def test_what_fits_a_field_s_schema_can_be_read(operations: dict[str, Any]) -> None:
    """Beside what no schema says: whether the warm-up ends in time, and how near to zero a number may be."""

    @BOUNDED
    @given(operations[f"GET /{{lang}}/{EVERYTHING.slug}.json"].as_strategy())
    def is_answered(case: Any) -> None:
        response = case.call()
        wrong = response.json().get("errors", [])
        assert response.status_code == (422 if wrong else 200)
        assert {each["field"] for each in wrong} <= {"warmup", "budget"}

    is_answered()


def test_every_default_fits_its_schema(operations: dict[str, Any]) -> None:
    described = operations["GET /{lang}/plan.json"].schema.raw_schema["paths"]
    checked = 0
    for path in described.values():
        for parameter in (each for operation in path.values() for each in operation["parameters"]):
            if "default" in parameter["schema"]:
                assert is_valid(parameter["schema"], parameter["schema"]["default"]), parameter
                checked += 1
    assert checked > 10


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_answers_are_those_of_the_description(operations: dict[str, Any], mode: GenerationMode) -> None:
    for operation in operations.values():

        @BOUNDED
        @given(operation.as_strategy(generation_mode=mode))
        def conforms(case: Any) -> None:
            case.call_and_validate()

        conforms()


def test_an_answer_that_is_not_described_is_found(operations: dict[str, Any]) -> None:
    case = operations["GET /{lang}/plan.json"].Case(path_parameters={"lang": "en"}, query={"gpus": "4"})
    response = case.call()
    case.validate_response(response)
    response.status_code = 418
    with pytest.raises(schemathesis.core.failures.FailureGroup, match="Undocumented status code"):
        case.validate_response(response)
