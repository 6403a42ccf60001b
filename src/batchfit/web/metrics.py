"""Figures for Prometheus: how many requests of which kind, and how long they took."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

_METHODS = ("GET", "HEAD", "POST", "OPTIONS")

#: Seconds; pages take fractions of a millisecond, plans some, whatever takes more than a second is a fault.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counts requests by route ("/{lang}/plan"), method and status; none of it is about a person."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "batchfit_requests", "Requests answered.", ["route", "method", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "batchfit_request_seconds",
            "Seconds from a request's head to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts one request. What was answered without a route is "kept" (from memory) or "none"."""
        route = getattr(scope.get("route"), "path", None) or ("kept" if status in (200, 304) else "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    async def page(self, request: Request) -> Response:
        """All figures, as Prometheus reads them."""
        headers = {"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"}
        return Response(generate_latest(self._registry), headers=headers)
