"""How many requests one address may make: counted in memory, under a hash that means nothing tomorrow."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import secrets
import time
from collections.abc import Callable

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from batchfit.errors import BadInput

_DAY = 24 * 3600


class Addresses:
    """Turns addresses into hashes whose salt is made anew each day and never leaves memory."""

    def __init__(self) -> None:
        self._day = -1
        self._salt = b""

    def hashed(self, address: str) -> str:
        """The same for the same address until the day ends (UTC). Of IPv6, the network that one customer gets."""
        if (today := int(time.time() // _DAY)) != self._day:
            self._day, self._salt = today, secrets.token_bytes(32)
        return hashlib.blake2b(_network(address).encode(), key=self._salt, digest_size=16).hexdigest()


class Rates:
    """How often each address may ask for an answer that has to be computed, and how often it may send feedback.

    A rate is "COUNT/UNIT" as in "1200/minute" or "60/hour"; "none" sets no limit. Raises BadInput for another text.
    """

    def __init__(self, *, answers: str, feedback: str) -> None:
        self._answers = _rate("rate_limit", answers)
        self._feedback = _rate("feedback_rate_limit", feedback)
        self._addresses = Addresses()
        self._limiter = FixedWindowRateLimiter(MemoryStorage())

    def answer(self, scope: Scope) -> int:
        """Counts a request for an answer: 0 where it is allowed, else the seconds until the next one is."""
        return self._count(self._answers, "answers", scope)

    def feedback(self, scope: Scope) -> int:
        """Counts an entry of feedback: 0 where it is allowed, else the seconds until the next one is."""
        return self._count(self._feedback, "feedback", scope)

    def _count(self, rate: RateLimitItem | None, what: str, scope: Scope) -> int:
        if rate is None:
            return 0
        address = (scope.get("client") or ("",))[0]
        who = self._addresses.hashed(address)
        if self._limiter.hit(rate, what, who):
            return 0
        return max(1, math.ceil(self._limiter.get_window_stats(rate, what, who).reset_time - time.time()))


#: What machines that watch over the app ask for, from one address and all day; and feedback, which has its own rate.
_ELSEWHERE = ("/healthz", "/healthz.json", "/metrics", "/feedback", "/feedback.json")


class Limited:
    """Turns away requests for answers beyond the rate (429, Retry-After). `refuse` makes the response to those.
    Feedback has a rate of its own."""

    def __init__(self, app: ASGIApp, rates: Rates, refuse: Callable[[Scope, int, int], Response]) -> None:
        self._app, self._rates, self._refuse = app, rates, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        counted = scope["type"] == "http" and not scope["path"].endswith(_ELSEWHERE)
        wait = self._rates.answer(scope) if counted else 0
        app = self._refuse(scope, 429, wait) if wait else self._app
        await app(scope, receive, send)


def _rate(option: str, text: str) -> RateLimitItem | None:
    if text == "none":
        return None
    try:
        rate = parse(text)
    except ValueError:
        rate = None
    if rate is None or rate.amount < 1:
        message = f"must be a rate such as 600/minute, 20/hour or 5/second, or none; you gave {text}"
        raise BadInput(option, "{message}", message=message)
    return rate


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 6:
        return parsed.ipv4_mapped.compressed if parsed.ipv4_mapped else str(parsed.packed[:8])
    return parsed.compressed
