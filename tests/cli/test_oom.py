"""`batchfit oom` as a person calls it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchfit.cli import cli

GOLDEN = Path(__file__).parent / "golden"
CASES = json.loads((Path(__file__).parent.parent / "cases" / "oom.json").read_text("utf-8"))["cases"]
LITGPT = next(case["text"] for case in CASES if case["source"] == "Lightning-AI/litgpt#303")


def oom(*arguments: str, pasted: str | None = None) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(
        cli, ["oom", *arguments], input=pasted, prog_name="batchfit"
    )


def test_the_answer_for_people(overwrite: bool) -> None:
    run = oom(pasted=LITGPT)
    assert run.exit_code == 0, run.output
    golden = GOLDEN / "oom-fragmented.txt"
    if overwrite:
        golden.write_text(run.stdout, encoding="utf-8")
    assert run.stdout == golden.read_text("utf-8"), "if the difference is meant, pytest --overwrite"


def test_the_answer_opens_with_one_sentence() -> None:
    first = oom(pasted=LITGPT).stdout.split("\n\n")[0].replace("\n", " ")
    assert first == (
        "GPU 0 (RTX 3090) ran out of memory: 8.06 GiB were asked for, 1.27 GiB were free, and 8.65 GiB lay unused in "
        "PyTorch's own cache, in pieces too small."
    )


def test_the_bar_is_to_scale() -> None:
    bar = next(line.strip() for line in oom(pasted=LITGPT).stdout.splitlines() if "│" in line)
    drawn = {sign: bar.count(sign) for sign in "█▒▓·▶"}
    assert drawn["█"] / drawn["▒"] == pytest.approx(12.62 / 8.65, rel=0.1)
    assert drawn["▶"] / drawn["█"] == pytest.approx(8.06 / 12.62, rel=0.1)
    assert len(bar) <= 96


def test_no_bar_where_the_message_leaves_most_of_the_memory_open() -> None:
    said = "GPU 0 has a total capacity of 23.70 GiB of which 1.27 GiB is free."
    run = oom(pasted=f"CUDA out of memory. Tried to allocate 2.00 GiB. {said}")
    assert "│" not in run.stdout
    assert "free       1.27 GiB" in run.stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["source"])
def test_every_real_message_is_answered(case: dict[str, str]) -> None:
    run = oom(pasted=case["text"])
    assert run.exit_code == 0, run.output
    assert "What to change, cheapest first" in run.stdout
    assert "None" not in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 110
    data = json.loads(oom("--json", pasted=case["text"]).stdout)
    assert data["messages"][0]["sentence"]
    assert data["messages"][0]["advice"]


def test_a_file_and_a_dash(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff\xfe broken bytes\n" + LITGPT.encode())
    assert oom(str(log)).stdout == oom(pasted=LITGPT).stdout == oom("-", pasted=LITGPT).stdout


def test_several_ranks_are_counted() -> None:
    text = "\n".join(
        f"[rank{rank}]: {LITGPT.splitlines()[-1].replace('GPU 0', f'GPU {rank}')}" for rank in range(4)
    )
    run = oom(pasted=text)
    assert "4 ranks ran out of memory (0, 1, 2, 3); this is rank 0." in run.stdout
    assert [one["rank"] for one in json.loads(oom("--json", pasted=text).stdout)["messages"]] == [0, 1, 2, 3]


def test_no_message_exits_1_and_says_what_was_looked_for(tmp_path: Path) -> None:
    log = tmp_path / "fine.log"
    log.write_text("loss 2.3\n")
    run = oom(str(log))
    assert run.exit_code == 1
    assert f"{log} has no out-of-memory message; looked for PyTorch's" in run.stderr
    empty = oom(pasted="")
    assert empty.exit_code == 1
    assert "standard input is empty; looked for" in empty.stderr


def test_a_missing_file_exits_2() -> None:
    run = oom("no-such.log")
    assert run.exit_code == 2
    assert "no-such.log" in run.stderr
