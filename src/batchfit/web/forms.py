"""The fields of a form that a request brings, as browsers send forms: as an address has them, or with files in parts.

What is in a file is read as text and kept nowhere; a field and a file are alike from here on.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from batchfit.web.bodies import LARGEST_MODEL, read_body

#: More than the form has.
_MOST_FIELDS = 100

Fields = list[tuple[str, str]]


async def read_form(request: Request) -> Fields:
    """The fields of a form, in order. Raises HTTPException: 415 and 400 for what is no form, else as `read_body`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    read = {"application/x-www-form-urlencoded": _encoded, "multipart/form-data": _in_parts}.get(kind)
    if read is None:
        raise HTTPException(415)
    try:
        return await read(await read_body(request), request)
    except (ValueError, MultiPartException):  # not UTF-8, no parts, or more fields than any form of ours has
        raise HTTPException(400) from None


async def _encoded(body: bytes, request: Request) -> Fields:
    return parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)


class _InMemory(MultiPartParser):
    """Files stay in memory: they are no larger than the body, which is there."""

    spool_max_size = LARGEST_MODEL


async def _in_parts(body: bytes, request: Request) -> Fields:
    async def whole() -> AsyncGenerator[bytes, None]:
        yield body

    limits = {"max_files": _MOST_FIELDS, "max_fields": _MOST_FIELDS, "max_part_size": LARGEST_MODEL}
    form = await _InMemory(request.headers, whole(), **limits).parse()
    try:
        found = [
            (name, value if isinstance(value, str) else value.file.read().decode("utf-8", "replace"))
            for name, value in form.multi_items()
        ]
    finally:
        await form.close()
    if not found:
        raise ValueError("no parts")
    # A file may say by a mark in which order its bytes are.
    return [(name, text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")) for name, text in found]
