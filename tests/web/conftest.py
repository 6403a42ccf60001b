"""The app as a browser without JavaScript meets it. A fault of the server fails the test."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from batchfit.web.app import create_app


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(), base_url="http://batchfit.test", follow_redirects=False) as client:
        yield client
