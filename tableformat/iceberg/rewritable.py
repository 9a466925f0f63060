"""Which Iceberg tables tblctl rewrites, and whether it may: found out before any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import AccessDeniedError, InvalidOptionError, StorageError
from tblctl.tableformat.iceberg.data_storage import DataStorage
from tblctl.tableformat.iceberg.deletes import EQUALITY

if TYPE_CHECKING:
    from tblctl.tableformat.iceberg.version import IcebergVersion

_NEWEST_FORMAT = 2
_FORMAT = "write.format.default"


def require_rewritable(version: IcebergVersion) -> None:
    """Refuse a table that tblctl measures but does not rewrite.

    Raises:
        InvalidOptionError: says why, and what to do.
    """
    why = refusal(version)
    if why is not None:
        msg = f"{version.location} cannot be reclustered: {why}. `info` and `recluster --dry-run` work all the same"
        raise InvalidOptionError(msg)


def refusal(version: IcebergVersion) -> str | None:
    """Return why tblctl does not rewrite a table, and what to do; None if it does. Reads manifests alone."""
    if version.metadata.format_version > _NEWEST_FORMAT:
        return (
            f"it has format version {version.metadata.format_version}, whose row lineage and deletion vectors a "
            "rewrite by tblctl would lose; use rewrite_data_files of an engine"
        )
    deletes = version.deletes.entries
    equality = int((deletes.content == EQUALITY).sum())
    if equality:
        return (
            f"it has {equality} equality delete files; have an engine apply them first (in Spark: CALL "
            "system.rewrite_data_files with 'delete-file-threshold' => '1')"
        )
    entries = version.files.entries
    for what, form in (
        ("data", entries.format),
        ("delete", deletes.format),
    ):
        others = pc.unique(form.filter(pc.not_equal(pc.utf8_upper(form), "PARQUET"))).to_pylist()
        if others:
            return (
                f"some of its {what} files are {' and '.join(sorted(others))}; tblctl rewrites Parquet alone: rewrite "
                f"them with an engine after setting {_FORMAT} to parquet"
            )
    if bool(entries.encrypted.any()) or bool(deletes.encrypted.any()):
        return "some of its files are encrypted, and tblctl would write them in the clear"
    asked = version.metadata.properties.get(_FORMAT, "parquet")
    if asked.lower() != "parquet":
        return f"its property {_FORMAT} is {asked}; tblctl writes Parquet alone"
    return None


def require_access(version: IcebergVersion, storages: DataStorage, env: Environment) -> None:
    """Create and delete an empty object where the table's data would be, and where its manifests would be.

    Credentials may only read, or not write there. Of a REST catalog, too, manifests are written by the client.

    Raises:
        AccessDeniedError, StorageError: that does not work; names the object.
    """
    for folder in (version.data_folder, version.metadata_folder):
        path = f"{folder}/tblctl-{version.metadata.table_uuid.hex}-{env.new_id()}-probe"
        storage, name = storages.place_of(path)
        what = "written"
        try:
            storage.write(name, b"")
            what = "deleted"
            storage.delete([name])
        except (AccessDeniedError, StorageError) as error:
            msg = (
                f"{version.location}: an object to try it out could not be {what}: {error}; a recluster needs "
                f"credentials that may read, write and delete in {folder}; nothing was changed"
            )
            raise type(error)(msg) from error
