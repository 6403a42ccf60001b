"""What importing costs: the small things must not drag in the large ones."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "starlette", "babel", "rich", "transformers", "jinja2")


def loaded_by(statement: str) -> set[str]:
    """The heavy modules that a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split()) if run.stdout.strip() else set()


def test_importing_batchfit_loads_nothing_heavy() -> None:
    assert loaded_by("import batchfit; batchfit.Batch(4, 8, 1)") == set()


def test_the_calculator_command_loads_nothing_heavy() -> None:
    call = "import batchfit.cli as c; c.cli(['calc', '--micro-batch', '4'], standalone_mode=False)"
    assert loaded_by(call) == set()


@pytest.mark.parametrize("module", ["babel", "starlette"])
def test_the_check_can_fail(module: str) -> None:
    assert module in loaded_by(f"import batchfit, {module}")
