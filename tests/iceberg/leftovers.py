"""Which files of an Iceberg table its metadata names, and which are tblctl's own."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table import Table

from tblctl.tableformat.iceberg.own_keys import side_files_named


def named_files(table: Table) -> set[str]:
    """Return all files that the metadata of a table names."""
    found = {table.metadata_location}
    for snapshot in table.snapshots():
        found |= {snapshot.manifest_list, *side_files_named(snapshot)}
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return found


def own_files(table: Table, paths: Iterable[str]) -> set[str]:
    """Return those of some files that tblctl wrote for a table."""
    mark = f"tblctl-{table.metadata.table_uuid.hex}-"
    return {path for path in paths if path.rpartition("/")[2].startswith(mark)}
