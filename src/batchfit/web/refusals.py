"""What a person is told where a request gets no answer: a heading and what to do, by HTTP status."""

from __future__ import annotations

from dataclasses import dataclass

from batchfit.sentences import Counted, Sentence


@dataclass(frozen=True, slots=True)
class Refusal:
    """A heading, and a sentence on what to do."""

    title: Sentence
    advice: Sentence


_SHELF = Sentence("Links made here are shorter and open as they are. These are the calculators there are:")
_OTHERS = Refusal(Sentence("This request cannot be answered"), _SHELF)
_OURS = Refusal(
    Sentence("Something went wrong on our side"),
    Sentence("Your values are still in the address: try again in a moment."),
)
_REFUSALS = {
    403: Refusal(
        Sentence("This was sent from another site"),
        Sentence("Only pages of this site may send to it. Open the page here, then send again."),
    ),
    404: Refusal(
        Sentence("There is no such page"),
        Sentence("The address may be mistyped, or the page has moved. These are the calculators there are:"),
    ),
    405: Refusal(Sentence("This page can only be read"), _SHELF),
    408: Refusal(
        Sentence("This took too long to arrive"), Sentence("The connection may be slow: send it again.")
    ),
    413: Refusal(Sentence("This is too large"), Sentence("Shorten what you send, then send it again.")),
    414: Refusal(Sentence("This address is too long"), _SHELF),
}


def refusal_for(status: int, wait: int = 0) -> Refusal:
    """What to say with a status; with 429, after how many seconds (`wait`) it is worth to try again."""
    if status == 429:
        minutes = max(1, -(-wait // 60))
        return Refusal(
            Sentence("Too many requests came from your network"),
            Sentence("Try again in {wait}.", wait=Counted("{n} minute", "{n} minutes", minutes)),
        )
    return _REFUSALS.get(status, _OTHERS if status < 500 else _OURS)
