"""A catalog that keeps the place of the newest metadata file, as SQL, Hive and Glue catalogs do.

Clients read and write the files. Whoever commits deletes those that are too old, so that a reader may look for a file
that is gone: `write.metadata.delete-after-commit.enabled`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata

from simulation.iceberg.catalog import LOAD, Client

PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}


class PointerClient(Client):
    """A client that reads metadata where the catalog says that it is."""

    def _current(self) -> tuple[TableMetadata, str]:
        place: str = self._ask(LOAD, lambda: self._server.place)
        return FromInputFile.table_metadata(self.files.new_input(place)), place

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> CommitTableResponse:
        answer = super().commit_table(table, requirements, updates)
        Catalog._delete_old_metadata(self.files, self._base, answer.metadata)
        return answer

    def _commit(self, requirements: Any, updates: Any) -> Callable[[], CommitTableResponse | Exception]:
        self._base, place = self._current()
        for requirement in requirements:
            requirement.validate(self._base)
        try:
            found = update_table_metadata(self._base, updates, metadata_location=place)
        except ValueError as error:  # such as a sequence number that a commit to another branch has taken
            raise CommitFailedException(str(error)) from error
        if found == self._base:
            return lambda: CommitTableResponse(metadata=found, metadata_location=place)
        new_place = self._server.new_place()
        ToOutputFile.table_metadata(found, self.files.new_output(new_place))

        def commit() -> CommitTableResponse | Exception:
            if self._server.place != place:
                return CommitFailedException("the table was updated by another process")
            self._server.swap(found, self._requests, new_place)
            return CommitTableResponse(metadata=found, metadata_location=new_place)

        return commit
