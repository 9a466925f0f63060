"""Tables of immutable Parquet blocks on object storage, kept well clustered for the least work.

    import tblctl

    table = tblctl.create("s3://warehouse/lineitem", schema, cluster_by=["l_shipdate"])
    table.append("part-0.parquet")
    table.scan(where="l_shipdate >= '1995-01-01'").to_arrow()

Names are imported at first use, so `import tblctl` takes milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tblctl import errors, spark
    from tblctl.advise.estimate import Estimate
    from tblctl.advise.gain import Gain
    from tblctl.advise.key_choice import KeyChoice
    from tblctl.advise.layouts import LayoutEstimate, Layouts
    from tblctl.advise.suggest import Candidate, Suggestion
    from tblctl.delta import DeltaTable
    from tblctl.folder import ParquetFolder
    from tblctl.iceberg import IcebergTable, from_iceberg
    from tblctl.importing import import_parquet
    from tblctl.maintain.measure import MeasuredVersion
    from tblctl.merger.engines.spark.session import open_session as spark_session
    from tblctl.merger.round.group_run import GroupOutcome
    from tblctl.metrics.boxes import BoxDepth, BoxFigures, RangeShare
    from tblctl.metrics.information import ClusteringFigures, ClusteringInfo, DepthFigures
    from tblctl.metrics.worst import DeepRange
    from tblctl.pictures.depths import DepthPoint
    from tblctl.results import (
        BlockInfo,
        CheckReport,
        ExportOutcome,
        GcOutcome,
        ImportOutcome,
        Outcome,
        PendingPlan,
        ScanExplanation,
        ScheduledPlan,
        SnapshotInfo,
        WriteOutcome,
    )
    from tblctl.scan import Scan
    from tblctl.selector.options import SelectOptions
    from tblctl.selector.plan import Plan
    from tblctl.selector.pricing.price import Bill, Price
    from tblctl.statement import Statement, execute, parse_statement
    from tblctl.table import Table
    from tblctl.tableformat.model.options import OPTION_DOCS, TableOptions, parse_duration, parse_size
    from tblctl.tableformat.model.scan_report import BlockScan, ScanReport
    from tblctl.tableformat.model.schema.schema import parse_schema
    from tblctl.tableformat.model.schema.types import type_from_text, type_to_text
    from tblctl.tableformat.progress import Progress
    from tblctl.tableformat.workload.queries import Query, Workload
    from tblctl.tables import create, drop, exists, open, read_schema
    from tblctl.warehouse import SurveyedTable, find_tables, survey
    from tblctl.watching import WatchedRound, watch
    from tblctl.workload.importing import ImportedLog
    from tblctl.workload.report import ColumnUse, HotRange, UseOverTime, WorkloadReport
    from tblctl.workload.savings import RealisedSaving

__version__ = "0.1.0"

_HOMES = {  # module, or module:name if the name differs there
    "errors": "tblctl.errors",
    "GroupOutcome": "tblctl.merger.round.group_run",
    "spark_session": "tblctl.merger.engines.spark.session:open_session",
    "ClusteringFigures": "tblctl.metrics.information",
    "ClusteringInfo": "tblctl.metrics.information",
    "DepthFigures": "tblctl.metrics.information",
    "BoxDepth": "tblctl.metrics.boxes",
    "BoxFigures": "tblctl.metrics.boxes",
    "RangeShare": "tblctl.metrics.boxes",
    "DeepRange": "tblctl.metrics.worst",
    "DepthPoint": "tblctl.pictures.depths",
    "MeasuredVersion": "tblctl.maintain.measure",
    "BlockInfo": "tblctl.results",
    "CheckReport": "tblctl.results",
    "ExportOutcome": "tblctl.results",
    "GcOutcome": "tblctl.results",
    "ImportOutcome": "tblctl.results",
    "Outcome": "tblctl.results",
    "PendingPlan": "tblctl.results",
    "ScanExplanation": "tblctl.results",
    "ScheduledPlan": "tblctl.results",
    "SnapshotInfo": "tblctl.results",
    "WriteOutcome": "tblctl.results",
    "IcebergTable": "tblctl.iceberg",
    "ParquetFolder": "tblctl.folder",
    "DeltaTable": "tblctl.delta",
    "from_iceberg": "tblctl.iceberg",
    "import_parquet": "tblctl.importing",
    "Scan": "tblctl.scan",
    "SelectOptions": "tblctl.selector.options",
    "Plan": "tblctl.selector.plan",
    "Bill": "tblctl.selector.pricing.price",
    "Price": "tblctl.selector.pricing.price",
    "Statement": "tblctl.statement",
    "execute": "tblctl.statement",
    "parse_statement": "tblctl.statement",
    "Candidate": "tblctl.advise.suggest",
    "Estimate": "tblctl.advise.estimate",
    "Gain": "tblctl.advise.gain",
    "KeyChoice": "tblctl.advise.key_choice",
    "LayoutEstimate": "tblctl.advise.layouts",
    "Layouts": "tblctl.advise.layouts",
    "Suggestion": "tblctl.advise.suggest",
    "SurveyedTable": "tblctl.warehouse",
    "find_tables": "tblctl.warehouse",
    "survey": "tblctl.warehouse",
    "WatchedRound": "tblctl.watching",
    "watch": "tblctl.watching",
    "ImportedLog": "tblctl.workload.importing",
    "ColumnUse": "tblctl.workload.report",
    "HotRange": "tblctl.workload.report",
    "UseOverTime": "tblctl.workload.report",
    "WorkloadReport": "tblctl.workload.report",
    "RealisedSaving": "tblctl.workload.savings",
    "Table": "tblctl.table",
    "create": "tblctl.tables",
    "drop": "tblctl.tables",
    "exists": "tblctl.tables",
    "open": "tblctl.tables",
    "read_schema": "tblctl.tables",
    "OPTION_DOCS": "tblctl.tableformat.model.options",
    "TableOptions": "tblctl.tableformat.model.options",
    "parse_duration": "tblctl.tableformat.model.options",
    "parse_size": "tblctl.tableformat.model.options",
    "BlockScan": "tblctl.tableformat.model.scan_report",
    "ScanReport": "tblctl.tableformat.model.scan_report",
    "parse_schema": "tblctl.tableformat.model.schema.schema",
    "type_from_text": "tblctl.tableformat.model.schema.types",
    "type_to_text": "tblctl.tableformat.model.schema.types",
    "Progress": "tblctl.tableformat.progress",
    "Query": "tblctl.tableformat.workload.queries",
    "Workload": "tblctl.tableformat.workload.queries",
    "spark": "tblctl.spark",
}
_MODULES = {"errors", "spark"}

__all__ = [  # noqa: RUF022 (the order in which a reader meets them)
    "create",
    "open",
    "from_iceberg",
    "import_parquet",
    "exists",
    "drop",
    "read_schema",
    "find_tables",
    "survey",
    "watch",
    "execute",
    "parse_statement",
    "Statement",
    "spark_session",
    "Table",
    "IcebergTable",
    "ParquetFolder",
    "DeltaTable",
    "Scan",
    "WriteOutcome",
    "ImportOutcome",
    "ExportOutcome",
    "SnapshotInfo",
    "BlockInfo",
    "ScanExplanation",
    "ScanReport",
    "BlockScan",
    "Query",
    "Workload",
    "ClusteringInfo",
    "ClusteringFigures",
    "DepthFigures",
    "DeepRange",
    "BoxFigures",
    "BoxDepth",
    "RangeShare",
    "DepthPoint",
    "MeasuredVersion",
    "SurveyedTable",
    "WatchedRound",
    "WorkloadReport",
    "ColumnUse",
    "HotRange",
    "UseOverTime",
    "ImportedLog",
    "RealisedSaving",
    "KeyChoice",
    "Suggestion",
    "Candidate",
    "Layouts",
    "LayoutEstimate",
    "Estimate",
    "Gain",
    "Plan",
    "ScheduledPlan",
    "PendingPlan",
    "Bill",
    "Price",
    "SelectOptions",
    "Outcome",
    "GroupOutcome",
    "GcOutcome",
    "CheckReport",
    "TableOptions",
    "OPTION_DOCS",
    "parse_schema",
    "parse_size",
    "parse_duration",
    "type_from_text",
    "type_to_text",
    "Progress",
    "spark",
    "errors",
]


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'tblctl' has no attribute {name!r}"
        raise AttributeError(msg)
    module_name, _, own_name = home.partition(":")
    module = importlib.import_module(module_name)
    value = module if name in _MODULES else getattr(module, own_name or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
