"""What tblctl uses of PyIceberg beyond its documentation: a release that changes it fails here by name.

PyIceberg has no public REPLACE, and few of its names are documented. pyproject.toml caps its version; whoever raises
the cap sees here what has to be looked at.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg import manifest
from pyiceberg.catalog import infer_catalog_type
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.visitors import inclusive_projection, manifest_evaluator
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table import update
from pyiceberg.utils.config import Config, merge_config

ROOT = Path(__file__).parents[2]
FOLDERS = ("tableformat", "metrics", "selector", "merger", "api", "cli")

PRIVATE = {"patient_catalogs.py": {"_create_session"}}
"""Private members that modules about Iceberg take from other classes than their own."""

SIGNATURES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "write_manifest": (manifest.write_manifest, (2, "spec", "schema", "output", 1, "deflate"), {}),
    "write_manifest_list": (manifest.write_manifest_list, (2, "output", 1, None, 1, "deflate"), {}),
    "read_manifest_list": (manifest.read_manifest_list, ("input",), {}),
    "fetch_manifest_entry": (
        manifest.ManifestFile.fetch_manifest_entry,
        ("self", "io"),
        {"discard_deleted": False},
    ),
    "infer_catalog_type": (infer_catalog_type, ("name", {}), {}),
    "merge_config": (merge_config, ({}, {}), {}),
    "get_catalog_config": (Config.get_catalog_config, ("self", "name"), {}),
    "inclusive_projection": (inclusive_projection, ("schema", "spec"), {}),
    "manifest_evaluator": (manifest_evaluator, ("spec", "schema", "filter"), {}),
    "_create_session": (RestCatalog._create_session, ("self",), {}),
    "_create_hive_client": (HiveCatalog._create_hive_client, ({},), {}),
    "commit_table": (SqlCatalog.commit_table, ("self", "table", (), ()), {}),
    "to_manifest_file": (manifest.ManifestWriterV2.to_manifest_file, ("self",), {}),
    "PartitionKey": (PartitionKey, (), {"field_values": [], "partition_spec": "s", "schema": "c"}),
}
"""Functions that no page documents, with arguments as they are given."""


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def imported() -> list[tuple[str, str]]:
    """Return the names that the product imports from PyIceberg: module, and name in it."""
    return sorted(
        {
            (node.module or "", alias.name)
            for _, tree in modules()
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyiceberg"
            for alias in node.names
        }
    )


@pytest.mark.parametrize(("module", "name"), imported())
def test_the_imported_name_exists(module: str, name: str) -> None:
    found = importlib.import_module(module)
    if not hasattr(found, name):
        found = importlib.import_module(f"{module}.{name}")
    assert not name.startswith("_"), f"{module}.{name} is private"


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_function_takes_what_it_is_given(name: str) -> None:
    function, arguments, named = SIGNATURES[name]
    inspect.signature(function).bind(*arguments, **named)


def test_private_members_that_are_used_are_listed() -> None:
    found: dict[str, set[str]] = {}
    own: set[str] = set()
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                own.add(node.name)
            elif isinstance(node, (ast.AnnAssign, ast.Assign)):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                parts = [part for target in targets for part in ast.walk(target)]
                own |= {part.attr for part in parts if isinstance(part, ast.Attribute)}
                own |= {part.id for part in parts if isinstance(part, ast.Name)}
            if "iceberg" in path.parts and isinstance(node, ast.Attribute) and is_private(node.attr):
                found.setdefault(node.attr, set()).add(path.name)
    listed = {name for names in PRIVATE.values() for name in names}
    others = {name: files for name, files in found.items() if name in listed or name not in own}
    assert others == {name: {file} for file, names in PRIVATE.items() for name in names}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_entries_take_the_sequence_numbers_that_are_written_out() -> None:
    entry = manifest.ManifestEntry.from_args(
        status=manifest.ManifestEntryStatus.EXISTING,
        snapshot_id=1,
        sequence_number=2,
        file_sequence_number=3,
        data_file=manifest.DataFile.from_args(_table_format_version=2, file_path="a", spec_id=7),
    )
    assert (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number) == (1, 2, 3)
    entry.data_file.spec_id = 7
    assert entry.data_file.spec_id == 7, "set by hand, since from_args ignores it"


def test_a_manifest_file_takes_what_a_copied_one_has() -> None:
    counts = {
        f"{what}_{unit}_count": 1 for what in ("added", "existing", "deleted") for unit in ("files", "rows")
    }
    found = manifest.ManifestFile.from_args(
        manifest_path="a", manifest_length=1, partition_spec_id=0, content=manifest.ManifestContent.DELETES,
        sequence_number=-1, min_sequence_number=-1, added_snapshot_id=1, partitions=None, key_metadata=None,
        **counts,
    )  # fmt: skip
    assert found.content == manifest.ManifestContent.DELETES
    assert (found.existing_files_count, found.deleted_rows_count, found.sequence_number) == (1, 1, -1)


def test_updates_and_requirements_of_a_commit_take_what_they_are_given() -> None:
    moved = {"ref-name": "main", "type": "branch", "snapshot-id": 5}
    assert update.SetSnapshotRefUpdate.model_validate(moved).snapshot_id == 5
    required = update.AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": None})
    assert (required.ref, required.snapshot_id) == ("main", None)
    assert update.SetPropertiesUpdate(updates={"a": "b"}).updates == {"a": "b"}
