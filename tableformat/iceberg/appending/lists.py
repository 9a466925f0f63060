"""Which files an import took into an Iceberg table: lists beside its data, which a property of the table names.

The property is set by the commit that adds the rows, so that neither is there without the other. Properties stay when
snapshots expire, and no expiry deletes the lists: no snapshot names them. Engines that remove orphan files leave names
that begin with `_` alone (Spark's action does). If a list is gone all the same, nothing is imported any more: a file
taken twice would double its rows.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tblctl.tableformat.environment import Environment
from tblctl.tableformat.errors import CorruptTableError, TblctlError
from tblctl.tableformat.import_lists import encode_import_list, lists_to_fold, read_import_lists
from tblctl.tableformat.model.snapshot import ImportList

if TYPE_CHECKING:
    from tblctl.tableformat.iceberg.version import IcebergVersion
    from tblctl.tableformat.storage import Storage

LOG = logging.getLogger("tblctl")

LISTS, FOLDER = "tblctl.imports", "_tblctl-imports"
"""The table's property that names the lists, and the folder below its location where they are."""

UNUSED_SECONDS = 86_400.0
"""A list that the table does not name is removed once it is so old: until then an import may be about to commit it."""

_NAME = re.compile(r"[0-9a-f]{32}-[0-9a-f]{32}\.arrow")
"""The table's UUID, and one of the list's own: at a location may be files of a table that had the name before."""

_MOST_LISTS, _MOST_NUMBER = 200, 2**64 - 1


def lists_of(location: str, properties: Mapping[str, str]) -> tuple[ImportList, ...]:
    """Return the lists that a table's property names, oldest first.

    Raises:
        CorruptTableError: it has not what tblctl writes there.
    """
    text = properties.get(LISTS, "[]")
    try:
        return _parsed(text)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        msg = f"{location}: the property {LISTS} does not say which files were taken: {str(error)[:200]}"
        raise CorruptTableError(msg, name=location) from error


def _parsed(text: str) -> tuple[ImportList, ...]:
    found = json.loads(text)
    if not isinstance(found, list) or len(found) > _MOST_LISTS:
        raise ValueError(f"expected at most {_MOST_LISTS} lists")
    return tuple(map(_list_of, found))


def _list_of(item: Mapping[str, Any]) -> ImportList:
    path, *numbers = item["path"], item["size-bytes"], item["checksum"], item["files"]
    if not isinstance(path, str) or not _NAME.fullmatch(path):
        raise ValueError("a name is none of a list")
    if any(type(number) is not int or not 0 <= number <= _MOST_NUMBER for number in numbers):
        raise ValueError("a number is missing")
    size_bytes, checksum, files = numbers
    return ImportList(path=path, size_bytes=size_bytes, checksum=checksum, file_count=files)


def text_of(lists: Sequence[ImportList]) -> str:
    """Return what the property says of lists."""
    items = [
        {
            "path": item.path,
            "size-bytes": item.size_bytes,
            "checksum": item.checksum,
            "files": item.file_count,
        }
        for item in lists
    ]
    return json.dumps(items, separators=(",", ":"))


class Lists:
    """The lists of the files that a table took.

    Args:
        version: of the table.
        storage: of the folder of lists.
    """

    def __init__(self, version: IcebergVersion, storage: Storage) -> None:
        self._location = version.location
        self._storage = storage
        self._prefix = f"{version.metadata.table_uuid.hex}-"
        self.refs = lists_of(version.location, version.metadata.properties)

    def files(self, besides: Sequence[ImportList] = ()) -> pa.Table:
        """Return the files in the lists, but for those of some lists.

        Raises:
            CorruptTableError: a list is missing or damaged: says what that means.
        """
        try:
            return read_import_lists(self._storage, [ref for ref in self.refs if ref not in besides])
        except CorruptTableError as error:
            msg = (
                f"{self._location}: {error} ({self._storage.url}). Nothing is imported, since files might be taken "
                f"twice. If it cannot be restored, remove the table's property {LISTS}, and import files that are new"
            )
            raise CorruptTableError(msg, name=self._location) from error

    def with_files(self, files: pa.Table, env: Environment) -> tuple[ImportList, ...]:
        """Write a list of further files, in which small lists of before are folded; return the lists there are then."""
        stay, folded = lists_to_fold(self.refs, files.num_rows)
        rows = pa.concat_tables([read_import_lists(self._storage, folded), files])
        made, data = encode_import_list(rows, f"{self._prefix}{env.new_id()}.arrow")
        self._storage.write(made.path, data)
        return (*stay, made)

    def remove_unused(self, used: Sequence[ImportList], env: Environment) -> None:
        """Delete old lists that the table does not name any more, as far as possible."""
        kept = {item.path for item in used}
        try:
            own = [item for item in self._storage.list() if item.name.startswith(self._prefix)]
            found = [item for item in own if item.name not in kept]
            old = [item.name for item in found if env.now() - item.modified_seconds > UNUSED_SECONDS]
            self._storage.delete(old)
        except TblctlError as error:
            LOG.warning("lists of files that are not needed could not be deleted: %s", error)
