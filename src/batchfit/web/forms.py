"""The fields of a form that a request brings, as browsers send forms: as an address has them, or with files in parts.

What is in a file is read as text and kept nowhere; a field and a file are alike from here on.
"""

from __future__ import annotations

import re
from email.message import Message
from email.parser import HeaderParser
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from batchfit.web.bodies import read_body

#: More than the form has.
_MOST_FIELDS = 100
#: The longest head of a part, in bytes: a name, that of a file, and the kind of it.
_LONGEST_HEAD = 2000

Fields = list[tuple[str, str]]


async def read_form(request: Request) -> Fields:
    """The fields of a form, in order. Raises HTTPException: 415 and 400 for what is no form, else as `read_body`."""
    kind = Message()
    kind["Content-Type"] = request.headers.get("content-type", "")
    read = {"application/x-www-form-urlencoded": _encoded, "multipart/form-data": _in_parts}.get(
        kind.get_content_type()
    )
    if read is None:
        raise HTTPException(415)
    try:
        return read(await read_body(request), kind)
    except ValueError:  # not UTF-8, no parts, or more fields than any form of ours has
        raise HTTPException(400) from None


def _encoded(body: bytes, kind: Message) -> Fields:
    return parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)


def _in_parts(body: bytes, kind: Message) -> Fields:
    """The fields of a body in parts, as RFC 7578 has it. Raises ValueError."""
    boundary = kind.get_boundary()
    if not boundary:
        raise ValueError("no boundary")
    _, *parts, end = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"), _MOST_FIELDS + 2)
    if not end.startswith(b"--"):
        raise ValueError("no end")
    return [_part(part) for part in parts]


def _part(part: bytes) -> tuple[str, str]:
    head, found, content = part.partition(b"\r\n\r\n")
    if not found or len(head) > _LONGEST_HEAD:
        raise ValueError("no head")
    said = HeaderParser().parsestr(head.decode("utf-8").strip())
    name = said.get_param("name", header="content-disposition")
    if not isinstance(name, str):
        raise ValueError("no name")
    # A file may say by a mark in which order its bytes are.
    text = re.sub("^\N{ZERO WIDTH NO-BREAK SPACE}", "", content.decode("utf-8", "replace"))
    return name, text
