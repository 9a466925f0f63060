"""The price of a group and of a plan: values, as plans and outcomes have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GIB = 2**30
HOUR_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a merge is expected to take.

    Attributes:
        blocks, rows: to merge.
        bytes_read: of files that are read, copied ones among them.
        bytes_copied: of row groups that are copied undecoded. The others, `bytes_decoded`, are decoded.
        bytes_written: of files that are written, copied row groups among them.
        memory_bytes: of the rows that are decoded, as Arrow arrays.
        requests: to the storage, without about a dozen for the commit.
        seconds: of the whole merge.
        cost: in the money of the prices asked with; None without a price.
        suggested_bytes: the bytes to copy that bounds of blocks suggest, before the table's own runs correct them.

    Raises:
        ValueError: at construction: a figure is below 0, or more is copied than read.
    """

    blocks: int
    rows: int
    bytes_read: int
    bytes_copied: int
    bytes_written: int
    memory_bytes: int
    requests: int
    seconds: float
    cost: float | None
    suggested_bytes: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}, expected at least 0")
        if self.bytes_copied > self.bytes_read:
            raise ValueError(f"bytes_copied is {self.bytes_copied}, more than bytes_read, {self.bytes_read}")

    @property
    def bytes_decoded(self) -> int:
        """Bytes of files whose rows are decoded."""
        return self.bytes_read - self.bytes_copied


def total_price(prices: Iterable[Price]) -> Price:
    """Return the sum of the prices of groups. Its cost is None if that of one is."""
    found = list(prices)

    def total(name: str) -> int:
        return sum(getattr(item, name) for item in found)

    costs = [item.cost for item in found]
    return Price(
        blocks=total("blocks"),
        rows=total("rows"),
        bytes_read=total("bytes_read"),
        bytes_copied=total("bytes_copied"),
        bytes_written=total("bytes_written"),
        memory_bytes=total("memory_bytes"),
        requests=total("requests"),
        seconds=float(sum(item.seconds for item in found)),
        cost=None if None in costs or not costs else float(sum(cost for cost in costs if cost is not None)),
        suggested_bytes=total("suggested_bytes"),
    )


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a plan costs and brings.

    Attributes:
        total: of all groups.
        point_query_bytes_before, point_query_bytes_after: of files that a query of one key reads, now and as predicted:
            the average depth times the average size of a block. None where the depth is not known.
        payback_queries: after so many queries of one key they have read as much less as the plan reads and writes; None
            if they read no less.
        measured_runs: how many runs of the table the rates rest on; 0 for the stated defaults (`pricing/rates.py`).

    Raises:
        ValueError: at construction: a figure is below 0.
    """

    total: Price
    point_query_bytes_before: int | None
    point_query_bytes_after: int | None
    payback_queries: int | None
    measured_runs: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{name} is {value}, expected at least 0")


def cost_of(
    size_bytes: float, seconds: float, *, price_per_gib: float | None, price_per_hour: float | None
) -> float | None:
    """Return the money for bytes of files that are read, and for seconds; None without a price."""
    if price_per_gib is None and price_per_hour is None:
        return None
    return size_bytes / GIB * (price_per_gib or 0.0) + seconds / HOUR_SECONDS * (price_per_hour or 0.0)
