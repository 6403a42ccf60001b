"""What all tests share."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--overwrite", action="store_true", help="write the golden outputs anew")


@pytest.fixture
def overwrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden outputs are to be written anew."""
    return bool(request.config.getoption("--overwrite"))
