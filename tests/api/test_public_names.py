"""The names that programs and scripts rely on: of `tblctl`, its signatures, the fields of results, the command's flags.

A name is added to the lists when it is added to the package. Removing a name breaks a user's program.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

import click
import pytest

import tblctl
from tblctl import policies
from tblctl.cli.main import COMMANDS, application
from tblctl.maintain import recluster as loop

NAMES = {
    "tblctl": """
        Bill BlockInfo BlockScan BoxDepth BoxFigures Candidate CheckReport ClusteringFigures ClusteringInfo
        ColumnUse DeepRange DeltaTable DepthFigures DepthPoint Estimate ExportOutcome Gain GcOutcome GroupOutcome
        HotRange IcebergTable ImportedLog ImportOutcome KeyChoice LayoutEstimate Layouts MeasuredVersion
        OPTION_DOCS Outcome ParquetFolder PendingPlan Plan Price Progress Query RangeShare RealisedSaving
        Scan ScanExplanation ScanReport ScheduledPlan SelectOptions SnapshotInfo Statement Suggestion SurveyedTable
        Table TableOptions UseOverTime WatchedRound Workload WorkloadReport WriteOutcome
        create drop errors execute exists find_tables from_iceberg import_parquet open parse_duration parse_schema
        parse_size parse_statement read_schema spark spark_session survey type_from_text type_to_text watch
    """,
    "tblctl.errors": """
        AccessDeniedError ClockError CommitOutcomeUnknownError ConflictError CorruptTableError EngineError
        InputError InternalError InvalidDataError InvalidKeyError InvalidOptionError InvalidPredicateError
        InvalidSchemaError InvalidStatementError ObjectNotFoundError SchemaMismatchError SnapshotNotFoundError
        StorageError TableExistsError TableNotFoundError TblctlError UnknownColumnError UnsupportedBackendError
        UnsupportedFormatError UnsupportedTypeError
    """,
    "tblctl.policies": """
        Alternative Budget DEFAULT_POLICY Decision Draft Flag Option Policy PolicyInfo Rates Rejection Rng Room Sort
        State TableView Term Workload budget_options flags listed next_level option policy_of register rejection
        summaries unregister worth_merging
    """,
    "tblctl.maintain.recluster": """
        Committed Done Idle LoopState ReclusterJob Retry Step Totals Waits outcome_of recluster state_of step
    """,
    "Statement": "final if_exists is_location location name parts where where_position",
    "IcebergTable": "cluster_by location options schema snapshot",
    "ParquetFolder": "cluster_by folder_columns location options schema snapshot",
    "DeltaTable": "cluster_by folder_columns location options schema snapshot",
    "Gain": """
        bytes_to_rewrite cluster_by files is_worth_it key_reads_clustered key_reads_now range_reads_clustered
        range_reads_now
    """,
    "Table": "cluster_by location options schema snapshot",
    "PendingPlan": """
        blocks bytes claimed created expires groups id is_expired policy problem rows snapshot
    """,
    "ScheduledPlan": "expires id plan",
    "Scan": "schema snapshot",
    "WriteOutcome": """
        attempts blocks_added blocks_removed bytes_added note operation recluster rows_added rows_removed
        seconds snapshot
    """,
    "ImportOutcome": """
        blocks_added bytes_added bytes_read commits files_changed files_known files_taken is_new location note
        recluster rows_added seconds snapshot
    """,
    "ExportOutcome": "bytes files location rows seconds snapshot",
    "SnapshotInfo": """
        blocks blocks_added blocks_removed bytes bytes_added cluster_by detail operation options readable rows
        rows_added rows_removed sequence tags timestamp
    """,
    "BlockInfo": """
        bytes cluster_key_id decoded_bytes level max min path rows run uncompressed_bytes
    """,
    "ScanExplanation": """
        blocks_pruned blocks_read blocks_total blocks_whole bytes_to_read bytes_total columns rows_total
        segments_pruned segments_total snapshot where
    """,
    "ScanReport": """
        blocks blocks_pruned blocks_read blocks_total columns complete cpu_seconds io_seconds rows seconds
        snapshot table where
    """,
    "BlockScan": """
        bytes_matched column_bytes cpu_seconds io_seconds path rows_matched rows_read
    """,
    "ClusteringInfo": """
        average_depth average_overlaps block_depth_histogram boxes bytes cluster_by_keys constant_block_count depth
        depth_buckets inexact_block_count is_mostly_unclustered levels live_sorts outside rows total_block_count
        unclustered_block_count unclustered_share unknown_block_count worst
    """,
    "ClusteringFigures": """
        average_depth average_overlaps block_depth_histogram bytes constant_block_count depth depth_buckets
        is_mostly_unclustered rows total_block_count unclustered_block_count unclustered_share unknown_block_count
    """,
    "DepthFigures": "max p50 p95 p99",
    "BoxFigures": "columns depth reads selectivity total_block_count unknown_block_count",
    "BoxDepth": "max mean p99 sampled standard_error",
    "RangeShare": "best columns share",
    "DeepRange": "blocks bytes depth max min partition rows",
    "DepthPoint": """
        average_depth average_overlaps blocks operation rows snapshot source timestamp
    """,
    "MeasuredVersion": "info snapshot",
    "SurveyedTable": "blocks bytes error info location rows",
    "Suggestion": """
        candidates cluster_by estimate_step layouts predicates queries rejected snapshot total_block_count
    """,
    "WorkloadReport": """
        blocks_needed blocks_read blocks_total columns damaged_lines drift dropped files first_time last_time
        other_files over_time query_count rows_matched_share snapshot sources unreadable weight without_condition
        workload
    """,
    "RealisedSaving": """
        after_seconds before_seconds note paid_back policy queries saved_seconds snapshot spent_seconds timestamp unused
    """,
    "KeyChoice": "after_seconds before_seconds changes cluster_by present queries rewrite_seconds why",
    "ColumnUse": "column equal hot listed other prefix range share share_after share_before",
    "HotRange": "high low share",
    "UseOverTime": "shares start weight",
    "ImportedLog": "kind left_out path queries stand_for undated unused was_known",
    "Candidate": """
        average_blocks_read average_depth average_overlaps blocks_read caveats distinct_bounds inexact_block_count
        named_by null_share range_share terms unknown_block_count why
    """,
    "Layouts": """
        block_count candidates left_out part_count read_share_now row_count row_group_count
    """,
    "LayoutEstimate": "average_read_share error key kind read_share",
    "Plan": """
        advice bill groups is_limited note options policy predicted rejected snapshot sorts table_id
    """,
    "Estimate": """
        appends assumptions bytes_per_day cost_per_day days measured_amplification measured_runs policy
        rewritten_bytes_per_day seconds_per_day simulated_depth target_depth write_amplification
    """,
    "Bill": """
        measured_runs payback_queries point_query_bytes_after point_query_bytes_before total
    """,
    "Price": """
        blocks bytes_copied bytes_decoded bytes_read bytes_written cost memory_bytes requests rows seconds
        suggested_bytes
    """,
    "SelectOptions": """
        include_unclustered max_blocks max_bytes max_cost max_group_bytes max_groups max_seconds memory_bytes
        price_per_gib price_per_hour ratio target_depth threshold
    """,
    "Outcome": """
        advice blocks_in blocks_out bytes_copied bytes_read bytes_written commits committed_groups conflicted_groups
        depth_after depth_before engine entries_copied failed_groups figures_of groups left_groups note overlaps_after
        overlaps_before policy predicted predicted_depth_after rejected rounds rows seconds snapshot
    """,
    "GroupOutcome": """
        blocks_in blocks_out bytes_copied bytes_read bytes_written cpu_seconds error number predicted round rows
        rows_copied status task_seconds why
    """,
    "GcOutcome": "bytes_deleted dry_run note objects_deleted snapshots_expired",
    "WatchedRound": "bytes_today error location outcome status time",
    "CheckReport": "blocks deep ok problems rows segments snapshots",
    "Query": """
        blocks blocks_read blocks_total bytes_read columns cpu_seconds rows_matched rows_read seconds snapshot source
        tested time weight where
    """,
    "Workload": "queries",
    "TableOptions": """
        block_bytes block_rows compression compression_level memory_bytes recluster_every recluster_mode
        recluster_policy recluster_record recluster_record_literals row_group_rows sort_scope
    """,
    "$ tblctl": """
        --debug --version alter append check completion config create delete depth drop estimate export files gc
        history import info overwrite plan recluster rollback scan sql suggest tag update version workload
    """,
    "$ tblctl version": "--debug --json",
    "$ tblctl completion": "--debug SHELL",
    "$ tblctl config": "--debug --json show",
    "$ tblctl create": "--cluster-by --debug --json --like --schema --set --storage-option LOC",
    "$ tblctl import": """
        --accept-changed --catalog-option --cluster-by --commit-every --debug --hive --json --memory --no-hive
        --recluster --storage-option LOC SRC...
    """,
    "$ tblctl export": "--columns --debug --json --overwrite --storage-option --where DIR LOC",
    "$ tblctl append": "--debug --hive --json --memory --no-hive --recluster --storage-option FILE... LOC",
    "$ tblctl scan": """
        --as-of --columns --debug --explain --json --limit --output --report --storage-option --where LOC
    """,
    "$ tblctl delete": "--debug --json --storage-option --where LOC",
    "$ tblctl update": "--all --debug --json --set --storage-option --where LOC",
    "$ tblctl overwrite": "--debug --hive --json --memory --no-hive --storage-option --where FILE... LOC",
    "$ tblctl alter": """
        --add-column --cluster-by --debug --drop-cluster-by --drop-column --json --rename-column --set
        --storage-option --widen-column LOC
    """,
    "$ tblctl info": """
        --all --branch --catalog-option --columns --compare --debug --history --json --metadata-cache --metrics-file
        --namespace --picture --refine --storage-option --where --worst [LOC]...
    """,
    "$ tblctl depth": """
        --branch --catalog-option --debug --json --storage-option --where --worst LOC TERMS --metadata-cache --refine
    """,
    "$ tblctl suggest": """
        --branch --catalog-option --debug --json --layouts --predicates --rejected --storage-option LOC
        --metadata-cache --refine
    """,
    "$ tblctl workload": """
        --branch --catalog-option --debug --dialect --json --kind --limit --metadata-cache --picture --refine --since
        --storage-option --table --text-column --time-column LOC [import|FILE]...
    """,
    "$ tblctl recluster": """
        --allowance --maintain --no-maintain
        --all --alpha --branch --catalog-option --cluster-by --clustering-depth --commit-every --cube-bytes
        --daily-bytes --day-column --day-rolling --debug --delete-file-threshold --delete-ratio-threshold
        --dry-run --engine --every-range --final --if-exists --include-unclustered --json --list-policies
        --master --max-blocks --max-bytes --max-cost --max-group-bytes --max-groups --max-seconds --memory
        --metadata-cache --metrics-file --min-input-files --most-blocks --namespace --no-day-rolling --no-every-range
        --no-include-unclustered --on-conflict --partition-column --partition-regex --partitions --pending
        --plan --plans-at --policy --price-per-gib --price-per-hour --ratio --recent-days --refine --remote
        --small-file-bytes --sort-columns --spark-conf --storage-option --target-depth --target-file-bytes
        --threshold --watch --where --window LOC...
    """,
    "$ tblctl plan": """
        --allowance --maintain --no-maintain
        --alpha --branch --cancel --catalog-option --cluster-by --clustering-depth --cube-bytes --day-column
        --day-rolling --debug --delete-file-threshold --delete-ratio-threshold --every-range --expires --final
        --include-unclustered --json --list --max-blocks --max-bytes --max-cost --max-group-bytes --max-groups
        --max-seconds --memory --metadata-cache --min-input-files --most-blocks --no-day-rolling
        --no-every-range --no-include-unclustered --output --partition-column --partition-regex --partitions
        --plans-at --policy --price-per-gib --price-per-hour --ratio --recent-days --refine --schedule
        --small-file-bytes --sort-columns --storage-option --target-depth --target-file-bytes --threshold
        --where --window LOC
    """,
    "$ tblctl sql": """
        --commit-every --debug --engine --json --master --on-conflict --remote --spark-conf --storage-option
        STATEMENT
    """,
    "$ tblctl history": """
        --branch --catalog-option --debug --json --limit --savings --storage-option LOC --metadata-cache --refine
    """,
    "$ tblctl rollback": "--debug --json --storage-option --to LOC",
    "$ tblctl tag": "--at --debug --delete --json --storage-option LOC NAME",
    "$ tblctl drop": "--debug --if-exists --json --storage-option --yes LOC",
    "$ tblctl files": "--debug --json --limit --storage-option LOC",
    "$ tblctl gc": """
        --branch --catalog-option --debug --dry-run --expire-older-than --json --keep --metadata-cache --older-than
        --refine --storage-option LOC
    """,
    "$ tblctl check": """
        --branch --catalog-option --debug --deep --fix-clock --json --storage-option LOC --metadata-cache --refine
    """,
    "$ tblctl estimate": """
        --branch --catalog-option --days --debug --json --metadata-cache --policy --price-per-gib --price-per-hour
        --refine --storage-option --target-depth LOC
    """,
}
SHARED_FLAGS = {"--color", "--log-level", "--profile", "--quiet", "--verbose", "-q", "-v"}
SIGNATURES = {
    "tblctl": [
        "create(location, schema, *, cluster_by=(), sample=None, options=None, storage_options=None)",
        "drop(location, *, if_exists=False, storage_options=None)",
        "execute(text, *, resolve=None, storage_options=None, **options)",
        "exists(location, *, storage_options=None)",
        (
            "import_parquet(source, location, *, hive=None, cluster_by=(), recluster=False, accept_changed=False, "
            "memory_bytes=None, commit_bytes=4294967296, storage_options=None, source_options=None, "
            "catalog_options=None, progress=None)"
        ),
        "find_tables(location, *, storage_options=None, catalog_options=None, namespace=None)",
        "from_iceberg(table, *, branch='main')",
        (
            "open(location, *, as_of=None, storage_options=None, on_scan=None, catalog_options=None, "
            "branch=None, metadata_cache=None, refine=False, record=None)"
        ),
        "parse_duration(text)",
        "parse_schema(text)",
        "parse_size(text, *, needs_unit=False)",
        "parse_statement(text)",
        "read_schema(path, storage_options=None)",
        "spark_session(*, master=None, remote=None, conf=None)",
        (
            "survey(locations, *, columns=None, where=None, worst=5, storage_options=None, "
            "catalog_options=None, metadata_cache=None, refine=False, branch=None)"
        ),
        (
            "watch(locations, *, every, daily_bytes=None, policy=None, where=None, options=None, engine='auto', "
            "spark=None, on_conflict='salvage', commit_every=None, storage_options=None, catalog_options=None, "
            "branch=None, metadata_cache=None, refine=False)"
        ),
        "type_from_text(text)",
        "type_to_text(data_type)",
    ],
    "ParquetFolder": [
        "close(*, wait=True)",
        "depth_history(limit=20)",
        "first_steps(columns)",
        "gain(columns)",
        "history(limit=None)",
        "info(columns=None, where=None, *, worst=5, boxes=False)",
        "load(*, progress=None)",
        "picture(path=None, *, columns=None, where=None, compare=None)",
        "suggest(predicates=None, *, layouts=False)",
    ],
    "DeltaTable": [
        "close(*, wait=True)",
        "depth_history(limit=20)",
        "first_steps(columns)",
        "gain(columns)",
        "history(limit=None)",
        "info(columns=None, where=None, *, worst=5, boxes=False)",
        "load(*, progress=None)",
        "picture(path=None, *, columns=None, where=None, compare=None)",
        "suggest(predicates=None, *, layouts=False)",
    ],
    "Gain": ["to_dict()"],
    "IcebergTable": [
        "cancel_plan(id, *, plans_at=None)",
        "close(*, wait=True)",
        "check(deep=False, *, progress=None)",
        "compare(before, after, *, columns=None, where=None)",
        "delete_files()",
        "depth_history(limit=20)",
        "estimate(*, days=30, target_depth=4.0, policy=None, price_per_gib=None, price_per_hour=None)",
        "gc(older_than='24h', *, expire_older_than=None, keep=None, dry_run=False)",
        "history(limit=None)",
        (
            "import_workload(paths, *, kind=None, table=None, text_column=None, time_column=None, dialect=None, "
            "limit=10000)"
        ),
        "workload(*, since=None, limit=10000)",
        "choose_key(*, workload=None)",
        "savings(*, limit=50, workload=None)",
        "info(columns=None, where=None, *, worst=5, boxes=False)",
        "pending_plans(*, plans_at=None)",
        "picture(path=None, *, columns=None, where=None, compare=None)",
        "plan(policy=None, where=None, options=None, *, cluster_by=None, workload=None)",
        (
            "recluster(plan=None, *, policy=None, where=None, options=None, final=False, engine='auto', "
            "spark=None, on_conflict='salvage', commit_every=None, progress=None, cluster_by=None, "
            "workload=None)"
        ),
        (
            "recluster_pending(id=None, *, engine='auto', spark=None, on_conflict='salvage', progress=None, "
            "plans_at=None)"
        ),
        ("schedule(policy=None, where=None, options=None, *, expires='7d', plans_at=None, workload=None)"),
        "suggest(predicates=None, *, layouts=False)",
    ],
    "Table": [
        "add_column(path, type)",
        "append(data, *, hive=None, memory_bytes=None, recluster=False, source_options=None, progress=None)",
        "cancel_plan(id, *, plans_at=None)",
        "close(*, wait=True)",
        "check(deep=False, *, progress=None)",
        "compare(before, after, *, columns=None, where=None)",
        "count(where=None)",
        "delete(where, *, progress=None)",
        "delete_tag(name)",
        "depth_history(limit=20)",
        "estimate(*, days=30, target_depth=4.0, policy=None, price_per_gib=None, price_per_hour=None)",
        "drop_cluster_key()",
        "drop_column(path)",
        "files(limit=None)",
        "gc(keep=10, older_than='24h', *, dry_run=False)",
        "head(n=10)",
        "history(limit=None)",
        (
            "import_workload(paths, *, kind=None, table=None, text_column=None, time_column=None, dialect=None, "
            "limit=10000)"
        ),
        "info(columns=None, where=None, *, worst=5, boxes=False)",
        "overwrite(data, where=None, *, hive=None, memory_bytes=None, source_options=None, progress=None)",
        "export(directory, *, where=None, columns=None, overwrite=False, progress=None)",
        "pending_plans(*, plans_at=None)",
        "picture(path=None, *, columns=None, where=None, compare=None)",
        "plan(policy=None, where=None, options=None, *, workload=None)",
        (
            "recluster(plan=None, *, policy=None, where=None, options=None, final=False, engine='auto', "
            "spark=None, on_conflict='salvage', commit_every=None, progress=None, workload=None)"
        ),
        (
            "recluster_pending(id=None, *, engine='auto', spark=None, on_conflict='salvage', progress=None, "
            "plans_at=None)"
        ),
        "rename_column(path, new_name)",
        "reset_clock()",
        "rollback(to)",
        "scan(where=None, columns=None, limit=None)",
        ("schedule(policy=None, where=None, options=None, *, expires='7d', plans_at=None, workload=None)"),
        "set_cluster_key(terms, *, why='')",
        "set_options(values)",
        "suggest(predicates=None, *, layouts=False)",
        "tag(name, at=None)",
        "tags()",
        "to_dataset()",
        "to_spark(session)",
        "update(set, where=None, *, progress=None)",
        "widen_column(path, type)",
        "workload(*, since=None, limit=10000)",
        "choose_key(*, workload=None)",
        "savings(*, limit=50, workload=None)",
    ],
    "Scan": [
        "explain()",
        "to_arrow()",
        "to_pandas()",
        "to_polars()",
        "to_reader()",
    ],
    "WriteOutcome": [
        "to_dict()",
    ],
    "ImportOutcome": [
        "to_dict()",
    ],
    "ExportOutcome": [
        "to_dict()",
    ],
    "SnapshotInfo": [
        "to_dict()",
    ],
    "BlockInfo": [
        "to_dict()",
    ],
    "ScanExplanation": [
        "to_dict()",
    ],
    "ScanReport": [
        "to_dict()",
    ],
    "ClusteringInfo": [
        "to_dict()",
    ],
    "ClusteringFigures": [
        "to_dict()",
    ],
    "DepthFigures": [
        "to_dict()",
    ],
    "BoxFigures": [
        "to_dict()",
    ],
    "BoxDepth": [
        "to_dict()",
    ],
    "RangeShare": [
        "to_dict()",
    ],
    "DeepRange": [
        "to_dict()",
    ],
    "DepthPoint": [
        "to_dict()",
    ],
    "MeasuredVersion": [
        "to_dict()",
    ],
    "SurveyedTable": [
        "to_dict()",
    ],
    "Suggestion": [
        "to_dict()",
    ],
    "Candidate": [
        "to_dict()",
    ],
    "Layouts": [
        "to_dict()",
    ],
    "LayoutEstimate": [
        "to_dict()",
    ],
    "Estimate": [
        "to_dict()",
    ],
    "Plan": [
        "from_json(value)",
        "to_json()",
    ],
    "SelectOptions": [
        (
            "SelectOptions(*, threshold=None, ratio=None, max_group_bytes=None, memory_bytes=1073741824, "
            "max_bytes=None, max_blocks=None, max_groups=None, target_depth=None, max_seconds=None, max_cost=None, "
            "price_per_gib=None, price_per_hour=None, include_unclustered=None)"
        ),
        "from_mapping(values)",
        "threshold_for(block_count)",
        "to_json()",
    ],
    "WatchedRound": ["to_dict()"],
    "WorkloadReport": ["to_dict()"],
    "KeyChoice": ["to_dict()"],
    "RealisedSaving": ["to_dict()"],
    "ColumnUse": ["to_dict()"],
    "UseOverTime": ["to_dict()"],
    "ImportedLog": ["to_dict()"],
    "ScheduledPlan": ["to_dict()"],
    "PendingPlan": ["to_dict()"],
    "Outcome": [
        "to_dict()",
    ],
    "GcOutcome": [
        "to_dict()",
    ],
    "CheckReport": [
        "to_dict()",
    ],
    "TableOptions": [
        (
            "TableOptions(*, block_rows=1000000, block_bytes=134217728, row_group_rows=32768, "
            "compression='zstd', compression_level=1, sort_scope='append', memory_bytes=1073741824, "
            "recluster_mode='off', recluster_every=1, recluster_policy=None, recluster_record='off', "
            "recluster_record_literals='full')"
        ),
        "from_mapping(values)",
        "to_json()",
        "updated(values)",
    ],
}


def signature(name: str, called: Any) -> str:
    """Return a name with its parameters and their defaults, without types and `self`."""
    parameters = [
        item.replace(annotation=inspect.Parameter.empty)
        for item in inspect.signature(called).parameters.values()
        if item.name not in ("self", "cls")
    ]
    return f"{name}{inspect.Signature(parameters)}"


def methods(kind: type) -> Iterable[str]:
    """Yield the signatures of a class, and of its constructor where callers have one."""
    if kind in (tblctl.SelectOptions, tblctl.TableOptions):
        yield signature(kind.__name__, kind)
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        is_ours = not name.startswith("_") and name != "of"  # takes what is not public
        if is_ours and (inspect.isfunction(found) or isinstance(found, classmethod)):
            yield signature(name, getattr(kind, name))


def attributes(kind: type) -> Iterable[str]:
    """Yield the fields and properties of a class."""
    if dataclasses.is_dataclass(kind):
        yield from (item.name for item in dataclasses.fields(kind))
    yield from (
        name for name, found in inspect.getmembers(kind) if isinstance(found, property) and name[0] != "_"
    )


def flags(command: click.Command) -> Iterable[str]:
    """Yield the flags of a command but those that all have, and its arguments in capitals."""
    for item in command.get_params(click.Context(command)):
        if isinstance(item, click.Option):
            yield from {*item.opts, *item.secondary_opts} - {"-h", "--help", *SHARED_FLAGS}
        else:
            yield item.human_readable_name


CLASSES = {name: found for name in tblctl.__all__ if inspect.isclass(found := getattr(tblctl, name))}
FUNCTIONS = [name for name in tblctl.__all__ if inspect.isfunction(getattr(tblctl, name))]

FOUND_NAMES = {
    "tblctl": set(tblctl.__all__),
    "tblctl.errors": {name for name in vars(tblctl.errors) if name.endswith("Error")},
    "tblctl.policies": set(policies.__all__),
    "tblctl.maintain.recluster": set(loop.__all__),
    **{name: set(attributes(found)) for name, found in CLASSES.items()},
    "$ tblctl": {*flags(application), *(str(command.name) for command in COMMANDS)},
    **{f"$ tblctl {command.name}": set(flags(command)) for command in COMMANDS},
}
FOUND_SIGNATURES = {
    "tblctl": {signature(name, getattr(tblctl, name)) for name in FUNCTIONS},
    **{name: set(methods(found)) for name, found in CLASSES.items()},
}


@pytest.mark.parametrize("command", [application, *COMMANDS], ids=lambda command: command.name)
def test_every_command_has_the_shared_flags(command: click.Command) -> None:
    params = command.get_params(click.Context(command))
    assert {flag for item in params for flag in item.opts} >= SHARED_FLAGS


@pytest.mark.parametrize("owner", NAMES)
def test_no_public_name_is_removed(owner: str) -> None:
    assert set(NAMES[owner].split()) - FOUND_NAMES[owner] == set()


@pytest.mark.parametrize("owner", SIGNATURES)
def test_no_public_signature_is_another(owner: str) -> None:
    assert set(SIGNATURES[owner]) - FOUND_SIGNATURES[owner] == set()


@pytest.mark.parametrize("owner", [*FOUND_NAMES])
def test_every_public_name_is_listed(owner: str) -> None:
    assert FOUND_NAMES[owner] - set(NAMES.get(owner, "").split()) == set()


@pytest.mark.parametrize("owner", [*FOUND_SIGNATURES])
def test_every_public_signature_is_listed(owner: str) -> None:
    assert FOUND_SIGNATURES[owner] - set(SIGNATURES.get(owner, [])) == set()
