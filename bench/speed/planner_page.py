"""How fast the planner's page answers: every control moved once on real profiles of the catalogue.

Run it with the interpreter that batchfit is installed in: .venv/bin/python bench/speed/planner_page.py

Processor milliseconds of one request, from its query to the compressed page. Each is taken beside its floor, the
search for that query's plans alone, which the page cannot go below; the ratio is taken pair by pair. Every query is
new, as when a person moves a slider: what is kept between requests are profiles and their sharded forms. The garbage
collector is at rest as it is in the server.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from batchfit.planning import answer  # noqa: E402
from batchfit.planning.asked import situation_of  # noqa: E402
from batchfit.web.collector import at_rest  # noqa: E402
from batchfit.web.plan_pages import plan_page  # noqa: E402
from batchfit.web.plan_state import read_plan_state  # noqa: E402
from batchfit.web.shelf import Shelf  # noqa: E402
from batchfit.web.site import Site  # noqa: E402

#: What is asked of it: the median over all controls, in milliseconds.
MOST_MILLISECONDS = 30.0

#: A large dense model, one of experts on cards that are too small for it, images, and adapters.
BASES = {
    "llama-3.1-8b": "model=llama-3.1-8b&gpu=h100-80gb&gpus=8&batch=256&seq_len=4096",
    "mixtral-8x7b": "model=mixtral-8x7b&gpu=rtx-4090&gpus=8&batch=1024&seq_len=2048",
    "resnet-50": "model=resnet-50&gpu=a100-80gb&gpus=8&batch=4096",
    "qwen2.5-7b": "model=qwen2.5-7b&gpu=rtx-4090&gpus=4&batch=128&seq_len=1024&lora=16",
}


def queries(base: str, turns: int) -> Iterator[tuple[str, str]]:
    """The controls, each with a query in which it alone is moved."""
    asked = dict(parse_qsl(base))
    for turn in range(1, turns + 1):
        moved = {
            "batch": str(int(asked["batch"]) + 8 * turn),
            "gpus": str(int(asked["gpus"]) + turn),
            "gpu": ("a100-40gb", "h200-141gb", "l40s-48gb", "rtx-5090", "mi300x-192gb")[turn % 5],
            "sharding": ("ddp", "fsdp", "zero1", "zero2", "zero3")[turn % 5],
            "checkpointing": ("none", "full")[turn % 2],
        }
        if "seq_len" in asked:
            moved["seq_len"] = str(int(asked["seq_len"]) + 128 * turn)
        for name, value in moved.items():
            yield name, "&".join(f"{key}={each}" for key, each in {**asked, name: value}.items())


def main() -> int:
    """Prints the table; exit status 1 where the median is above the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5, help="how often each control is moved")
    turns = parser.parse_args().turns
    site = Site(Shelf())
    everything: list[float] = []
    print(f"{'model':14} {'control':14} {'page ms':>8} {'worst':>7} {'plans ms':>9} {'ratio':>6}")
    for model, base in BASES.items():
        plan_page(site, read_plan_state(site.models, "en", parse_qsl(base)), "")
        found: dict[str, list[tuple[float, float]]] = {}
        with at_rest():
            for name, query in queries(base, turns):
                found.setdefault(name, []).append(_measured(site, query))
        for name, pairs in found.items():
            pages = [page for page, _ in pairs]
            ratio = statistics.median(page / plans for page, plans in pairs)
            plans = statistics.median(plans for _, plans in pairs)
            print(
                f"{model:14} {name:14} {statistics.median(pages):8.1f} {max(pages):7.1f} {plans:9.1f} {ratio:6.1f}"
            )
            everything += pages
    everything.sort()
    middle, late = statistics.median(everything), everything[int(len(everything) * 0.95)]
    print(f"all: median {middle:.1f} ms (at most {MOST_MILLISECONDS:.0f}), 95 of 100 within {late:.1f} ms")
    return int(middle > MOST_MILLISECONDS)


def _measured(site: Site, query: str) -> tuple[float, float]:
    """Milliseconds of the page, and then of its plans alone."""
    begun = time.process_time()
    state = read_plan_state(site.models, "en", parse_qsl(query))
    plan_page(site, state, "")
    between = time.process_time()
    for count in state.counts:
        answer(situation_of(state.profiles, state.wanted, count))
    return (between - begun) * 1000, (time.process_time() - between) * 1000


if __name__ == "__main__":
    sys.exit(main())
