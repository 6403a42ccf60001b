"""The catalogue of GPUs: its schema, its figures against printed lines, and finding a card by what people call it."""

import json
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from batchfit.errors import BadInput
from batchfit.gpus import CATALOGUE, Gpu, find_gpu, gpus_reporting, load_gpus, parse_catalogue

TEXT = resources.files("batchfit").joinpath(CATALOGUE).read_text("utf-8")
RAW = tomllib.loads(TEXT)
PUBLISHED = json.loads((Path(__file__).parent / "cases" / "gpus.json").read_text("utf-8"))
LINES: list[dict[str, Any]] = PUBLISHED["lines"]
GPUS = load_gpus()
BY_ID = {gpu.id: gpu for gpu in GPUS}
GIB = 2**30


def figure(line: dict[str, Any]) -> float:
    """What a printed line says, in bytes."""
    return float(line["gib"]) * GIB if "gib" in line else float(line["mib"]) * 2**20


def test_there_are_enough_cards_of_every_maker() -> None:
    vendors = [gpu.vendor for gpu in GPUS]
    assert len(GPUS) >= 40
    assert {"NVIDIA", "AMD", "Apple", "Intel"} == set(vendors)


def test_ids_are_unique_and_written_alike() -> None:
    assert len(BY_ID) == len(GPUS)
    assert [gpu.id for gpu in GPUS if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", gpu.id)] == []


def test_no_two_cards_share_a_name() -> None:
    names = [name.lower() for gpu in GPUS for name in (gpu.id, gpu.name, *gpu.aliases)]
    assert sorted({name for name in names if names.count(name) > 1}) == []


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.id)
def test_units_are_sane(gpu: Gpu) -> None:
    assert 0.6 * gpu.marketed_gb * GIB <= gpu.memory_bytes <= gpu.marketed_gb * GIB
    assert gpu.driver_bytes is None or gpu.memory_bytes <= gpu.driver_bytes <= gpu.marketed_gb * GIB
    assert 60e9 <= gpu.bandwidth <= 10e12
    assert 2016 <= gpu.year <= 2030
    assert 1 <= gpu.per_node <= 16
    assert gpu.link_bandwidth is None or 30e9 <= gpu.link_bandwidth <= 2e12
    assert gpu.context_bytes is None or 50 * 2**20 <= gpu.context_bytes <= 1 * GIB
    if gpu.vendor == "NVIDIA":
        assert gpu.compute_capability is not None
        # bf16 arithmetic came with compute capability 8.0.
        assert gpu.supports_bf16 == (float(gpu.compute_capability) >= 8.0)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.id)
def test_rates_fit_together(gpu: Gpu) -> None:
    if gpu.peak_16bit and gpu.peak_fp32:
        assert 1 <= gpu.peak_16bit / gpu.peak_fp32 <= 40
    if gpu.peak_16bit:
        # Operations per byte: from a laptop chip without matrix units to a data-centre card.
        assert 20 <= gpu.peak_16bit / gpu.bandwidth <= 500
    # A link to a neighbour is never faster than the card's own memory.
    assert gpu.link_bandwidth is None or gpu.link_bandwidth < gpu.bandwidth


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.id)
def test_every_figure_has_a_source(gpu: Gpu) -> None:
    figures = {"marketed_gb", "memory_bytes", "bandwidth", "link", "year"}
    figures |= {
        name for name in ("peak_16bit", "peak_fp32", "context_bytes") if getattr(gpu, name) is not None
    }
    assert figures == set(gpu.sources)
    assert all(len(document) > 20 for document in gpu.sources.values())


def test_every_source_is_used() -> None:
    used = {key for entry in RAW["gpu"] for key in entry["sources"].values()}
    used |= {row["source"] for row in RAW["metal"]}
    used |= {one["tensor_source"] for one in RAW["architectures"].values() if "tensor_source" in one}
    assert set(RAW["sources"]) == used


@pytest.mark.parametrize("entry", [e for e in RAW["gpu"] if "torch_gib" in e], ids=lambda entry: entry["id"])
def test_published_totals_are_the_printed_ones(entry: dict[str, Any]) -> None:
    printed = [
        figure(line) / GIB for line in LINES if (line["gpu"], line["reported_by"]) == (entry["id"], "torch")
    ]
    assert [round(min(printed), 2), round(max(printed), 2)] == entry["torch_gib"]
    assert BY_ID[entry["id"]].memory_basis == "measured"


@pytest.mark.parametrize("entry", [e for e in RAW["gpu"] if "driver_mib" in e], ids=lambda entry: entry["id"])
def test_driver_totals_are_the_printed_ones(entry: dict[str, Any]) -> None:
    printed = [
        figure(line) / 2**20
        for line in LINES
        if (line["gpu"], line["reported_by"]) == (entry["id"], "driver")
    ]
    # Windows drivers and some tools round the last MiB down.
    assert any(abs(total - entry["driver_mib"]) <= 1 for total in printed)


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['gpu']}: {line['line']}")
def test_a_printed_line_is_recognised(line: dict[str, Any]) -> None:
    assert line["gpu"] in {gpu.id for gpu in gpus_reporting(round(figure(line)))}


@pytest.mark.parametrize("row", PUBLISHED["metal"], ids=lambda row: f"{row['memory_gb']} GB")
def test_metals_working_set_is_the_printed_one(row: dict[str, Any]) -> None:
    cards = [gpu for gpu in GPUS if gpu.vendor == "Apple" and gpu.marketed_gb == row["memory_gb"]]
    assert cards
    for gpu in cards:
        assert gpu.memory_basis == "measured"
        assert gpu.memory_bytes == pytest.approx(row["bytes"], rel=0.0005)


def test_metals_rule_meets_the_measured_sizes() -> None:
    for row in RAW["metal"]:
        share = 2 / 3 if row["memory_gb"] <= 32 else 3 / 4
        assert row["working_set_mib"] == int(row["memory_gb"] * 1024 * share)


@pytest.mark.parametrize(
    ("gpu_id", "gib", "tflops"),
    [
        ("h100-80gb", 79.10, 989.5),
        ("a100-80gb", 79.15, 312),
        ("a100-40gb", 39.38, 312),
        ("rtx-4090", 23.52, 165.2),
        ("t4", 14.56, 65),
        ("v100-32gb", 31.73, 125),
        ("mi300x", 191.98, 1307.4),
        ("rtx-3080", 9.77, 59.6),
    ],
)
def test_well_known_cards(gpu_id: str, gib: float, tflops: float) -> None:
    gpu = find_gpu(gpu_id)
    assert gpu.memory_bytes == round(gib * GIB)
    assert gpu.peak_16bit == pytest.approx(tflops * 1e12)


def test_what_is_not_published_is_derived_from_the_same_generation() -> None:
    # nvidia-smi prints 81,920 MiB for A100 80GB PCIe; the widest gap to PyTorch's total among A100 and A30 is
    # 81,920 MiB - 79.15 GiB.
    gpu = find_gpu("a100-80gb-pcie")
    assert gpu.memory_basis == "derived"
    assert gpu.memory_bytes == pytest.approx(79.15 * GIB, abs=1)
    assert find_gpu("mi350x").memory_bytes == pytest.approx(287.98 * GIB, abs=2)


@pytest.mark.parametrize(
    ("typed", "gpu_id"),
    [
        ("h100-80gb", "h100-80gb"),
        ("H100", "h100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("a100_80gb", "a100-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("rtx 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X", "mi300x"),
        ("apple m2 max 64gb", "m2-max-64gb"),
        ("Radeon RX 7900 XTX", "rx-7900-xtx"),
    ],
)
def test_cards_are_found_by_what_people_call_them(typed: str, gpu_id: str) -> None:
    assert find_gpu(typed).id == gpu_id


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.id)
def test_every_card_is_found_by_id_name_and_alias(gpu: Gpu) -> None:
    assert all(find_gpu(name) is gpu for name in (gpu.id, gpu.name, *gpu.aliases))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            "rtx-4090-ti",
            "gpu: must be a GPU of the catalogue; you typed 'rtx-4090-ti'; did you mean rtx-4090 or",
        ),
        (
            "m1-max",
            "gpu: comes with several memory sizes: write one of m1-max-32gb, m1-max-64gb; you typed 'm1-max'",
        ),
        ("toaster", "gpu: must be a GPU of the catalogue, which `batchfit gpus` lists; you typed 'toaster'"),
        ("", "gpu: must be a GPU of the catalogue, which `batchfit gpus` lists; you typed ''"),
    ],
)
def test_a_wrong_name_is_restated_with_what_is_near(typed: str, message: str) -> None:
    with pytest.raises(BadInput) as wrong:
        find_gpu(typed)
    assert str(wrong.value).startswith(message)


ONE = """
[sources]
sheet = { title = "data sheet", where = "table" }
[architectures.a]
name = "A"
vendor = "V"
supports_bf16 = true
[[gpu]]
id = "x-8gb"
name = "X"
architecture = "a"
year = 2024
memory_gb = 8
bandwidth_gb_s = 500
link = "PCIe"
per_node = 1
sources = { specs = "sheet" }
"""


def test_a_new_card_is_one_entry() -> None:
    (gpu,) = parse_catalogue(ONE)
    assert (gpu.id, gpu.vendor, gpu.memory_bytes, gpu.peak_16bit) == ("x-8gb", "V", 8 * GIB, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("year = 2024\n", "", "x-8gb: missing year"),
        ("year = 2024", "year = 2024\nyaer = 2024", "x-8gb: unknown yaer"),
        ("memory_gb = 8\n", "", "x-8gb: missing memory_gb"),
        ('architecture = "a"', 'architecture = "b"', "x-8gb: unknown architecture 'b'"),
        ('specs = "sheet"', 'specs = "shet"', "x-8gb: unknown source 'shet'"),
        ('specs = "sheet"', 'peak = "sheet"', "x-8gb: sources has no specs"),
        ("memory_gb = 8", "memory_gb = 8\ndriver_mib = 8192", "x-8gb: sources has no memory"),
        ("memory_gb = 8", "memory_options_gb = [8]", "x-8gb: no [[metal]] working set for 8 GB"),
    ],
)
def test_a_wrong_entry_is_named(old: str, new: str, message: str) -> None:
    assert old in ONE
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_catalogue(ONE.replace(old, new))
