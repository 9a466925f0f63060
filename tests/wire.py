"""Faults at requests to S3, as `proxy.CuttingProxy.on` takes them, and which request of an operation gets which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from profiles import THOROUGH
from pyarrow.fs import AwsStandardS3RetryStrategy

TIMEOUT_SECONDS = 1.0
PASSING: tuple[dict[str, Any], ...] = (
    {"action": "reply", "status": 500, "code": "InternalError"},
    {"action": "cut reply"},
    {"action": "cut reply in body"},
    {"action": "cut request in body"},
    {"action": "reply", "status": 503, "code": "SlowDown"},
    {"action": "hang"},
    {"action": "reset"},
)
FOR_EVER = 10**6
LASTING: tuple[dict[str, Any], ...] = (
    {"action": "cut reply", "times": FOR_EVER},
    {"action": "drop", "times": FOR_EVER},
    {"action": "reply", "status": 500, "code": "InternalError", "times": FOR_EVER},
    {"action": "cut request in body", "times": FOR_EVER},
)
FAULTS = (*PASSING, *LASTING)


def turns(requests: int, *, seed: int, every: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield which request fails, and how: each in every way, or `every`-th ones, each in another way."""
    for number in range(1, requests + 1):
        if THOROUGH:
            yield from ((number, fault) for fault in FAULTS)
        elif (number + seed) % every == 0:
            yield number, FAULTS[(number // every + seed) % len(FAULTS)]


class FewTries(AwsStandardS3RetryStrategy):
    """How often pyarrow's requests for PyIceberg are tried: a fault that lasts is an error soon, without a clock."""

    def __init__(self) -> None:
        super().__init__(max_attempts=2)
