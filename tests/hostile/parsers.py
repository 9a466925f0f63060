"""Every parser of bytes or text in tblctl: how valid input is made, what parses it, and what it may raise.

A new parser is one line of `PARSERS`. `test_parsers.py` and `fuzz.py` take all of them from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hostile import iceberg_subjects as iceberg
from hostile import log_subjects as logs
from hostile import native_subjects as native
from hostile import text_subjects as text
from hostile.mutations import AVRO, BYTES, JSON, PARQUET, TEXT, THRIFT, Change

from tblctl.errors import (
    CorruptTableError,
    InputError,
    InvalidDataError,
    TblctlError,
    UnsupportedFormatError,
)
from tblctl.tableformat.iceberg.avro.container import AvroError
from tblctl.tableformat.parquet.read_errors import ARROW_ERRORS
from tblctl.tableformat.parquet.thrift import ThriftError

Errors = tuple[type[Exception], ...]
DAMAGE: Errors = (CorruptTableError, UnsupportedFormatError)
NONE: Errors = ()


@dataclass(frozen=True, kw_only=True)
class Parser:
    """One parser.

    Attributes:
        name: of the parser, and of the folder of its cases.
        valid: makes valid input. The first is accepted; others are of the same kind, and lend their parts.
        parse: parses input. It seals it first where checksums are compared before anything is parsed.
        allowed: the errors that it may raise.
        changes: how valid input is changed.
        says: a part of the message of every error: the object's name. Empty where the caller knows what he gave.
    """

    name: str
    valid: Callable[[], Sequence[bytes]]
    parse: Callable[[bytes], object]
    allowed: Errors
    changes: Sequence[Change] = field(repr=False)
    says: str = ""


def _parser(
    name: str,
    valid: Callable[[], Sequence[bytes]],
    parse: Callable[[bytes], object],
    allowed: Errors,
    changes: Sequence[Change],
    says: str = "",
) -> tuple[str, Parser]:
    return name, Parser(name=name, valid=valid, parse=parse, allowed=allowed, changes=changes, says=says)


PARSERS: dict[str, Parser] = dict(
    [
        # The native format: objects, and what is inside of them.
        _parser("snapshot", native.snapshots, native.parse_snapshot, DAMAGE, JSON, native.SNAPSHOT),
        _parser("snapshot-old", native.snapshots, native.parse_old_snapshot, DAMAGE, JSON, native.SNAPSHOT),
        _parser(
            "pending-plan",
            native.pending_plans,
            native.parse_pending_plan,
            (InvalidDataError, UnsupportedFormatError),
            JSON,
            native.PENDING,
        ),
        _parser("hint", native.hints, native.parse_hint, NONE, JSON),
        _parser("segment", native.segments, native.parse_segment, DAMAGE, PARQUET, native.SEGMENT),
        _parser("segment-old", native.segments, native.parse_old_segment, DAMAGE, PARQUET, native.SEGMENT),
        _parser("block", native.blocks, native.parse_block, DAMAGE, PARQUET, native.BLOCK),
        _parser("block-old", native.blocks, native.parse_old_block, DAMAGE, PARQUET, native.BLOCK),
        _parser("thrift", native.footers, native.parse_thrift, (ThriftError,), THRIFT),
        _parser("footer", native.blocks, native.parse_raw_footer, ARROW_ERRORS, PARQUET),
        _parser("file-name", native.names, native.parse_names, DAMAGE, TEXT),
        _parser(
            "input-parquet",
            native.blocks,
            native.parse_input("parquet"),
            (InvalidDataError,),
            PARQUET,
            "x.parquet",
        ),
        _parser(
            "folder-footer", native.blocks, native.parse_folder, (InvalidDataError,), PARQUET, "x.parquet"
        ),
        _parser(
            "import-list", native.import_lists, native.parse_import_list, DAMAGE, BYTES, native.IMPORT_LIST
        ),
        _parser("kept-footers", native.kept_footers, native.parse_kept_footers, NONE, BYTES),
        _parser(
            "input-arrow",
            native.arrow_files,
            native.parse_input("arrow"),
            (InvalidDataError,),
            BYTES,
            "x.arrow",
        ),
        # Iceberg tables: metadata of others, and what tblctl left in files.
        _parser("metadata", iceberg.metadata, iceberg.parse_metadata, (TblctlError,), JSON, iceberg.TABLE),
        _parser("manifest-list", iceberg.lists, iceberg.parse_list, DAMAGE, AVRO, iceberg.LIST),
        _parser("manifest", iceberg.manifests, iceberg.parse_manifest, (iceberg.DamagedManifestError,), AVRO),
        _parser("avro", iceberg.manifests, iceberg.parse_avro, (AvroError,), AVRO),
        _parser("bounds", iceberg.manifests, iceberg.parse_bounds, (TblctlError,), AVRO),
        _parser(
            "data-file", iceberg.data_files, iceberg.parse_data_file, (TblctlError,), PARQUET, "data.parquet"
        ),
        _parser("data-file-footer", iceberg.data_files, iceberg.parse_footer_bounds, NONE, PARQUET),
        _parser(
            "delete-file", iceberg.delete_files, iceberg.parse_delete_file, DAMAGE, PARQUET, "deletes.parquet"
        ),
        _parser("side-file", iceberg.side_files, iceberg.parse_side_file, NONE, PARQUET),
        _parser("side-file-list", iceberg.path_lists, iceberg.parse_path_list, NONE, JSON),
        _parser("footer-keys", iceberg.footer_keys, iceberg.parse_footer_keys, NONE, BYTES),
        _parser("curve-property", iceberg.curves, iceberg.parse_curve, NONE, JSON),
        _parser("own-name", iceberg.own_names, iceberg.parse_own_name, NONE, TEXT),
        _parser("commit-detail", iceberg.details, iceberg.parse_detail, NONE, JSON),
        _parser(
            "import-property",
            iceberg.import_properties,
            iceberg.parse_import_property,
            DAMAGE,
            JSON,
            iceberg.TABLE,
        ),
        _parser("name-mapping", iceberg.name_mappings, iceberg.parse_name_mapping, (InputError,), JSON),
        _parser("table-properties", iceberg.properties, iceberg.parse_properties, (InputError,), JSON),
        # What people and engines write.
        _parser("where", text.conditions, text.parse_where, (InputError,), TEXT),
        _parser("assignments", text.assignments, text.parse_assignments, (InputError,), TEXT),
        _parser("statement", text.statements, text.parse_statement, (InputError,), TEXT),
        _parser("conditions-file", text.condition_files, text.parse_condition_file, (InputError,), TEXT),
        _parser("cluster-key", text.cluster_keys, text.parse_cluster_key, (InputError,), TEXT),
        _parser("schema-text", text.schemas, text.parse_schema, (InputError,), TEXT),
        _parser("plan", text.plans, text.parse_plan, (InputError, text.ClickException), JSON),
        _parser("table-options", text.table_options, text.parse_table_options, (InputError,), JSON),
        _parser("storage-options", text.storage_options, text.parse_storage_options, (InputError,), TEXT),
        _parser("source-options", text.source_options, text.parse_source_options, (InputError,), JSON),
        _parser("size", text.sizes, text.parse_size, (InputError,), TEXT),
        _parser("location", text.locations, text.parse_location, (InputError,), TEXT),
        _parser("iceberg-location", text.iceberg_locations, text.parse_iceberg_location, (InputError,), TEXT),
        _parser("as-of", text.times, text.parse_as_of, (InputError,), TEXT),
        _parser("command-words", text.words, text.parse_words, (text.ClickException,), TEXT),
        _parser("profile", text.profiles, text.parse_profile, (text.ClickException,), TEXT),
        _parser("master", text.masters, text.parse_master, (InputError,), TEXT),
        # Logs of queries.
        _parser("query-log-line", logs.lines, logs.parse_line, NONE, JSON),
        _parser("spark-log", logs.engine_logs("spark"), logs.parse_engine_log("spark"), NONE, JSON),
        _parser("duckdb-profile", logs.engine_logs("duckdb"), logs.parse_engine_log("duckdb"), NONE, JSON),
        _parser("query-text", logs.texts, logs.parse_text, NONE, TEXT),
        _parser(
            "query-log-parquet",
            logs.parquet_logs,
            logs.parse_parquet_log,
            (InvalidDataError,),
            PARQUET,
            logs.FILE,
        ),
    ]
)


if __name__ == "__main__":
    print(*PARSERS)
