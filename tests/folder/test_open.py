"""What is opened as a folder of plain Parquet, and what is refused with which words."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tblctl
from tblctl.clustered import ClusteredTable
from tblctl.errors import (
    AccessDeniedError,
    CorruptTableError,
    InvalidDataError,
    InvalidKeyError,
    InvalidOptionError,
    SnapshotNotFoundError,
    TableNotFoundError,
    UnsupportedFormatError,
)
from tblctl.folder import NotInFolderError
from tblctl.tableformat.folder.listing import list_files
from tblctl.tableformat.folder.names import Chosen
from tblctl.tableformat.folder.port import FolderPort
from tblctl.tableformat.storage import Storage

from .files import interleaved, write


def test_files_of_a_folder_are_the_blocks(tmp_path):
    table = tblctl.open(interleaved(tmp_path))
    assert isinstance(table, tblctl.ParquetFolder)
    by_at, by_id = table.info("at"), table.info("id")
    assert (by_at.total_block_count, by_at.rows, by_at.average_depth) == (8, 160, 8.0)
    assert by_id.average_depth == 1.0
    assert table.cluster_by == ()


def test_a_condition_picks_files(tmp_path):
    table = tblctl.open(interleaved(tmp_path))
    assert table.info("at", "id < 40").total_block_count == 2


def test_a_table_of_tblctl_opens_as_that(tmp_path):
    table = tblctl.create(tmp_path / "t", "a: int64", cluster_by="a")
    table.append(pa.table({"a": [1, 2]}))
    assert type(tblctl.open(tmp_path / "t")) is tblctl.Table


def test_a_folder_is_seen_as_it_was_when_it_was_opened(tmp_path):
    table = tblctl.open(interleaved(tmp_path))
    write(tmp_path, "new.parquet", {"at": [1], "id": [1]})
    assert table.info("at").total_block_count == 8
    assert tblctl.open(tmp_path).info("at").total_block_count == 9


def test_a_glob_and_a_file_are_opened(tmp_path):
    interleaved(tmp_path / "in")
    assert tblctl.open(tmp_path / "in" / "part-[0-2].parquet").info("at").total_block_count == 3
    assert tblctl.open(tmp_path / "in" / "part-7.parquet").info("at").total_block_count == 1
    shutil.move(tmp_path / "in" / "part-0.parquet", tmp_path / "in" / "[odd].pq")
    assert tblctl.open(tmp_path / "in" / "[odd].pq").info("at").total_block_count == 1


def test_a_folder_with_a_wildcard_in_its_name_is_opened(tmp_path):
    assert tblctl.open(interleaved(tmp_path / "in [2024]*")).info("at").total_block_count == 8


def test_a_folder_of_files_without_rows_is_measured(tmp_path):
    write(tmp_path, "a.parquet", {"x": pa.array([], pa.int64())})
    table = tblctl.open(tmp_path)
    assert table.info("x").total_block_count == 0
    assert table.suggest().candidates == ()
    assert not table.gain("x").is_worth_it
    assert table.snapshot.blocks == 0


def test_a_handle_can_be_pickled(tmp_path):
    table = pickle.loads(pickle.dumps(tblctl.open(interleaved(tmp_path))))
    assert table.info("at").total_block_count == 8


@pytest.mark.parametrize("place", ["missing", "empty"])
def test_a_place_without_parquet_files_is_not_found_with_a_hint(tmp_path, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("x")
    with pytest.raises(
        TableNotFoundError, match=r"there is no table at .*`tblctl create`.*Nor is there a file \*\.parquet"
    ):
        tblctl.open(tmp_path / place)
    with pytest.raises(TableNotFoundError, match=r"no file below .* matches '\*\.pq'"):
        tblctl.open(tmp_path / place / "*.pq")


def test_a_search_in_vain_ends(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x")
    write(tmp_path, "z.parquet", {"x": [1]})
    storage = Storage(tmp_path)
    assert len(list_files(storage, Chosen(), most_in_vain=5)) == 1
    with pytest.raises(TableNotFoundError):
        list_files(storage, Chosen(), most_in_vain=4)


def delta(folder: Path) -> None:
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / "00000000000000000000.json").write_text("{}")


def iceberg(folder: Path) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "v1.metadata.json").write_text("{}")


def hudi(folder: Path) -> None:
    (folder / ".hoodie").mkdir(parents=True)
    (folder / ".hoodie" / "hoodie.properties").write_text("")


FOREIGN = {"a Delta table": delta, "an Iceberg table": iceberg, "a Hudi table": hudi}


@pytest.mark.parametrize("opened", [".", "day=1", "*.parquet", "day=1/*", "day=1/a.parquet"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_table_of_another_format_is_never_read_as_plain_files(tmp_path, kind, opened):
    FOREIGN[kind](tmp_path / "t")
    write(tmp_path / "t", "a.parquet", {"x": [1]})
    write(tmp_path / "t", "day=1/a.parquet", {"x": [1]})
    if (kind, opened) == ("a Delta table", "."):  # it is read as one: here its log is damaged
        with pytest.raises(CorruptTableError, match="cannot be read as a Delta table"):
            tblctl.open(tmp_path / "t")
        return
    with pytest.raises(UnsupportedFormatError, match=f"{kind}.*not read as plain Parquet") as caught:
        tblctl.open(tmp_path / "t" / opened)
    assert str(tmp_path / "t") in str(caught.value)
    assert ("iceberg://CATALOG/NAMESPACE.TABLE" in str(caught.value)) == (kind == "an Iceberg table")


def test_a_folder_that_holds_a_table_is_refused_and_the_table_is_named(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1]})
    delta(tmp_path / "deep" / "t")
    with pytest.raises(UnsupportedFormatError, match=r"deep/t is a Delta table"):
        tblctl.open(tmp_path)
    shutil.rmtree(tmp_path / "deep")
    table = tblctl.create(tmp_path / "mine", "a: int64")
    table.append(pa.table({"a": [1]}))
    with pytest.raises(
        UnsupportedFormatError, match=r"mine is a table of tblctl.*name the table itself.*info --all"
    ):
        tblctl.open(tmp_path)
    with pytest.raises(UnsupportedFormatError, match="inside of a table of tblctl"):
        tblctl.open(tmp_path / "mine" / "data")


def test_a_folder_above_that_may_not_be_listed_is_no_error(tmp_path):
    class Restricted(Storage):
        def list(self, prefix=""):
            if not self.url.endswith("day=1"):
                raise AccessDeniedError("not yours")
            return super().list(prefix)

        def elsewhere(self, url, more=None):
            del more
            return Restricted(url)

    write(tmp_path, "day=1/a.parquet", {"x": [1]})
    assert len(list_files(Restricted(tmp_path / "day=1"), Chosen())) == 1
    with pytest.raises(AccessDeniedError):
        list_files(Restricted(tmp_path), Chosen())


@pytest.mark.parametrize("left", ["metadata", "data"])
def test_what_is_left_of_a_dropped_table_is_no_folder_of_plain_files(tmp_path, left):
    table = tblctl.create(tmp_path / "t", "a: int64")
    table.append(pa.table({"a": [1]}))
    if left == "data":
        shutil.rmtree(tmp_path / "t" / "metadata")
    else:
        shutil.rmtree(tmp_path / "t" / "metadata" / "snapshots")
        (tmp_path / "t" / "metadata" / "segments" / "x").write_text("")
    with pytest.raises(TableNotFoundError, match="there is no table at"):
        tblctl.open(tmp_path / "t")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def other(path: Path) -> None:
    path.write_bytes(b"no Parquet at all, but some text that is longer than that")


def encrypted(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + b"PARE")


def garbled(path: Path) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - length] + bytes(length) + data[-8:])


DAMAGE = {
    "is empty (0 bytes), expected a Parquet file": lambda path: path.write_bytes(b""),
    "is cut short": cut,
    "is not Parquet: it begins with b'no P', expected b'PAR1'": other,
    "is encrypted": encrypted,
    "is damaged": garbled,
}


@pytest.mark.parametrize("problem", DAMAGE)
def test_a_file_that_cannot_be_read_is_named_with_what_was_expected(tmp_path, problem):
    interleaved(tmp_path)
    DAMAGE[problem](tmp_path / "part-3.parquet")
    with pytest.raises(InvalidDataError) as caught:
        tblctl.open(tmp_path).info("at")
    assert f"part-3.parquet {problem}" in str(caught.value)
    assert "name the others by a glob" in str(caught.value)
    assert tblctl.open(tmp_path / "part-[!3].parquet").info("at").total_block_count == 7


def test_files_with_encrypted_columns_are_named(tmp_path):
    from pyarrow.parquet import encryption as pe

    class Kms(pe.KmsClient):
        def wrap_key(self, key, name):
            return key

        def unwrap_key(self, key, name):
            return key

    factory = pe.CryptoFactory(lambda _config: Kms())
    columns = {"key": ["x"]}
    config = pe.EncryptionConfiguration(
        footer_key="key",
        column_keys=columns,
        plaintext_footer=True,
        internal_key_material=True,
        double_wrapping=False,
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet", encryption_properties=properties)
    with pytest.raises(InvalidDataError, match=r"a\.parquet has encrypted columns"):
        tblctl.open(tmp_path).info("x")


def test_of_many_damaged_files_some_are_named_and_all_are_counted(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.parquet").write_bytes(b"")
    with pytest.raises(InvalidDataError, match=r"0\.parquet is empty.*and 4 more") as caught:
        tblctl.open(tmp_path).info("x")
    assert caught.value.details["files"] == 9


def test_links_are_not_followed_so_no_loop_is_endless(tmp_path):
    interleaved(tmp_path / "in", count=2)
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "z.parquet").symlink_to(tmp_path / "in" / "part-0.parquet")
    assert tblctl.open(tmp_path / "in").info("at").total_block_count == 2
    assert tblctl.open(tmp_path / "in" / "again").info("at").total_block_count == 2
    assert tblctl.open(tmp_path / "in" / "z.parquet").info("at").total_block_count == 1


def test_a_name_that_cannot_be_read_is_refused(tmp_path):
    write(tmp_path, "a\\b.parquet", {"x": [1]})
    with pytest.raises(InvalidDataError, match="backslash"):
        tblctl.open(tmp_path)


READS = {"close", "history", "info", "picture", "suggest", "depth_history"}


@pytest.mark.parametrize("cls", [ClusteredTable, tblctl.Table])
def test_everything_but_looking_is_refused(tmp_path, cls):
    table = tblctl.open(interleaved(tmp_path, count=1))
    names = {name for name in vars(cls) if not name.startswith("_") and callable(getattr(cls, name))} - READS
    assert names
    for name in sorted(names):
        with pytest.raises(NotInFolderError, match=rf"{name} is for tables; .* only measures"):
            getattr(table, name)()
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = table.nonsense
    assert not hasattr(table, "append")


def test_no_column_to_measure_by_is_an_error_that_lists_columns(tmp_path):
    table = tblctl.open(interleaved(tmp_path))
    for measure in (table.info, lambda: table.picture(tmp_path / "x.svg")):
        with pytest.raises(InvalidKeyError, match=r"--columns a,b`\) of at, id; `tblctl suggest`"):
            measure()


def test_options_of_tables_are_refused(tmp_path):
    interleaved(tmp_path)
    with pytest.raises(InvalidOptionError, match="no versions"):
        tblctl.open(tmp_path, as_of=3)
    with pytest.raises(InvalidOptionError, match="branch"):
        tblctl.open(tmp_path, branch="b")


def test_the_port_has_one_version_and_writes_nothing(tmp_path):
    port = FolderPort.of(interleaved(tmp_path))
    version = port.newest()
    assert port.version(version.id) is version
    assert port.parse_id(version.id) == version.id
    assert port.parse_id("x") is None
    assert [entry.id for entry in port.history()] == [version.id]
    assert port.entry(version).summary.rows == 160
    assert version.blocks(["part-0.parquet"]) == {}
    for refused in (lambda: port.version("x"), lambda: port.version_at(0)):
        with pytest.raises(SnapshotNotFoundError):
            refused()
    for refused in (
        lambda: port.block_io(version),
        lambda: port.replace(version, None),
        lambda: port.plan_storage(None),
        lambda: port.collect_garbage(keep=1, older_than_seconds=0, dry_run=False),
        lambda: port.check(deep=False, progress=None),
    ):
        with pytest.raises(InvalidOptionError, match="only read"):
            refused()


def test_files_that_were_written_again_are_another_version(tmp_path):
    write(tmp_path, "a.parquet", {"x": [1]})
    first = FolderPort.of(tmp_path).newest().id
    assert FolderPort.of(tmp_path).newest().id == first
    write(tmp_path, "a.parquet", {"x": [1, 2]})
    assert FolderPort.of(tmp_path).newest().id != first
