"""Reading what a request brings: no more than a limit, and no longer than a while."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

#: The largest body that is read, in bytes: a hundred times what a person writes.
LARGEST_BODY = 256 * 1024
#: The largest one that brings a model to plan with, percent-encoded at worst.
LARGEST_MODEL = 3_010_000
#: Seconds within which a body has to arrive: enough for the slowest of connections.
LONGEST_ARRIVAL = 20.0

# What is still to come is not waited for.
_CLOSE = {"Connection": "close"}


def largest_body(path: str) -> int:
    """The largest body that a request to this path may bring, in bytes."""
    # "/en/plan", "/en/plan.json", "/en/plan/memory.svg"
    page = path.split("/")[2:3]
    return LARGEST_MODEL if page and page[0].partition(".")[0] == "plan" else LARGEST_BODY


async def read_body(request: Request) -> bytes:
    """The whole body. Raises HTTPException: 413 where it is larger than its path allows, 408 where it takes too long,
    400 where it ends before its end."""
    body, limit = bytearray(), largest_body(request.url.path)
    try:
        async with asyncio.timeout(LONGEST_ARRIVAL):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise HTTPException(413, headers=_CLOSE)
    except TimeoutError:
        raise HTTPException(408, headers=_CLOSE) from None
    except ClientDisconnect:
        raise HTTPException(400, headers=_CLOSE) from None
    return bytes(body)
