"""Row groups that a merge copies undecoded, blocks that it does not rewrite, and write profiles.

The data is TPC-H lineitem as it arrives by time: sorted by the key and cut into full blocks, but with the rows around
each cut on either side at random. In a second table only one cut is like this, and the others are where a key ends. The
floor is decode + encode of the same files on two processes. Ours is timed from plan to commit, verification and the
flush to disk included. All cases run in every round. Ratios are those of one round, and the result is their median. The
output of every run is checked.

    python -m benchmarks.copy --rounds 3 --blocks 20
    python -m benchmarks.copy --scale 10 --blocks 100 --rounds 1      60 million rows; takes 16 GB of memory
"""

from __future__ import annotations

import argparse
import functools
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tblctl
from benchmarks.common import Pairs, Report, Timed, in_turn, lineitem, main, scratch, timed
from benchmarks.merging.contender import KEY, Check, Job
from benchmarks.merging.ours import Floor, Local
from tblctl.selector.draft import worth_merging
from tblctl.tableformat.model.options import PROFILES

SHARE = 0.1
MOST_OF_FLOOR = 0.4


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="1", help="TPC-H's scale factor")
    parser.add_argument(
        "--blocks", type=int, default=10, help="that the input is cut into; 8 become 9 by their bytes"
    )
    parser.add_argument("--rounds", type=int, default=5, help="that count, after one that does not")


def measure(report: Report, tiny: bool, *, scale: str, blocks: int, rounds: int) -> None:
    scale, rounds = ("0.001", 1) if tiny else (scale, rounds)
    row_group_rows = 64 if tiny else tblctl.TableOptions().row_group_rows
    with scratch() as folder:
        job = make_job(folder / "input", scale, blocks, row_group_rows, cuts=range(1, blocks))
        check = Check(job)
        rows = sum(pq.read_metadata(file).num_rows for file in job.files)
        report.line(
            f"{rows:,} rows of lineitem in {blocks} blocks, neighbours share {SHARE:.0%} of their range of "
            f"{KEY}, zstd 1, row groups of {row_group_rows:,} rows; {rounds} rounds"
        )
        copying, decoding = (Local(job, place(folder, name)) for name in ("copying", "decoding"))
        none = mock.patch("tblctl.merger.task.order.plan_copies", return_value=())
        floor = checked(Floor(job, place(folder, "floor")), check, "the floor", ordered=False)
        seconds = compare(
            report,
            "merge",
            {
                "floor: decode + encode, two processes": floor,
                "tblctl": checked(copying, check, "ours"),
                "tblctl, without copying row groups": checked(decoding, check, "ours without copying", none),
            },
            rounds,
        )
        report.figure(
            "tblctl / floor", Pairs(ours=seconds[1], baseline=seconds[0]).cost, "x", most=MOST_OF_FLOOR
        )
        report.figure("without copying / floor", Pairs(ours=seconds[2], baseline=seconds[0]).cost, "x")
        report.figure("with copying / without", Pairs(ours=seconds[1], baseline=seconds[2]).cost, "x")
        report.figure("rows that were copied", 100 * share_copied(copying), "%")
        sizes = [
            sum(Path(file).stat().st_size for file in one.output()) / 2**20 for one in (copying, decoding)
        ]
        report.figure("bytes of the output", sizes[0], "MiB")
        report.figure("bytes of the output, without copying", sizes[1], "MiB")
        compare_passing(
            report,
            folder,
            rounds,
            make_job(folder / "apart", scale, blocks, row_group_rows, cuts=[blocks // 2]),
        )
        compare_profiles(report, job, folder, rounds)


def compare(report: Report, part: str, cases: Mapping[str, Timed], rounds: int) -> list[tuple[float, ...]]:
    """Run cases in turn; write and return their times."""
    seconds = in_turn(list(cases.values()), runs=rounds)
    report.begin(part)
    for title, found in zip(cases, seconds, strict=True):
        report.seconds(title, found)
    return seconds


def compare_passing(report: Report, folder: Path, rounds: int, job: Job) -> None:
    """Sort a table in which only two blocks overlap."""
    check = Check(job)
    passing, all_merged = (Local(job, place(folder, name)) for name in ("passing", "all merged"))
    passing.merged_blocks = 2
    everything = mock.patch("tblctl.selector.policies.full.worth_sorting", worth_merging)
    floor = checked(Floor(job, place(folder, "floor of all")), check, "the floor", ordered=False)
    seconds = compare(
        report,
        "sort of everything: two blocks overlap each other, the others nothing",
        {
            "floor: decode + encode all, two processes": floor,
            "tblctl": checked(passing, check, "ours"),
            "tblctl, no block passing through": checked(
                all_merged, check, "ours with all blocks merged", everything
            ),
        },
        rounds,
    )
    report.figure("tblctl / floor", Pairs(ours=seconds[1], baseline=seconds[0]).cost, "x")
    report.figure("no block passing through / floor", Pairs(ours=seconds[2], baseline=seconds[0]).cost, "x")
    for title, one in (("tblctl", passing), ("no block passing through", all_merged)):
        report.figure(f"bytes written, {title}", one.outcome.bytes_written / 2**20, "MiB")


def compare_profiles(report: Report, job: Job, folder: Path, rounds: int) -> None:
    """Write what the settings of `write.profile` cost an append and a scan, on one block."""
    report.begin("profiles: one block")
    profiles: dict[str, dict[str, str]] = {
        "as by default": {},
        **{name: {"write.profile": name} for name in PROFILES},
    }
    made: dict[str, tblctl.Table] = {}

    def append(name: str) -> None:
        path = folder / f"profile {name}"
        shutil.rmtree(path, ignore_errors=True)
        options = {"row_group_rows": job.row_group_rows, **profiles[name]}
        made[name] = tblctl.create(path, tblctl.read_schema(job.files[0]), cluster_by=KEY, options=options)
        made[name].append(job.files[0])

    appends = in_turn([timed(functools.partial(append, name)) for name in profiles], runs=rounds)
    scans = in_turn([timed(made[name].scan().to_arrow) for name in profiles], runs=rounds)
    for name, written, read in zip(profiles, appends, scans, strict=True):
        report.seconds(f"append, {name}", written)
        report.seconds(f"scan, {name}", read)
        report.figure(f"bytes, {name}", made[name].snapshot.bytes / 2**20, "MiB")


def place(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def make_job(folder: Path, scale: str, blocks: int, row_group_rows: int, *, cuts: Sequence[int]) -> Job:
    """Cut lineitem into blocks by the key. Rows around some of the cuts go to either side at random."""
    folder.mkdir()
    source = lineitem(scale)
    schema = pq.read_schema(source)
    plain = [item.with_type(pa.string()) if pa.types.is_string_view(item.type) else item for item in schema]
    rows = pq.read_table(source, schema=pa.schema(plain))
    order = np.asarray(pc.sort_indices(rows[KEY]))
    size = -(-rows.num_rows // blocks)
    number = np.empty(rows.num_rows, np.int32)
    number[order] = block_numbers(np.asarray(rows[KEY])[order], size, blocks, cuts)
    files = []
    for block in range(blocks):
        files.append(str(folder / f"{block:04}.parquet"))
        pq.write_table(
            rows.filter(pa.array(number == block)).sort_by(KEY).combine_chunks(),
            files[-1],
            compression="zstd",
            compression_level=1,
            row_group_size=row_group_rows,
        )
    return Job(
        files=tuple(files),
        block_rows=size + size // 20,  # a block may have a few more than the others
        output_files=blocks,
        row_group_rows=row_group_rows,
        is_sorted=True,
    )


def block_numbers(keys: np.ndarray, size: int, blocks: int, cuts: Sequence[int]) -> np.ndarray:
    """Return the block of each row. It is random near one of `cuts`; elsewhere all rows of a key share a block."""
    place = np.arange(keys.size) / size
    chance = np.random.default_rng(7).uniform(-SHARE / 2, SHARE / 2, keys.size)
    near = np.isin(np.round(place), cuts) & (np.abs(place - np.round(place)) <= SHARE / 2)
    number = np.where(near, place + chance, np.searchsorted(keys, keys) / size)
    return np.clip(np.floor(number), 0, blocks - 1)


def checked(
    contender: Floor | Local,
    check: Check,
    title: str,
    around: AbstractContextManager[object] | None = None,
    *,
    ordered: bool = True,
) -> Timed:
    def run() -> float:
        contender.reset()
        with around or nullcontext():
            seconds = timed(contender.run)()
        check.require_equal(title, list(contender.output()), ordered=ordered)
        return seconds

    return run


def share_copied(local: Local) -> float:
    """Return the share of rows that the last run copied."""
    (group,) = local.outcome.groups
    return group.rows_copied / group.rows


if __name__ == "__main__":
    main("copy", measure, options)
