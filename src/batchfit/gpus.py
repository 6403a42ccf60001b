"""The GPUs: what memory a card really has, how fast it is, and where each figure comes from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any, Literal

from batchfit.errors import BadInput
from batchfit.sentences import Sentence
from batchfit.units import UNITS

Basis = Literal["measured", "derived"]

#: Where the figures stand; its head explains every key.
CATALOGUE = "catalog/gpus.toml"

#: Bytes a second, one way, of one PCIe lane, after encoding (PCI-SIG base specifications 3.0 to 5.0).
_PCIE_LANE = {"3.0": 0.985e9, "4.0": 1.969e9, "5.0": 3.938e9}

#: PyTorch prints capacities with two decimals; half a unit of the last one decides no match.
_ROUNDING = int(0.005 * UNITS["GiB"]) + 1


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or the part of a module that PyTorch sees as one GPU. `None` where a figure is not known.

    memory_bytes      what PyTorch can allocate from, before any context: its reported total memory
    memory_basis      "measured": published totals exist, the smallest stands; "derived": from `memory_rule`
    marketed_gb       as printed on the box
    driver_bytes      the driver's total, which under Windows is also what PyTorch reports
    reported_bytes    smallest and largest total that PyTorch is published to have reported under Linux
    bandwidth         device memory, bytes per second
    peak_16bit        dense fp16 or bf16 matrix products, FLOP per second; `peak_fp32` outside tensor cores
    link, link_bandwidth   the fastest way to another GPU of the node; bytes per second, both directions together
    per_node          how many usually sit in one node
    context_bytes     what a process holds beside PyTorch's allocator at least, for the generation
    sources           figure -> the document it comes from
    """

    id: str
    name: str
    vendor: str
    architecture: str
    aliases: tuple[str, ...]
    year: int
    compute_capability: str | None
    supports_bf16: bool
    marketed_gb: int
    memory_bytes: int
    memory_basis: Basis
    memory_rule: str
    driver_bytes: int | None
    reported_bytes: tuple[int, int] | None
    bandwidth: int
    peak_16bit: int | None
    peak_fp32: int | None
    link: str
    link_bandwidth: int | None
    pcie: str | None
    per_node: int
    context_bytes: int | None
    sources: Mapping[str, str]
    note: str

    def reports(self, total_bytes: int) -> bool:
        """Whether a total that PyTorch printed (to 0.01 GiB) can be this card's: within the published totals,
        or the driver's own total, which Windows shows."""
        low, high = self.reported_bytes or (self.memory_bytes, self.memory_bytes)
        if low - _ROUNDING <= total_bytes <= high + _ROUNDING:
            return True
        return self.driver_bytes is not None and abs(total_bytes - self.driver_bytes) <= 2 * _ROUNDING

    def as_json(self) -> dict[str, object]:
        """Every field as data; sizes in bytes, rates in bytes or operations per second."""
        units = {
            "bandwidth": "bandwidth_bytes_per_second",
            "link_bandwidth": "link_bandwidth_bytes_per_second",
            "peak_16bit": "peak_16bit_flops_per_second",
            "peak_fp32": "peak_fp32_flops_per_second",
        }
        return {
            units.get(f.name, f.name): dict(value) if isinstance(value, Mapping) else value
            for f in fields(self)
            for value in [getattr(self, f.name)]
        }


@cache
def load_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, in its order."""
    return parse_catalogue(resources.files("batchfit").joinpath(CATALOGUE).read_text("utf-8"))


def find_gpu(name: str) -> Gpu:
    """The GPU a person means by an id, an alias or a product name: "h100-80gb", "RTX 4090", "NVIDIA L4".

    Raises BadInput naming the nearest ids where there is none, or the sizes where there are several.
    """
    typed = _normal(name)
    by_name = _names()
    if typed in by_name:
        return by_name[typed]
    sizes = [
        gpu.id for gpu in load_gpus() if typed and gpu.id.startswith(f"{typed}-") and gpu.id.endswith("gb")
    ]
    if sizes:
        template = "comes with several memory sizes: write one of {ids}; you typed {typed}"
        raise BadInput("gpu", template, ids=", ".join(sizes), typed=repr(name))
    if near := _near(typed):
        template = "must be a GPU of the catalogue; you typed {typed}; did you mean {ids}?"
        raise BadInput("gpu", template, ids=" or ".join(near), typed=repr(name))
    template = "must be a GPU of the catalogue, which `batchfit gpus` lists; you typed {typed}"
    raise BadInput("gpu", template, typed=repr(name))


def _near(typed: str) -> list[str]:
    """The ids, three at most, that look most like what was typed. A model number says more than its letters."""
    from difflib import get_close_matches

    names = _names()
    numbers = set(re.findall(r"\d{2,}", typed))
    close = get_close_matches(typed, names, n=12, cutoff=0.6)
    close.sort(key=lambda name: not numbers & set(re.findall(r"\d{2,}", name)))
    return list(dict.fromkeys(names[name].id for name in close))[:3]


def gpus_reporting(total_bytes: int) -> tuple[Gpu, ...]:
    """The GPUs whose total memory PyTorch prints as `total_bytes`, in the catalogue's order."""
    return tuple(gpu for gpu in load_gpus() if gpu.reports(total_bytes))


@cache
def _names() -> dict[str, Gpu]:
    names: dict[str, Gpu] = {}
    for gpu in load_gpus():
        for name in (gpu.id, gpu.name, *gpu.aliases):
            names.setdefault(_normal(name), gpu)
    return names


def _normal(name: str) -> str:
    """A name without maker, brand and spacing: "NVIDIA GeForce RTX 4090" and "rtx_4090" are "rtx-4090"."""
    brands = {
        "nvidia",
        "geforce",
        "tesla",
        "amd",
        "radeon",
        "instinct",
        "intel",
        "apple",
        "gpu",
        "tensor",
        "core",
    }
    words = "".join(c if c.isalnum() else " " for c in name.lower()).split()
    return "-".join(word for word in words if word not in brands)


# --- reading the catalogue -------------------------------------------------------------------------------

_REQUIRED = {"id", "name", "architecture", "year", "bandwidth_gb_s", "link", "per_node", "sources"}
_OPTIONAL = {
    "aliases",
    "memory_gb",
    "memory_options_gb",
    "driver_mib",
    "torch_gib",
    "peak_16bit_tflops",
    "peak_fp32_tflops",
    "link_gb_s",
    "pcie",
    "note",
}


def parse_catalogue(text: str) -> tuple[Gpu, ...]:
    """The GPUs of a catalogue in TOML, as `catalog/gpus.toml` describes it.

    Raises ValueError naming the entry where a key is missing or unknown, or a source does not exist.
    """
    data = tomllib.loads(text)
    entries = list(_one_per_size(data["gpu"], data.get("metal", [])))
    for entry in entries:
        _check(entry, data)
    memory = _Memory(entries, data["architectures"])
    return tuple(_gpu(entry, data, memory) for entry in entries)


def _one_per_size(
    entries: Iterable[dict[str, Any]], metal: Iterable[dict[str, Any]]
) -> Iterable[dict[str, Any]]:
    """A chip sold with several sizes of shared memory becomes one entry for each, with the size in its id."""
    working_sets = {row["memory_gb"]: row for row in metal}
    for entry in entries:
        if "memory_options_gb" not in entry:
            yield entry
            continue
        for size in entry["memory_options_gb"]:
            if size not in working_sets:
                raise ValueError(f"{entry['id']}: no [[metal]] working set for {size} GB")
            one = {key: value for key, value in entry.items() if key != "memory_options_gb"}
            name = f"{entry['name']} {size}GB"
            yield one | {
                "id": f"{entry['id']}-{size}gb",
                "name": name,
                "memory_gb": size,
                "metal": working_sets[size],
            }


def _check(entry: dict[str, Any], data: dict[str, Any]) -> None:
    name = entry.get("id", "an entry without an id")
    if missing := _REQUIRED - entry.keys():
        raise ValueError(f"{name}: missing {', '.join(sorted(missing))}")
    if unknown := entry.keys() - _REQUIRED - _OPTIONAL - {"metal"}:
        raise ValueError(f"{name}: unknown {', '.join(sorted(unknown))}")
    if "memory_gb" not in entry:
        raise ValueError(f"{name}: missing memory_gb")
    if entry["architecture"] not in data["architectures"]:
        raise ValueError(f"{name}: unknown architecture {entry['architecture']!r}")
    if "specs" not in entry["sources"]:
        raise ValueError(f"{name}: sources has no specs")
    if {"driver_mib", "torch_gib", "metal"} & entry.keys() and "memory" not in entry["sources"]:
        raise ValueError(f"{name}: sources has no memory")
    for key in entry["sources"].values():
        if key not in data["sources"]:
            raise ValueError(f"{name}: unknown source {key!r}")


class _Memory:
    """What PyTorch can use of each card: published where it is, else derived from its generation's cards."""

    def __init__(self, entries: list[dict[str, Any]], architectures: dict[str, Any]) -> None:
        self._architectures = architectures
        self._entries = entries

    def of(self, entry: dict[str, Any]) -> tuple[int, Basis, str]:
        """Usable bytes, how they are known, and the rule."""
        if metal := entry.get("metal"):
            rule = Sentence("Metal's recommended working set for one process, at this size of memory")
            return metal["working_set_mib"] * UNITS["MiB"], metal["basis"], rule
        if total := entry.get("torch_gib"):
            rule = Sentence("smallest total that PyTorch is published to have reported")
            return _gib(total[0]), "measured", rule
        if driver := entry.get("driver_mib"):
            rule = Sentence(
                "the driver's total, less the largest difference to PyTorch's among cards of the generation"
            )
            return driver * UNITS["MiB"] - int(max(self._related(entry, _gap), default=0)), "derived", rule
        rule = Sentence(
            "the marketed size, times the smallest usable share of it among cards of the generation"
        )
        share = min(self._related(entry, self._share), default=1.0)
        return int(entry["memory_gb"] * UNITS["GiB"] * share), "derived", rule

    def _related(
        self, entry: dict[str, Any], figure: Callable[[dict[str, Any]], float | None]
    ) -> list[float]:
        """A figure of every card of the same architecture that has it, else of the same vendor."""
        vendor = self._architectures[entry["architecture"]]["vendor"]
        generation = [e for e in self._entries if e["architecture"] == entry["architecture"]]
        makers = [e for e in self._entries if self._architectures[e["architecture"]]["vendor"] == vendor]
        for related in (generation, makers):
            if found := [value for e in related if (value := figure(e)) is not None]:
                return found
        return []

    def _share(self, entry: dict[str, Any]) -> float | None:
        if "torch_gib" not in entry and "driver_mib" not in entry:
            return None
        return float(self.of(entry)[0] / (entry["memory_gb"] * UNITS["GiB"]))


def _gap(entry: dict[str, Any]) -> int | None:
    if "torch_gib" not in entry or "driver_mib" not in entry:
        return None
    return max(0, int(entry["driver_mib"]) * UNITS["MiB"] - _gib(entry["torch_gib"][0]))


def _gpu(entry: dict[str, Any], data: dict[str, Any], memory: _Memory) -> Gpu:
    architecture = data["architectures"][entry["architecture"]]
    usable, basis, rule = memory.of(entry)
    link = entry.get("link_gb_s")
    return Gpu(
        id=entry["id"],
        name=entry["name"],
        vendor=architecture["vendor"],
        architecture=architecture["name"],
        aliases=tuple(entry.get("aliases", ())),
        year=entry["year"],
        compute_capability=architecture.get("compute_capability"),
        supports_bf16=architecture["supports_bf16"],
        marketed_gb=entry["memory_gb"],
        memory_bytes=usable,
        memory_basis=basis,
        memory_rule=rule,
        driver_bytes=entry["driver_mib"] * UNITS["MiB"] if "driver_mib" in entry else None,
        reported_bytes=(_gib(entry["torch_gib"][0]), _gib(entry["torch_gib"][1]))
        if "torch_gib" in entry
        else None,
        bandwidth=round(entry["bandwidth_gb_s"] * 1e9),
        peak_16bit=_peak_16bit(entry, architecture),
        peak_fp32=_tera(entry.get("peak_fp32_tflops")),
        link=entry["link"],
        link_bandwidth=round(link * 1e9) if link else _pcie_bandwidth(entry),
        pcie=entry.get("pcie"),
        per_node=entry["per_node"],
        context_bytes=architecture["context_mib"] * UNITS["MiB"] if "context_mib" in architecture else None,
        sources=_sources(entry, architecture, data["sources"]),
        note=entry.get("note", ""),
    )


def _peak_16bit(entry: dict[str, Any], architecture: dict[str, Any]) -> int | None:
    if "peak_16bit_tflops" in entry:
        return _tera(entry["peak_16bit_tflops"])
    if "tensor_per_fp32" in architecture and "peak_fp32_tflops" in entry:
        return _tera(entry["peak_fp32_tflops"] * architecture["tensor_per_fp32"])
    return None


def _pcie_bandwidth(entry: dict[str, Any]) -> int | None:
    """Both directions together, for cards that talk over PCIe alone."""
    if entry["link"] != "PCIe" or "pcie" not in entry:
        return None
    generation, lanes = entry["pcie"].split(" x")
    return round(2 * _PCIE_LANE[generation] * int(lanes))


def _sources(
    entry: dict[str, Any], architecture: dict[str, Any], documents: dict[str, Any]
) -> dict[str, str]:
    """Every figure that the card has, with the document it comes from."""

    def document(key: str) -> str:
        return f"{documents[key]['title']}: {documents[key]['where']}"

    specs = document(entry["sources"]["specs"])
    found = {"marketed_gb": specs, "bandwidth": specs, "link": specs, "year": specs}
    found["memory_bytes"] = document(entry["sources"]["memory"]) if "memory" in entry["sources"] else specs
    if "peak_fp32_tflops" in entry:
        found["peak_fp32"] = specs
    if "peak_16bit_tflops" in entry:
        found["peak_16bit"] = document(entry["sources"].get("peak", entry["sources"]["specs"]))
    elif _peak_16bit(entry, architecture):
        found["peak_16bit"] = document(architecture["tensor_source"])
    if "context_mib" in architecture:
        found["context_bytes"] = architecture["context_source"]
    return found


def _gib(number: float) -> int:
    return round(number * UNITS["GiB"])


def _tera(number: float | None) -> int | None:
    return None if number is None else round(number * 1e12)
