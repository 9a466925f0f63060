"""Find out whether another import took files meanwhile. Other imports of a table do not matter to this one."""

from __future__ import annotations

import pyarrow.compute as pc

from tblctl.tableformat.import_lists import read_import_list
from tblctl.tableformat.model.snapshot import Snapshot
from tblctl.tableformat.native.write.write_planner import Taken
from tblctl.tableformat.storage import Storage


class TakenBefore:
    """Tells of one head after another whether its lists have one of the files of a commit. Reads each new list once."""

    def __init__(self, storage: Storage, taken: Taken | None) -> None:
        self._storage = storage
        self._taken = taken
        self._without = set(taken.base if taken else ())  # lists that have none of the files

    def has_any(self, head: Snapshot) -> bool:
        """Return whether a list of `head` has one of the files.

        Raises:
            CorruptTableError: a list is missing or damaged. Missing ones may be those of an old head, after gc.
        """
        if self._taken is None:
            return False
        for ref in head.imports:
            if ref.path in self._without:
                continue
            listed = read_import_list(self._storage, ref)["path"].combine_chunks()
            if pc.any(pc.is_in(self._taken.files["path"], listed)).as_py():
                return True
            self._without.add(ref.path)
        return False
