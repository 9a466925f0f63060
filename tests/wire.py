"""Faults at requests to S3, as `proxy.CuttingProxy.on` takes them, and which request of an operation gets which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profiles import THOROUGH
from proxy import CuttingProxy
from pyarrow.fs import AwsStandardS3RetryStrategy

TIMEOUT_SECONDS = 1.0
SHORT_TIMEOUT_SECONDS = 0.2
"""Where reply after reply is awaited in vain."""

FOR_EVER = 10**6
HANGS = 8
"""Requests in a row that get no reply, more than a call tries; then the server is gone. More would take long."""

_ERROR = {"action": "reply", "status": 500, "code": "InternalError"}
KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "error": (_ERROR, {**_ERROR, "times": FOR_EVER}, {**_ERROR, "status": 503, "code": "SlowDown"}),
    "no reply": (
        {"action": "cut reply"},
        {"action": "cut reply", "times": FOR_EVER},
        {"action": "reset"},
        {"action": "drop", "times": FOR_EVER},
    ),
    "hang": ({"action": "hang"}, {"action": "hang", "times": HANGS}),
    "half a body": (
        {"action": "cut reply in body"},
        {"action": "cut request in body", "times": FOR_EVER},
        {"action": "cut request in body"},
    ),
}
"""Faults of each kind: once, or from a request on."""


def turns(requests: int, *, seed: int, every: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield which request fails, and how: each in every way. Ordinarily one in `every`, but at least one of each kind.

    These are spread evenly over the requests, and the kinds take turns; `seed` tells where they begin.
    """
    if THOROUGH:
        for number in range(1, requests + 1):
            yield from ((number, fault) for faults in KINDS.values() for fault in faults)
        return
    kinds = list(KINDS.values())
    count = max(len(kinds), requests // every)
    for place in range(count):
        faults = kinds[(place + seed) % len(kinds)]
        yield (
            1 + (place * requests // count + seed) % requests,
            faults[(place // len(kinds) + seed) % len(faults)],
        )


def set_fault(proxy: CuttingProxy, number: int, fault: Mapping[str, Any]) -> None:
    """Let the request with this number fail, from 1."""
    proxy.clear()
    proxy.on(nth=number, **fault)
    if fault == KINDS["hang"][1]:
        proxy.on(nth=number + HANGS, action="drop", times=FOR_EVER)


def timeout_seconds(fault: Mapping[str, Any]) -> float:
    """Return how long a client waits for a reply."""
    return SHORT_TIMEOUT_SECONDS if fault == KINDS["hang"][1] else TIMEOUT_SECONDS


class FewTries(AwsStandardS3RetryStrategy):
    """How often pyarrow's requests for PyIceberg are tried: a fault that lasts is an error soon, without a clock."""

    def __init__(self) -> None:
        super().__init__(max_attempts=2)
