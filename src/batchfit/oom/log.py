"""Logs as they are pasted: colours, progress bars, timestamps, and several ranks writing at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")

#: A progress bar ends without a line break, so that a rank's line begins in its middle.
_AFTER_A_BAR = re.compile(r"(?<=\S)(?=\[rank\d+\]:)", re.IGNORECASE)

_RANK = re.compile(
    r"""^[\s>|│]*
    (?: \[ (?:default)? rank \s* (\d+) \] :?      # [rank3]:        torchrun
      | \[? rank [\s:=]* (\d+) \]? \s* [:|,]       # rank 3:
      | (\d{1,4}) :\s                              # 3: ...          srun --label
      | \[ (\d{1,4}) \] :\s )                      # [3]: ...
    """,
    re.VERBOSE | re.IGNORECASE,
)

_PREFIX = re.compile(
    r"""^(?: [\s>|│]+
      | \[?\d{4}-\d\d-\d\d[T_\s][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s*:?       # 2024-05-13T10:11:12.345Z
      | (?:\d\d-\d\d\s)?\[?\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\]?\s         # 03-03 19:38:29
      | \(\w[\w\s]*pid=\d+(?:,\s*ip=[\d.]+)?\)\s*                             # (EngineCore pid=39535)
      | \[?(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)\]?[\s:]+
      | \[[\w./-]+\.(?:py|cpp|cc)\S*:\d+\]\s*                                 # [core.py:708]
      | \w+\.py:\d+\]\s*
    )""",
    re.VERBOSE,
)


def plain(text: str) -> str:
    """Text without colours, with what a progress bar overwrote on lines of its own."""
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _AFTER_A_BAR.sub("\n", text)


def by_rank(text: str) -> dict[int | None, str]:
    """The lines of each rank in a log, without what stands before them; `None` for lines that name no rank.

    A line that names no rank may be the wrapped rest of the one before: it goes to that rank and to `None`.
    """
    streams: dict[int | None, list[str]] = {None: []}
    last: int | None = None
    for line in plain(text).splitlines():
        rank, rest = _rank_of(line)
        if rank is None:
            streams[None].append(rest)
            if last is not None:
                streams[last].append(rest)
        else:
            streams.setdefault(rank, []).append(rest)
            last = rank
    return {rank: "\n".join(lines) for rank, lines in streams.items()}


def _rank_of(line: str) -> tuple[int | None, str]:
    """The rank that a line names, and the line without prefixes."""
    rank = None
    while True:
        if rank is None and (found := _RANK.match(line)):
            rank = next(int(group) for group in found.groups() if group)
            line = line[found.end() :].lstrip(" ")
        elif (found := _PREFIX.match(line)) and found.end() and not _is_code(line):
            line = line[found.end() :]
        else:
            return rank, line


def _is_code(line: str) -> bool:
    """An indented line of a traceback, whose indent tells frames from code."""
    return line.startswith("  ") and not line.lstrip().startswith(("|", "│"))


_BATCH_NAMES = {
    "micro_batch": (
        r"per_device_train_batch_size",
        r"Instantaneous batch size per device",
        r"train_micro_batch_size_per_gpu",
        r"micro_batch_per_gpu",
        r"micro_batch_size",
    ),
    "accumulation_steps": (
        r"gradient_accumulation_steps",
        r"Gradient Accumulation steps",
        r"accumulate_grad_batches",
    ),
}


def batch_settings(text: str) -> dict[str, int]:
    """Micro-batch size and accumulation steps, where a log or a pasted config states them. The last one counts."""
    found = {}
    for setting, names in _BATCH_NAMES.items():
        # One pattern a name: a literal at its start is found fast in a long log.
        values = [
            (match.start(), int(match[1]))
            for name in names
            for match in re.finditer(rf"{name}\b['\"]?\s*[=:\s]\s*['\"]?(\d{{1,6}})\b", text)
        ]
        if values and (value := max(values)[1]) > 0:
            found[setting] = value
    return found


#: Words that stand in every out-of-memory message, in lower case.
_WORDS = (
    "out of memory",
    "out_of_memory",
    "outofmemory",
    "to allocate",
    "memory allocation of",
    "failed with oom",
    "sigkill",
    "allocating tensor",
    "exceed allowed",
    "alloc_failed",
    "cuda calloc",
    "cudaerrormemory",
    "exhausted",
    "killed",
    "exitcode",
    "exit code",
)
#: How far around such a word a message and its traceback reach, in characters.
_BEFORE, _AFTER = 40_000, 8_000


def excerpts(text: str) -> str:
    """The parts of a log around words that an out-of-memory message has. Logs are long, messages are not."""
    if len(text) <= _BEFORE + _AFTER:
        return text
    lower = text.lower()
    places = sorted(place for word in _WORDS for place in _occurrences(word, lower))
    parts: list[tuple[int, int]] = []
    for place in places:
        start, end = max(0, place - _BEFORE), place + _AFTER
        if parts and start <= parts[-1][1]:
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    return "\n".join(text[start:end] for start, end in parts)


def _occurrences(word: str, text: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + len(word))


#: A frame as Python prints it, as rich prints it, and as IPython prints it.
_FRAMES = re.compile(
    r"""File\ "(?P<file>[^"\n]+)",\ line\ (?P<line>\d+)(?:,\ in\ (?P<function>[^\n]+))?\n\s*(?P<code>[^\n]*)
      | ^(?P<file2>\S+\.py):(?P<line2>\d+)\ in\ (?P<function2>\w+)[^\n]*\n
        (?:(?!.*\.py:\d+\ in\ )[^\n]*\n)*?[^\n❱]*❱\s*\d+\s*│(?P<code2>[^\n]*)
      | ^(?P<file3>\S+\.py)\ in\ (?P<function3>\w+)\([^\n]*\n(?:[^\n]*\n){0,4}?-+>\s*(?P<line3>\d+)(?P<code3>[^\n]*)
    """,
    re.VERBOSE | re.MULTILINE,
)


def frames(text: str) -> Iterator[tuple[str, int, str, str]]:
    """The frames of the tracebacks in a text, outermost first: file, line, function, code."""
    for found in _FRAMES.finditer(text):
        file = found["file"] or found["file2"] or found["file3"]
        line = found["line"] or found["line2"] or found["line3"]
        function = found["function"] or found["function2"] or found["function3"] or ""
        code = (found["code"] or found["code2"] or found["code3"] or "").strip(" │")
        yield file, int(line), function.strip(), "" if code.startswith("File ") else code
