"""The columns that folders' names give files: `year=2024/a.parquet` has year."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tblctl.tableformat.errors import SchemaMismatchError
from tblctl.tableformat.folder.listing import Files
from tblctl.tableformat.folder.names import Partition, are_integers, partition_of


@dataclass(frozen=True, kw_only=True, eq=False)
class FolderColumn:
    """A column that folders' names give: each file has one value, or null."""

    name: str
    values: pa.Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Partitions:
    """What folders' names say of files.

    Attributes:
        keys: the names of the columns.
        folders: the folders that have files, each once; they have the same keys.
        codes: for each file the place of its folder.
    """

    keys: tuple[str, ...]
    folders: tuple[Partition, ...]
    codes: np.ndarray

    @classmethod
    def of(cls, files: Files, location: str, *, above: str = "") -> Partitions:
        """Return what the folders of files say.

        Args:
            files: at least one.
            location: for messages.
            above: folders above all of them that count too, such as "year=2024/"; "" for none.

        Raises:
            SchemaMismatchError: files are in folders of different keys; names two.
        """
        coded = pc.replace_substring_regex(files.names, r"/?[^/]*$", "").dictionary_encode()
        found = tuple(partition_of(above + folder) for folder in coded.dictionary.to_pylist())
        codes = np.asarray(coded.indices)
        keys = found[0].keys
        for code, item in enumerate(found):
            if item.keys != keys or len(set(keys)) < len(keys):
                first, other = (files.names[int(np.argmax(codes == at))].as_py() for at in (0, code))
                difference = f"{other} has the folder columns {_shown(item.keys)}, {first} has {_shown(keys)}"
                msg = (
                    f"files of {location} are in folders of different keys: {difference}; name some by a glob"
                )
                raise SchemaMismatchError(msg, differences=(difference,))
        return cls(keys=keys, folders=found, codes=codes)

    def texts(self, key: str) -> list[str | None]:
        """Return the value of each folder as text."""
        place = self.keys.index(key)
        return [folder.values[place] for folder in self.folders]

    def type_of(self, key: str) -> pa.DataType:
        """Return the type of a column: whole numbers if all values are, else text."""
        return type_of_texts(self.texts(key))

    def values(self, key: str, kind: pa.DataType) -> pa.Array:
        """Return the value of each folder in a type.

        Raises:
            SchemaMismatchError: a value is none of it; names the folder.
        """
        texts = pa.array(self.texts(key), pa.string())
        try:
            return texts.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            for folder, text in zip(self.folders, texts, strict=True):
                try:
                    text.cast(kind)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    difference = (
                        f"{folder.folder}: {text.as_py()!r} is no {kind}, the type of the column {key}"
                    )
                    raise SchemaMismatchError(difference, differences=(difference,)) from error
            raise

    def columns(self) -> tuple[FolderColumn, ...]:
        """Return the columns, with a value for each file."""
        taken = pa.array(self.codes)
        return tuple(
            FolderColumn(name=key, values=self.values(key, self.type_of(key)).take(taken))
            for key in self.keys
        )


def keys_of(files: Files, *, above: str = "") -> frozenset[str]:
    """Return the columns that the folders of any of the files give; see `Partitions.of`."""
    folders = pc.unique(pc.replace_substring_regex(files.names, r"/?[^/]*$", ""))
    return frozenset(key for folder in folders.to_pylist() for key in partition_of(above + folder).keys)


def type_of_texts(texts: Sequence[str | None]) -> pa.DataType:
    """Return the type of the values of a column: whole numbers if all are, else text."""
    if not are_integers(texts):
        return pa.string()
    fits = all(text is None or -(2**31) <= int(text) < 2**31 for text in texts)
    return pa.int32() if fits else pa.int64()


def _shown(keys: Sequence[str]) -> str:
    return ", ".join(keys) if keys else "none"
