"""What keeping a table at a depth costs a day: how much arrives, times how often the policy rewrites it.

1. **Arrivals.** Bytes and commits that added rows, from the summaries of the table's own history in the last days.
2. **Write amplification.** The policy itself keeps a simulated table at the depth (`selector/simulate.py`) while 64
   appends of the table's usual size arrive: rows rewritten for each row that arrived, over the second half of them, as
   the first ones meet an empty table.
3. **Price.** The bytes rewritten a day, at the table's rates (`maintain/experience.py`) and the prices given.

The simulation spreads the keys of every append evenly over the whole table, the worst of usual arrivals. Where keys
follow time, policies rewrite about 0.4 as much at the same depth: on traces of 256 appends `levels` rewrites 2.65 rows
for each that arrives in the place of 6.19 at depth 4. So the estimate may be 150 % too high there. A policy that works
by levels rewrites rows once more whenever the table doubles: a table of 1,000 appends takes four levels more than the
simulated one, so the estimate may be 40 % too low there. What reclusters wrote in the same days is shown beside it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tblctl.maintain.experience import rates_of
from tblctl.maintain.request import require_key
from tblctl.policies import policy_of
from tblctl.selector.budget import Budget
from tblctl.selector.pricing.price import cost_of
from tblctl.selector.pricing.rates import Rates
from tblctl.selector.simulate import SimulatedTable
from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.snapshot import RECLUSTER
from tblctl.tableformat.port import TablePort, VersionEntry

if TYPE_CHECKING:
    from tblctl.selector.policy import Policy

DAY_SECONDS = 86_400
DEFAULT_DAYS = 30
DEFAULT_DEPTH = 4.0

MOST_VERSIONS = 10_000
"""Versions that are looked at: a commit every four minutes for 30 days."""

_APPENDS, _BLOCK_ROWS, _MOST_BLOCKS = 64, 16, 4
"""Of the simulation: appends, rows of a full block, and the most blocks of an append."""

_GOLDEN, _KEYS = 0x9E3779B1, 2**32
"""Multiples of the golden ratio's share of the keys fill them evenly, however many there are (Knuth 6.4)."""

_DECODED_SHARE = 7.3
"""Bytes of decoded rows for each stored one, as lineitem has (`pricing/rates.py`)."""

ASSUMPTIONS = (
    "keys of every append are spread evenly over the whole table; where they follow time it is about 0.4 of this",
    "the table is as large as 64 appends, and reclustered after each; a larger one is rewritten more often",
    "arrivals go on as in the days looked at; deletes and updates are left out",
)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What keeping a target depth costs a day.

    Attributes:
        policy, target_depth: what keeps the table in order, and how well.
        days: how many days of history there are, up to those asked for.
        appends: commits in them that added bytes.
        bytes_per_day: of files that arrived.
        write_amplification: rows rewritten for each row that arrives, simulated; None if nothing arrived.
        simulated_depth: the average depth that the simulation kept.
        rewritten_bytes_per_day: of files read to be merged; about as many are written.
        seconds_per_day: of merging.
        cost_per_day: in the money of the prices given; None without a price.
        measured_amplification: bytes that reclusters wrote for each that arrived, in the days looked at.
        measured_runs: how many runs of the table the seconds rest on; 0 for the stated defaults.
        assumptions: what has to hold, for people.
    """

    policy: str
    target_depth: float
    days: float
    appends: int
    bytes_per_day: int
    write_amplification: float | None
    simulated_depth: float | None
    rewritten_bytes_per_day: int
    seconds_per_day: float
    cost_per_day: float | None
    measured_amplification: float | None
    measured_runs: int
    assumptions: tuple[str, ...] = ASSUMPTIONS

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        return {**asdict(self), "assumptions": list(self.assumptions)}


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """What came to a table: the bytes of each commit that added some, what reclusters wrote, and in how many days."""

    days: float
    sizes_bytes: tuple[int, ...]
    reclustered_bytes: int

    @property
    def bytes_per_day(self) -> float:
        """Bytes that arrived a day."""
        return sum(self.sizes_bytes) / self.days if self.days else 0.0


def estimate(
    port: TablePort[Any],
    *,
    days: float,
    target_depth: float,
    policy: str | Policy | None,
    price_per_gib: float | None,
    price_per_hour: float | None,
) -> Estimate:
    """Return what keeping a depth costs a day.

    Raises:
        InvalidOptionError: a number is not positive, or there is no such policy.
        InvalidKeyError: the table has no cluster key, and the policy needs one.
    """
    given: Any = days
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise InvalidOptionError(f"days is {days!r}, expected a number above 0")
    prices = Budget(target_depth=target_depth, price_per_gib=price_per_gib, price_per_hour=price_per_hour)
    version = port.newest()
    chosen = policy_of(version.options.recluster_policy if policy is None else policy)
    require_key(version, chosen)
    now_ms = int(port.env.now() * 1000)
    found = arrivals(itertools.islice(port.history(start=version), MOST_VERSIONS), now_ms=now_ms, days=days)
    newest = port.entry(version, newest=version).summary
    row_bytes = newest.data_bytes / newest.rows if newest.data_bytes and newest.rows else 0.0
    simulated = None
    if found.sizes_bytes:
        rows = append_rows(found.sizes_bytes, full_bytes=row_bytes * version.options.block_rows)
        simulated = simulate(chosen, rows, target_depth)
    return _estimate(chosen.name, prices, found, simulated, rates_of(port, version))


def _estimate(
    policy: str, prices: Budget, found: Arrivals, simulated: tuple[float, float] | None, rates: Rates
) -> Estimate:
    amplification, depth = (None, None) if simulated is None else simulated
    rewritten = found.bytes_per_day * (amplification or 0.0)
    written = rewritten * rates.written_factor
    seconds = rates.byte_seconds(
        memory_bytes=_DECODED_SHARE * rewritten, encoded_bytes=written, copied_bytes=0
    )
    seconds += rates.fixed_seconds(
        groups=len(found.sizes_bytes) / found.days if rewritten else 0.0, requests=0
    )
    arrived = sum(found.sizes_bytes)
    return Estimate(
        policy=policy,
        target_depth=DEFAULT_DEPTH if prices.target_depth is None else float(prices.target_depth),
        days=found.days,
        appends=len(found.sizes_bytes),
        bytes_per_day=round(found.bytes_per_day),
        write_amplification=amplification,
        simulated_depth=depth,
        rewritten_bytes_per_day=round(rewritten),
        seconds_per_day=seconds,
        cost_per_day=cost_of(
            rewritten, seconds, price_per_gib=prices.price_per_gib, price_per_hour=prices.price_per_hour
        ),
        measured_amplification=found.reclustered_bytes / arrived if arrived else None,
        measured_runs=rates.runs,
    )


def arrivals(entries: Iterable[VersionEntry], *, now_ms: int, days: float) -> Arrivals:
    """Return what arrived in the last days, or since the table began; `entries` come newest first.

    Commits of a recluster bring nothing new. What a delete or update writes again counts as arrived.
    """
    begin_ms = now_ms - days * DAY_SECONDS * 1000
    sizes: list[int] = []
    reclustered = 0
    since_ms = now_ms
    for entry in entries:
        if entry.timestamp_ms < begin_ms:
            since_ms = int(begin_ms)
            break
        since_ms = min(since_ms, entry.timestamp_ms)
        if entry.summary.operation == RECLUSTER:
            reclustered += entry.summary.bytes_added
        elif entry.summary.bytes_added > 0:
            sizes.append(entry.summary.bytes_added)
    spanned = max(now_ms - since_ms, 1) / 1000 / DAY_SECONDS
    return Arrivals(days=spanned, sizes_bytes=tuple(reversed(sizes)), reclustered_bytes=reclustered)


def append_rows(sizes_bytes: Sequence[int], *, full_bytes: float) -> int:
    """Return the rows of a simulated append: as many full blocks, or as much of one, as the median of real ones."""
    if not full_bytes:
        return _BLOCK_ROWS
    blocks = statistics.median(sizes_bytes) / full_bytes
    return round(min(max(blocks * _BLOCK_ROWS, 2), _MOST_BLOCKS * _BLOCK_ROWS))


def simulate(policy: Policy, rows: int, target_depth: float) -> tuple[float, float]:
    """Return the rows rewritten for each row that arrives, and the average depth, while a policy keeps a depth.

    Nothing in it is random: the same arguments give the same figures.
    """
    table = SimulatedTable(block_rows=_BLOCK_ROWS)
    options = {"threshold": 1, "target_depth": target_depth}
    rewritten, depths, number = 0, [], itertools.count(1)
    for place in range(_APPENDS):
        keys = sorted(next(number) * _GOLDEN % _KEYS for _ in range(rows))
        table.append(*(keys[start : start + _BLOCK_ROWS] for start in range(0, rows, _BLOCK_ROWS)))
        merged = sum(group.rows for plan in table.rounds(policy, **options) for group in plan.groups)
        if place >= _APPENDS // 2:
            rewritten += merged
            depths.append(table.depth)
    return rewritten / (rows * (_APPENDS - _APPENDS // 2)), statistics.mean(depths)
