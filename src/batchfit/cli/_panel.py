"""A small panel for the terminal: a sentence, aligned rows, notes. Plain click, since rich costs more to import
than a calculator takes to answer."""

from __future__ import annotations

import re
import shutil
from unicodedata import category, east_asian_width

import click


def columns(text: str) -> int:
    """How many terminal columns a text takes: Chinese, Japanese and Korean characters take two, marks on letters and
    signs of direction none."""
    return sum(
        2 if east_asian_width(character) in "WF" else 0 if category(character) in ("Mn", "Cf") else 1
        for character in text
    )


class Panel:
    """Collects rows of label, value and explanation, and lays them out for the terminal's width."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence
        self._items: list[tuple[str, str, str]] = []

    def row(self, label: str, value: str, explanation: str) -> None:
        """A line of the table; the value is the answer and stands out."""
        self._items.append((label, value, explanation))

    def note(self, text: str) -> None:
        """A sentence of its own, after a blank line."""
        self._items.append(("", "", text))

    def text(self) -> str:
        """The panel, styled for a terminal; click strips the styles elsewhere."""
        rows = [item for item in self._items if item[1]]
        label_width = max((columns(label) for label, _, _ in rows), default=0)
        value_width = max((columns(value) for _, value, _ in rows), default=0)
        indent = 2 + label_width + 2 + value_width + 2
        width = max(shutil.get_terminal_size().columns, 60)
        lines = [click.style(line, bold=True) for line in _wrap(self._sentence, width)] + [""]
        for label, value, explanation in self._items:
            if not value:
                lines += ["", *_wrap(explanation, width)]
                continue
            start = (
                "  "
                + label
                + " " * (label_width - columns(label) + 2 + value_width - columns(value))
                + click.style(value, fg="cyan", bold=True)
            )
            # Where there is no room beside the value, the explanation goes under it.
            if width - indent < 30:
                lines += [start, *_wrap(explanation, width, " " * 6)]
            else:
                first, *rest = _wrap(explanation, width, " " * indent) or [""]
                lines += [f"{start}  {first.lstrip(' ')}".rstrip(), *rest]
        return "\n".join(lines)


#: Spaces that hold together what stands beside them; French has narrow ones before its punctuation.
_NO_BREAK = "\xa0\u202f"
_KATAKANA, _HAN_AND_HIRAGANA = "\u30a1-\u30ff", "\u3005-\u3007\u3041-\u309f\u3400-\u9fff\uf900-\ufaff"
_OPENING, _CLOSING = "（「『《【“", "，。、；：！？）」』》】”ー々ぁぃぅぇぉっゃゅょ"
#: What a line may be broken between: a Chinese or Japanese character, or a run of katakana, with its number and what
#: must not start or end a line; or a word, as in Korean.
_PIECE = re.compile(
    rf"[^\S{_NO_BREAK}]+|[{_OPENING}]*[0-9.,]*(?:[{_KATAKANA}]+|[{_HAN_AND_HIRAGANA}])[{_CLOSING}]*"
    rf"|[^\s{_KATAKANA}{_HAN_AND_HIRAGANA}{_OPENING}]+|[{_OPENING}]+|[{_NO_BREAK}]"
)


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most `width` columns. Chinese and Japanese may break between any two characters; a no-break
    space holds together what stands beside it."""
    pieces: list[str] = []
    for piece in _PIECE.findall(text):
        if pieces and (piece in _NO_BREAK or pieces[-1][-1] in _NO_BREAK):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    lines, line = [], ""
    for piece in pieces:
        if line and columns(indent + line + piece.rstrip()) > width:
            lines.append(indent + line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, indent + line.rstrip()] if line.strip() else lines
