"""What a person says about a page: whether it helped, and what they add. Read from a form or from JSON."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from batchfit.errors import BadInput
from batchfit.web.state import LONGEST_QUERY

#: The two answers, as forms, JSON and the database have them.
ANSWERS = ("yes", "needs_work")
FIELDS = ("helpful", "text", "page", "inputs", "id")

#: The longest text, in characters.
LONGEST_TEXT = 2000

#: What a text cannot have, since databases or terminals trip over it: control characters, halves of surrogate pairs.
_UNUSABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Feedback:
    """One person's word on one page.

    id          makes sending it twice the same as sending it once
    created_at  with a time zone
    helpful     one of ANSWERS
    page        the page's name in addresses; "home" for a language's first page
    inputs      the query of the page's address, None where the person did not agree to send it
    """

    id: str
    created_at: datetime
    helpful: str
    text: str
    page: str
    language: str
    inputs: str | None


@dataclass(slots=True)
class Draft:
    """What was sent, field by field, and what is wrong with it; nothing of it gets lost."""

    given: Mapping[str, str] = field(default_factory=dict)
    wrong: dict[str, BadInput] = field(default_factory=dict)
    feedback: Feedback | None = None

    def add(self, wrong: BadInput) -> None:
        """Notes what is wrong with a field; of several complaints the first stands."""
        self.wrong.setdefault(wrong.field, wrong)


def read_draft(given: Mapping[str, Any], lang: str, pages: Collection[str]) -> Draft:
    """The feedback that these fields give to readers of a language. Never raises: what is wrong stands in the draft.

    `pages` are the names of pages that feedback can be about. An answer and a page are needed; an `id`, a UUID, is
    made where there is none.
    """
    draft = Draft({name: value for name, value in given.items() if isinstance(value, str)})
    for name, value in given.items():
        if name not in FIELDS:
            names = ", ".join(FIELDS)
            draft.add(BadInput(name, "is no field of feedback; its fields are {names}", names=names))
        elif not isinstance(value, str):
            draft.add(BadInput(name, "must be a text; you gave {given}", given=_shown(value)))
    helpful = draft.given.get("helpful", "")
    if not helpful:
        draft.add(BadInput("helpful", "choose one of the two answers"))
    elif helpful not in ANSWERS:
        draft.add(BadInput("helpful", "must be yes or needs_work; you gave {given}", given=_shown(helpful)))
    text = draft.given.get("text", "")
    inputs = draft.given.get("inputs")
    for name, value, limit in (("text", text, LONGEST_TEXT), ("inputs", inputs or "", LONGEST_QUERY)):
        if len(value) > limit:
            template = "can have up to {limit} characters; this has {count}"
            draft.add(BadInput(name, template, limit=limit, count=len(value)))
    page = draft.given.get("page", "")
    if page not in pages:
        draft.add(
            BadInput("page", "must be the name of a page of this site; you gave {given}", given=_shown(page))
        )
    key = _key(draft)
    if not draft.wrong:
        inputs = None if inputs is None else cleaned(inputs)
        draft.feedback = Feedback(key, datetime.now(UTC), helpful, cleaned(text), page, lang, inputs)
    return draft


def read_json(body: bytes) -> dict[str, Any]:
    """The fields of a JSON object. Raises BadInput where the body is none."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise BadInput(
            "body", "must be a JSON object; you gave {given}", given=_shown(body.decode("utf-8", "replace"))
        )
    return fields


def cleaned(text: str) -> str:
    """A text as it is kept: without what cannot be stored or shown."""
    return _UNUSABLE.sub("", text.replace("\r\n", "\n")).strip()


def _key(draft: Draft) -> str:
    text = draft.given.get("id")
    if text is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(text))
    except ValueError:
        draft.add(BadInput("id", "must be a UUID or be left out; you gave {given}", given=_shown(text)))
        return ""


def _shown(value: object) -> str:
    """What was given, short enough for a message, with nothing in it that cannot be written."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _UNUSABLE.sub("", text)
    return f"{text[:40]}…" if len(text) > 40 else text or "–"
