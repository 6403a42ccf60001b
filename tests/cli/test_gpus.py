"""`batchfit gpus` as a person calls it."""

import json

import pytest
from click.testing import CliRunner, Result

from batchfit.cli import cli
from batchfit.gpus import load_gpus


def gpus(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(cli, ["gpus", *arguments], prog_name="batchfit")


def test_the_table_has_every_card_by_vendor_and_memory() -> None:
    run = gpus()
    assert run.exit_code == 0, run.output
    shown = [line.split()[0] for line in run.stdout.splitlines() if line.startswith(" ") and line.strip()]
    ids = [word for word in shown if word in {gpu.id for gpu in load_gpus()}]
    assert len(ids) == len(load_gpus())
    sizes = {gpu.id: (gpu.vendor, gpu.marketed_gb) for gpu in load_gpus()}
    for vendor in ("NVIDIA", "AMD", "Intel", "Apple"):
        memory = [sizes[name][1] for name in ids if sizes[name][0] == vendor]
        assert memory == sorted(memory)
    assert "…" not in run.stdout


def test_json_is_one_list_with_bytes_as_integers() -> None:
    run = gpus("--json")
    assert run.exit_code == 0
    listed = json.loads(run.stdout)
    assert [one["id"] for one in listed] == [gpu.id for gpu in load_gpus()]
    h100 = next(one for one in listed if one["id"] == "h100-80gb")
    assert h100["memory_bytes"] == 84932978278
    assert h100["driver_bytes"] == 81559 * 2**20
    assert h100["bandwidth_bytes_per_second"] == 3_350_000_000_000
    assert h100["peak_16bit_flops_per_second"] == 989_500_000_000_000
    assert h100["memory_basis"] == "measured"
    assert isinstance(h100["sources"]["peak_16bit"], str)


def test_one_card_with_its_sources() -> None:
    run = gpus("h100")
    assert run.exit_code == 0
    assert run.stdout.startswith("NVIDIA H100 80GB SXM: PyTorch can use 79.10 GiB of its 80 GB.")
    assert "81,559 MiB" in run.stdout
    assert "NVIDIA H100 Tensor Core GPU data sheet" in " ".join(run.stdout.split())
    assert json.loads(gpus("h100", "--json").stdout)["id"] == "h100-80gb"


@pytest.mark.parametrize("name", [gpu.id for gpu in load_gpus()])
def test_every_card_can_be_shown(name: str) -> None:
    run = gpus(name)
    assert run.exit_code == 0, run.output
    assert "None" not in run.stdout


def test_a_wrong_name_exits_2_and_says_what_is_near() -> None:
    run = gpus("rtx-4099")
    assert run.exit_code == 2
    assert "NAME must be a GPU of the catalogue; you typed 'rtx-4099'; did you mean rtx-4090" in run.stderr
