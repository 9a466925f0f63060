"""The small port through which planning, merging and committing see a table; every table format implements it.

A `TablePort` gives versions, a `Version` gives metadata, a `BlockIO` reads and writes blocks inside merge tasks, and
`TablePort.replace` commits. Implementations: `native/`; `iceberg/`; `folder/`, only for reading; in tests a
twin in memory.

A version has an id, a text that only its table format understands. Its parent is the version that it was committed on
top of. `public_id` is the id for people and programs: a whole number in the native format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import ConflictError
from tblctl.tableformat.model.block import Block
from tblctl.tableformat.model.cluster_key import Sort
from tblctl.tableformat.model.options import TableOptions
from tblctl.tableformat.model.record import BlockRecord
from tblctl.tableformat.model.schema.schema import Leaf, Schema
from tblctl.tableformat.model.snapshot import Summary
from tblctl.tableformat.model.statistics import BlockStatistics, Deletions
from tblctl.tableformat.progress import Progress

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

    from tblctl.tableformat.storage import Storage
    from tblctl.tableformat.workload.place import LogPlace


class BlocksReplacedError(ConflictError):
    """Blocks that a commit removes or relabels have left the table, or lost rows; `details["paths"]` lists them."""


class SortConflictError(ConflictError):
    """Sorts that a commit adds cannot become live in the newest version; `details["sorts"]` has the ids of all."""


@dataclass(frozen=True, kw_only=True)
class Label:
    """The properties of a block that may change without rewriting it."""

    level: int
    run_id: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Listing:
    """The blocks of a version as columns, one entry for each block.

    Attributes:
        paths: a string array.
        low, high: bounds of the keys by the sort asked for: columns "0", "1", .. one a key column. A null may be a null
            key, see `known`.
        own: the block is in the sort's order, and its bounds are the keys of its first and last row.
        measured: figures count the block; if false, it counts as unclustered. None: where `own` is true. Formats of
            other writers measure files of whose order nothing is known.
        sort_id: int64: the live sort in whose order the block is; `NO_SORT` for none.
        known: the bounds hold. If false, nothing is known of the keys.
        exact: the bounds are keys of rows: not truncated, and not combined from separate column bounds.
        level, stored_rows, size_bytes, decoded_bytes: int64; see `Block`.
        same_key_rows: int64: most rows of the block that any key has; -1 if unknown, or if bounds do not distinguish
            all its keys.
        matched: the block may hold rows that satisfy the condition; None without a condition.
        partition: int64: the place of each block's partition in `partitions`.
        partitions: the values of each partition as text, see `Block`; one empty text for a table without partitions.
        listed_twice: the table names the block several times: it is measured, and cannot be replaced. None: none is.
        inexact: bounds of a column that keys are made of may be wider than its values. None: where `exact` is false.
        run: int64: a number for the append or merge that wrote each block, -1 if unknown. None: not asked for.
        truncated_run: int64: the run of each block in the sort's order whose keys were truncated, by a number; -1 for
            others. Blocks of one run share at most end points, which their bounds no longer tell. None: no keys were.
    """

    paths: pa.Array
    low: pa.Table
    high: pa.Table
    own: np.ndarray
    sort_id: np.ndarray
    known: np.ndarray
    exact: np.ndarray
    level: np.ndarray
    stored_rows: np.ndarray
    size_bytes: np.ndarray
    decoded_bytes: np.ndarray
    same_key_rows: np.ndarray
    matched: np.ndarray | None
    measured: np.ndarray | None = None
    partition: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    partitions: tuple[str, ...] = ("",)
    listed_twice: np.ndarray | None = None
    inexact: np.ndarray | None = None
    run: np.ndarray | None = None
    truncated_run: np.ndarray | None = None

    def __post_init__(self) -> None:
        if len(self.partitions) == 1 and not self.partition.size:
            object.__setattr__(self, "partition", np.zeros(len(self.level), np.int64))


class Version(Protocol):
    """One version of a table."""

    @property
    def location(self) -> str:
        """The table, for people; without secrets."""

    @property
    def table_id(self) -> str:
        """The table's id. It differs from that of an earlier table at the same location."""

    @property
    def id(self) -> str:
        """The version's id, unique in the table."""

    @property
    def parent(self) -> str | None:
        """The id of the version that this one was committed on top of; None for the first."""

    @property
    def public_id(self) -> int | str:
        """The id for people, results and JSON."""

    @property
    def tags(self) -> Mapping[str, str]:
        """The ids of versions by tag, as of this version's commit."""

    @property
    def schema(self) -> Schema:
        """The columns."""

    @property
    def sort(self) -> Sort | None:
        """The cluster key; None without one."""

    @property
    def cluster_hint(self) -> str:
        """How a table gets a cluster key: a clause for errors."""

    @property
    def sorts(self) -> Mapping[int, Sort]:
        """The live sorts by id: the cluster key, and those that replacements added since it was given.

        A new cluster key, or none, ends those beside it; so does a change of a column that keys of one are made of.
        """

    @property
    def next_sort_id(self) -> int:
        """An id that no sort of the table ever had."""

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""

    def listing(
        self,
        sort: Sort,
        condition: BooleanExpression | None,
        *,
        clustered: bool = True,
        runs: bool = False,
        beside: Sort | None = None,
    ) -> Listing:
        """Return the blocks with their bounds by `sort`: from keys, or from column statistics if not `clustered`.

        With `runs`, also which run each block belongs to. Blocks in the order of `beside` are told from others, whether
        it is live or not. By `AS_LISTED` no bounds are known, and all blocks are its own that are in no other order.
        """

    def sort_by(self, terms: str, *, reads_rows: bool = True) -> Sort:
        """Return the sort by some terms: the live one, or else a new one, which a plan may bring.

        A new curve needs boundaries: some rows are read. Without `reads_rows` it gets none (`curve.has_boundaries`),
        and no block may be put into its order.

        Raises:
            InvalidKeyError: the terms are not valid; they are a curve, and there are no rows; or they are a new tree,
                and no rows may be read.
        """

    def may_add(self, sort: Sort) -> bool:
        """Return whether a plan may bring a sort that is not live: its id is not that of another one."""

    def deletions(self) -> Deletions | None:
        """Return which deletes apply to the blocks, in the order of `listing`; None if no rows can be marked deleted.

        Reads metadata that `listing` does not need.
        """

    def pruned(self, condition: BooleanExpression | None) -> Self:
        """Return the version without partitions in which no row can satisfy the condition, so that less is read.

        All blocks of the others are there. Without such partitions, the version is whole.
        """

    @property
    def is_pruned(self) -> bool:
        """Whether partitions were left out."""

    def statistics(self, leaves: Sequence[Leaf]) -> BlockStatistics:
        """Return statistics of columns in each block, in the order of `listing`."""

    def blocks(self, paths: Sequence[str]) -> dict[str, Block]:
        """Return the blocks at `paths` that are in this version, by path."""

    def is_ordered(self, block: Block, sort: Sort) -> bool:
        """Return whether the block's rows are in the order of `sort`."""


class BlockReader(Protocol):
    """An open block, read as the version's schema; a context manager. Row groups are numbered from 0.

    Deleted rows are left out, and row groups in which all rows are deleted. Rows come in read types. Calls of one
    reader must not overlap.
    """

    @property
    def group_rows(self) -> tuple[int, ...]:
        """Rows of each row group."""

    @property
    def group_bytes(self) -> tuple[int, ...]:
        """Approximate memory of each row group's rows."""

    @property
    def stored_bytes(self) -> tuple[int, ...]:
        """Bytes of each row group in the file. Reading it piece by piece holds these besides the piece."""

    @property
    def copyable(self) -> frozenset[int]:
        """Row groups that `BlockBuilder.copy` takes, if `BlockIO.can_copy` allows it for the block."""

    @property
    def codable(self) -> frozenset[int]:
        """Text columns, by id, with few distinct values in the block; none if the table format does not know."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def keys(self, groups: Sequence[int], sort: Sort) -> pa.Table:
        """Return the keys of the rows of some row groups: columns "0", "1", .. one a key column.

        Reads only the columns that these are made of.
        """

    def will_need(self, groups: Sequence[int]) -> int:
        """Begin to fetch the bytes that `rows` or `batches` will need of some row groups, and return at once.

        Returns the bytes that are held until all of them have been read; 0 if reading does not wait for a network.
        """

    def rows(self, groups: Sequence[int]) -> pa.Table:
        """Return all columns of some row groups."""

    def batches(self, group: int, most_rows: int) -> Iterator[pa.Table]:
        """Yield the rows of one row group in pieces of at most `most_rows`."""


class BlockBuilder(Protocol):
    """Builds a block from rows, or several blocks if one would exceed `block_bytes`."""

    @property
    def stored_bytes(self) -> int:
        """Bytes on storage of the rows that were appended so far, as far as they are known."""

    def adding(self, rows: pa.Table, groups: Sequence[int]) -> Callable[[], None]:
        """Prepare rows ahead of their turn; return a function that appends them.

        Args:
            rows: in read types, the schema's columns, in key order.
            groups: the number of rows of each row group to write.
        """

    def copy(self, block: Block, groups: Sequence[int]) -> None:
        """Append copyable row groups of a block as they are stored. Their keys must follow the last row's.

        Raises:
            CorruptTableError: the block is missing or damaged; `details["name"]` is its path.
        """

    def finish(self) -> tuple[BlockRecord, ...]:
        """Store the added rows; return the stored blocks."""

    def discard(self) -> None:
        """Delete the stored blocks, as far as possible; never raises."""


class BlockIO(Protocol):
    """Reads and writes the blocks of one version. Pickles into tasks, secrets included: never show or log that."""

    @property
    def env(self) -> Environment:
        """Clocks and names."""

    @property
    def schema(self) -> Schema:
        """The columns that are read and written."""

    @property
    def options(self) -> TableOptions:
        """How blocks are written."""

    @property
    def file_bytes(self) -> int | None:
        """Bytes on storage that a block should have; None if `options` decide, by rows and bytes in memory.

        A task then ends blocks by what it has written, and a builder writes one block, however large.
        """

    @property
    def opens(self) -> int:
        """How many blocks to open at once: more than one if opening waits for a network."""

    def renew(self) -> bool:
        """Ask for fresh credentials of the storage; return whether there are any: others do not expire.

        Raises:
            TblctlError: whoever hands them out cannot be asked.
        """

    def live(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """Return blocks without their deleted rows. Reads their deletes, if the table format has any.

        Raises:
            CorruptTableError: deletes are missing or damaged.
        """

    def can_copy(self, block: Block) -> bool:
        """Return whether row groups of a block may be copied undecoded: not with deletes, or from a foreign file."""

    def open(self, block: Block, *, coded: Collection[int] = ()) -> BlockReader:
        """Open a block that `live` returned.

        Args:
            block: the block.
            coded: ids of columns to return as Arrow dictionaries, if they are in `BlockReader.codable`.

        Raises:
            CorruptTableError: the block is missing or damaged; `details["name"]` is its path.
        """

    def build(
        self, *, sort: Sort | None, level: int, run_id: str | None, partition: str = ""
    ) -> BlockBuilder:
        """Begin a block of a partition. Its rows come in the order of `sort`.

        A block that is constant and full gets level -1 instead.
        """

    def discard(self, paths: Sequence[str]) -> None:
        """Delete written blocks that are certainly not committed, as far as possible; never raises."""


@dataclass(frozen=True, kw_only=True)
class VersionEntry:
    """A version in the history, readable or not.

    Attributes:
        id, parent, public_id: as in `Version`.
        timestamp_ms: when it was committed: milliseconds since 1970-01-01 UTC.
        summary: what the commit did.
        is_readable: false once its metadata expired.
        tags: the tags that it has now.
        cluster_by: the terms of its cluster key; None if only the summary is left.
        options: how its blocks are written; None if only the summary is left.
    """

    id: str
    parent: str | None
    public_id: int | str
    timestamp_ms: int
    summary: Summary
    is_readable: bool
    tags: tuple[str, ...]
    cluster_by: tuple[str, ...] | None
    options: TableOptions | None


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """The versions and objects that a garbage collection deleted, or a dry run would delete; oldest first.

    `note` says why no version expired though it was asked for; empty if nobody has to be told.
    """

    versions: tuple[int | str, ...]
    objects: tuple[str, ...]
    size_bytes: int
    note: str = ""


MOST_PROBLEMS = 1000
"""Most listed problems of a table: one that lost a folder has one for each block."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The counts and problems of a check. Each problem names its object."""

    snapshots: int
    segments: int
    blocks: int
    rows: int
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A change of a table's blocks by a recluster: the rows stay the same.

    Attributes:
        removed: paths of the removed blocks.
        added: the new blocks.
        relabelled: new labels of blocks that stay, by path.
        sorts: the sorts of added blocks. They become live with the commit if they are not yet.
        detail: JSON for the snapshot's summary: short, since every reader of the table reads it.
        record: JSON of any length, kept beside the snapshot and for a while longer; None for none.
    """

    removed: frozenset[str]
    added: tuple[BlockRecord, ...]
    relabelled: Mapping[str, Label] = field(default_factory=dict)
    sorts: tuple[Sort, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] | None = None


VersionT = TypeVar("VersionT", bound=Version)


class TablePort(Protocol[VersionT]):
    """A table. All its versions are of one type. Pickles, secrets included.

    Methods take `newest` from callers that have just called `newest()`, to avoid a second look-up.
    """

    env: Environment

    @property
    def location(self) -> str:
        """The table, for people; without secrets."""

    def newest(self) -> VersionT:
        """Return the newest version."""

    def version(self, id: str, *, newest: VersionT | None = None) -> VersionT:
        """Return the version of an id.

        Raises:
            SnapshotNotFoundError: the version never existed, or can no longer be read.
        """

    def version_at(self, timestamp_ms: int, *, newest: VersionT | None = None) -> VersionT:
        """Return the version that was the newest one at a time, in milliseconds since 1970-01-01 UTC.

        Raises:
            SnapshotNotFoundError: the table is younger, or that version can no longer be read.
        """

    def parse_id(self, text: str) -> str | None:
        """Return the id of the version whose `public_id` has the text `text`; None if the text cannot be one."""

    def ever_had(self, id: str, *, newest: VersionT) -> bool:
        """Return whether there is a version of an id, or was; true as well where the table may have forgotten it."""

    def ever_had_sort(self, number: int, *, newest: VersionT) -> bool:
        """Return whether a sort of an id is live, or was; true as well where the table may have forgotten it."""

    def entry(self, version: VersionT, *, newest: VersionT | None = None) -> VersionEntry:
        """Return a version's entry in the history."""

    def history(self, limit: int | None = None, *, start: VersionT | None = None) -> Iterator[VersionEntry]:
        """Yield at most `limit` versions, newest first, from `start` on; None for the newest."""

    def known_history(self, version: VersionT) -> Iterator[VersionEntry]:
        """Yield the versions from `version` on, newest first, as far as its own metadata tells of them: no request."""

    def block_io(self, version: VersionT) -> BlockIO:
        """Return the `BlockIO` of merge tasks for this version."""

    def replace(self, base: VersionT, replacement: Replacement) -> VersionT:
        """Commit on top of the newest version. Rows that others added since `base` stay.

        Raises:
            CommitOutcomeUnknownError: it is unknown whether the commit happened.
            BlocksReplacedError: a block to be removed or relabelled has left the table.
            SortConflictError: an added sort is not live, and cannot become so: its id is another sort's, it has ended,
                the cluster key is another than that of `base`, or a column of it was dropped or changed.
            ConflictError: what others did since, such as a rollback to another schema, stands against it.
            TblctlError: anything else. As with all but the first, nothing was committed.
        """

    def gone(self, base: VersionT, newest: VersionT, paths: Collection[str]) -> frozenset[str]:
        """Return which blocks of `base` at `paths` are not in `newest`. Reads only the metadata that is new since.

        Raises:
            CorruptTableError: metadata is damaged, or `newest` expired meanwhile.
            StorageError: it cannot be read.
        """

    def plan_storage(self, place: str | None) -> Storage:
        """Return where pending plans of the table are kept: at `place`, a path or URL, or where the table says.

        Raises:
            InvalidOptionError: neither says where.
        """

    def log_place(self) -> LogPlace:
        """Return where the table's queries are recorded.

        Raises:
            InvalidOptionError: nothing is recorded of such tables.
        """

    def collect_garbage(self, *, keep: int, older_than_seconds: float, dry_run: bool) -> Garbage:
        """Expire all versions except the newest `keep` and tagged ones, and delete objects that nothing names any more.

        Args:
            keep: at least 1.
            older_than_seconds: younger objects stay.
            dry_run: change nothing.
        """

    def check(self, *, deep: bool, progress: Progress | None) -> Checked:
        """Verify the table's metadata, and with `deep` its data. Changes nothing."""
