"""Tables by the leaves of a tree: created, altered, written, reclustered, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tblctl
from tblctl.tableformat.errors import (
    InvalidDataError,
    InvalidKeyError,
    InvalidPredicateError,
    TableNotFoundError,
    TblctlError,
)
from tblctl.tableformat.keys.order import is_sorted, key_table
from tblctl.tableformat.model.tree import tree_of
from tblctl.tableformat.native.log import snapshot_file
from tblctl.tableformat.native.log.names import snapshot_path
from tblctl.tableformat.native.read import key_sample

SCHEMA = pa.schema([("c", pa.string()), ("x", pa.float64()), ("n", pa.int32())])
CONDITIONS = "c = 'c3'; x < -1 AND c IN ('c1', 'c5'); x BETWEEN 0 AND 0.5; c LIKE 'c7%'; c IS NULL"


def rows(start: int, count: int = 100) -> pa.Table:
    """Return rows with texts and numbers, NULL and NaN in no order."""
    rng = np.random.default_rng(start)
    texts = [None if number == 9 else f"c{number}" for number in rng.integers(0, 10, count).tolist()]
    numbers = np.where(rng.random(count) < 0.1, np.nan, rng.normal(size=count))
    return pa.table(
        {
            "c": texts,
            "x": pa.array(numbers, mask=rng.random(count) < 0.1),
            "n": pa.array(rng.integers(0, 5, count).astype(np.int32)),
        },
        schema=SCHEMA,
    )


def filed(tmp_path: Path, text: str = CONDITIONS, name: str = "cuts.sql") -> str:
    """Return the key of a tree made from conditions."""
    path = tmp_path / name
    path.write_text(text)
    return f"qdtree(file:{path}, min_rows=30)"


def make(url: str, key: str, appends: int = 6) -> tblctl.Table:
    """Return a table by a tree with blocks of 20 rows that overlap."""
    table = tblctl.create(
        url,
        SCHEMA,
        cluster_by=key,
        sample=rows(1000, 600),
        options={"block_rows": 20, "row_group_rows": 5},
    )
    for start in range(appends):
        table.append(rows(start))
    return table


def head(table: tblctl.Table) -> Any:
    return table._native.head()


def every_row(table: tblctl.Table) -> list[str]:
    return sorted(map(repr, table.scan().to_arrow().to_pylist()))


def in_order(table: tblctl.Table) -> bool:
    """Return whether the blocks, by their first keys, hold the rows from leaf to leaf."""
    snapshot = head(table)
    listing = table._port.newest().listing(snapshot.sort, None)
    assert listing.own.all()
    order = np.lexsort((listing.high.column(0).to_numpy(), listing.low.column(0).to_numpy()))
    storage = table._native.storage
    blocks = [pq.read_table(pa.BufferReader(storage.read(listing.paths[int(at)].as_py()))) for at in order]
    return is_sorted(key_table(pa.concat_tables(blocks), snapshot.sort, snapshot.schema), snapshot.sort)


def test_a_recluster_puts_all_rows_by_leaf_and_keeps_them(memory_url: str, tmp_path: Path) -> None:
    table = make(memory_url, filed(tmp_path))
    before = every_row(table)
    assert table.recluster(final=True).committed_groups
    assert in_order(table)
    assert every_row(table) == before
    assert table.check(deep=True).problems == ()
    assert table.recluster(final=True).commits == 0


def test_conditions_read_fewer_blocks_afterwards(memory_url: str, tmp_path: Path) -> None:
    table = make(memory_url, filed(tmp_path))

    def read() -> int:
        return sum(item.blocks_read for item in table.suggest(CONDITIONS).predicates)

    before = read()
    table.recluster(policy="full")
    assert read() <= 0.6 * before


def test_appends_are_sorted_by_the_tree_of_the_table(memory_url: str, tmp_path: Path) -> None:
    table = make(memory_url, filed(tmp_path), appends=1)
    (tmp_path / "cuts.sql").unlink()
    table.append(rows(70))
    assert table.info().unclustered_block_count == 0
    snapshot = head(table)
    read = table._native.storage.read
    for block in table.files():
        written = pq.read_table(pa.BufferReader(read(block.path)))
        assert is_sorted(key_table(written, snapshot.sort, snapshot.schema), snapshot.sort)


def test_blocks_keep_their_leaves_through_deletes_and_updates(memory_url: str, tmp_path: Path) -> None:
    table = make(memory_url, filed(tmp_path))
    table.delete("n = 3")
    assert table.info().unclustered_block_count == 0
    table.update({"c": "c3"}, where="n = 1")
    table.recluster(final=True)
    assert in_order(table)
    assert table.check(deep=True).problems == ()


def test_blocks_by_leaf_do_not_depend_on_the_number_of_tasks(memory_url: str, tmp_path: Path) -> None:
    def contents(url: str, options: dict[str, Any]) -> list[list[str]]:
        table = make(url, filed(tmp_path))
        table.recluster(policy="full", options=options)
        listing = table._port.newest().listing(head(table).sort, None)
        read = table._native.storage.read
        blocks = [pq.read_table(pa.BufferReader(read(path))) for path in listing.paths.to_pylist()]
        return sorted([repr(row) for row in block.to_pylist()] for block in blocks)

    assert contents(memory_url, {}) == contents(memory_url + "/b", {"memory_bytes": 4_000})


def test_a_tree_is_set_on_a_table_with_rows_and_old_blocks_stay(memory_url: str, tmp_path: Path) -> None:
    table = make(memory_url, "n")
    paths = [block.path for block in table.files()]
    key = filed(tmp_path)
    outcome = table.set_cluster_key(key.replace(",", " ,").replace("qdtree(", " QdTree( "))
    assert (outcome.blocks_added, outcome.blocks_removed) == (0, 0)
    assert [block.path for block in table.files()] == paths
    assert table.cluster_by == (key,)
    assert table.history()[0].cluster_by == (key,)
    assert table.info().unclustered_block_count == len(paths)
    before = every_row(table)
    table.recluster(final=True, options={"include_unclustered": True})
    assert in_order(table)
    assert every_row(table) == before


def test_the_same_text_reads_the_file_again_and_keeps_the_sort_if_the_tree_is_the_same(
    memory_url: str, tmp_path: Path
) -> None:
    table = make(memory_url, "n")
    key = filed(tmp_path)
    table.set_cluster_key(key)
    first = head(table).sort
    table.set_cluster_key(key)
    assert head(table).sort == first
    filed(tmp_path, "n = 3")
    table.set_cluster_key(key)
    second = head(table).sort
    assert second.id == first.id + 1
    assert [column_id for column_id, _ in tree_of(second.parameters).columns] == [3]
    assert first.id not in head(table).sorts, "a tree that ended leaves the snapshot"
    assert head(table).next_sort_id == second.id + 1


def test_same_is_refused_for_a_tree_since_the_table_would_choose_the_file(
    memory_url: str, tmp_path: Path
) -> None:
    table = make(memory_url, filed(tmp_path), appends=1)
    before = table.snapshot
    with pytest.raises(InvalidKeyError, match="type it again to grow a new tree"):
        table.set_cluster_key("same")
    assert table.snapshot == before


def test_what_if_measures_a_tree_that_the_table_does_not_have(memory_url: str, tmp_path: Path) -> None:
    table = make(memory_url, "n")
    key = filed(tmp_path)
    before = table.snapshot.sequence
    info = table.info(columns=key)
    assert info.cluster_by_keys == (key,)
    assert info.average_depth > 1
    assert table.snapshot.sequence == before


def test_columns_are_kept_by_id_and_cannot_be_dropped(memory_url: str, tmp_path: Path) -> None:
    key = filed(tmp_path, "c = 'c3'; n < 2")
    table = make(memory_url, key)
    table.rename_column("n", "number")
    table.widen_column("number", "int64")
    table.append(rows(50).rename_columns(["c", "x", "number"]).cast(table.schema))
    table.drop_column("x")
    for name in ("c", "number"):
        with pytest.raises(
            InvalidKeyError, match=rf"column {name} cannot be dropped: the cluster key \(qdtree"
        ):
            table.drop_column(name)
    before = every_row(table)
    table.recluster(policy="full")
    assert every_row(table) == before
    assert table.info().unclustered_block_count == 0
    assert table.check(deep=True).problems == ()


def test_rows_of_a_leaf_are_sorted_by_what_by_says(memory_url: str, tmp_path: Path) -> None:
    key = filed(tmp_path).replace(")", ', by="n desc, truncate(1, c)")')
    table = make(memory_url, key)
    assert table.cluster_by == (key,)
    sort = head(table).sort
    assert [term.column_id for term in sort.within] == [3, 1]
    before = every_row(table)
    table.recluster(policy="full")
    assert in_order(table)
    assert every_row(table) == before
    storage = table._native.storage
    for block in table.files():
        written = pq.read_table(pa.BufferReader(storage.read(block.path)))
        keys = key_table(written, sort, head(table).schema)
        assert keys.schema.types == [pa.uint64(), pa.int32(), pa.string()]
        ends = keys.slice(0, 1).to_pylist() + keys.slice(len(keys) - 1).to_pylist()
        assert [block.min, block.max] == [tuple(end.values()) for end in ends]
        assert is_sorted(keys, sort)
    with pytest.raises(InvalidKeyError, match="column n cannot be dropped"):
        table.drop_column("n")
    assert table.check(deep=True).problems == ()
    table.update({"n": 4}, where="n = 0")
    assert table.check(deep=True).problems == ()
    assert table.info().unclustered_block_count == 0
    snapshot = head(table)
    assert snapshot_file.decode(snapshot_file.encode_snapshot(snapshot), snapshot.sequence) == snapshot


def test_a_tree_grows_from_the_log_of_queries(memory_url: str, tmp_path: Path) -> None:
    """Conditions that fit no column, or hold for no row, are left out."""
    table = tblctl.create(memory_url, rows(0).schema, options={"block_rows": 50})
    table.append(rows(0, 600))
    log = tmp_path / "queries.sql"
    texts = [*CONDITIONS.split(";"), "gone = 1", "a > 5 and a < 2"]
    log.write_text(";\n".join(f"SELECT * FROM t WHERE {text}" for text in texts))
    table.import_workload([str(log)], table="t")
    table.set_cluster_key("qdtree(workload, min_rows=30)")
    assert table.cluster_by == ("qdtree(workload, min_rows=30)",)
    cuts = dict(head(table).sort.parameters)["cuts"]
    assert {(1, "in", ("c3",)), (1, "null", ()), (1, "prefix", ("6337",)), (2, "<", (-1.0,))} <= set(cuts)
    table.recluster(final=True, policy="full")
    assert table.scan("c = 'c3'").explain().blocks_read < table.info().total_block_count / 2


def test_columns_in_structs_are_cut(memory_url: str, tmp_path: Path) -> None:
    data = pa.table({"s": [{"a.b": number % 7, "z": None} for number in range(200)]})
    table = tblctl.create(memory_url, data.schema.remove_metadata(), options={"block_rows": 20})
    table.append(data)
    table.set_cluster_key(filed(tmp_path, 's."a.b" = 3').replace("=30", "=20"))
    table.recluster(policy="full", options={"include_unclustered": True})
    assert in_order(table)
    assert table.suggest(['s."a.b" = 3']).predicates[0].blocks_read <= 3


def test_a_snapshot_with_a_tree_comes_back_as_it_was(memory_url: str, tmp_path: Path) -> None:
    snapshot = head(make(memory_url, filed(tmp_path), appends=1))
    assert snapshot_file.decode(snapshot_file.encode_snapshot(snapshot), snapshot.sequence) == snapshot


def test_only_tables_with_a_tree_ask_for_a_newer_writer(memory_url: str, tmp_path: Path) -> None:
    table = make(memory_url, "n", appends=1)

    def stored() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(table._native.storage.read(snapshot_path(head(table).sequence)))
        return found

    assert stored()["min_writer_version"] == 2
    table.set_cluster_key(filed(tmp_path))
    assert stored()["min_writer_version"] == 5
    assert stored()["sorts"]["2"]["parameters"].keys() == {"text", "columns", "cuts", "nodes"}


def test_leaves_without_min_rows_have_half_the_rows_of_a_block_or_a_64th(
    memory_url: str, tmp_path: Path
) -> None:
    (tmp_path / "n.sql").write_text("\n".join(f"a < {value}" for value in range(10, 1000, 10)))
    data = pa.table({"a": range(1000)})
    for number, (block_rows, least, most) in enumerate([(20, 51, 100), (100_000, 25, 50)]):
        table = tblctl.create(f"{memory_url}/{number}", data.schema, options={"block_rows": block_rows})
        table.append(data)
        table.set_cluster_key(f"qdtree(file:{tmp_path}/n.sql)")
        count = tree_of(head(table).sort.parameters).leaf_count
        assert least <= count <= most


def test_of_many_blocks_some_are_read_and_min_rows_is_scaled(
    memory_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sample.sampling, "SAMPLED_PLACES", 4)
    table = make(memory_url, "n")
    opened = []
    real = key_sample.BlockFile
    monkeypatch.setattr(key_sample, "BlockFile", lambda *words: opened.append(words[1].path) or real(*words))
    table.set_cluster_key(filed(tmp_path, "c < 'c5'").replace("=30", "=60"))
    assert len(opened) == 4
    with pytest.raises(InvalidKeyError, match="leaves 400 of about 600 rows on both sides"):
        table.set_cluster_key(filed(tmp_path, "c < 'c5'").replace("=30", "=400"))


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            "qdtree(workload)",
            r"qdtree\(workload\): .*; name a file of conditions|, or name a file of conditions",
        ),
        ("qdtree(load)", r"expected a file of conditions, as in .*, or qdtree\(workload\)"),
        ("qdtree()", "expected a file of conditions"),
        ("qdtree(cuts.sql)", "expected a file of conditions"),
        ("qdtree(file:)", "path or URL"),
        ("qdtree(file:a.sql", "expected \\)"),
        ("qdtree(file:a.sql, min_rows=0)", "whole number from 1"),
        ("qdtree(file:a.sql, min_rows=many)", "whole number from 1"),
        ("qdtree(file:a.sql, min_rows=1e3)", "expected \\)"),
        ("qdtree(file:a.sql, least=5)", "expected min_rows=N"),
        ("qdtree(file:a.sql, by=n)", "in double quotes"),
        ("qdtree(file:a.sql, by n)", 'by="a, b"'),
        ('qdtree(file:a.sql, by="")', "in double quotes"),
        ('qdtree(file:a.sql, by="gone")', "gone"),
        ('qdtree(file:a.sql, by="n, n desc")', "given twice"),
        ('qdtree(file:a.sql, by="hilbert(n, x)")', "whole cluster key"),
        ('qdtree(file:a.sql, by="n", by="x")', "by is given twice"),
        ("qdtree(file:a.sql, min_rows=1, min_rows=2)", "min_rows is given twice"),
        (f"qdtree(file:{'a' * 4000})", "at most 4,000 characters"),
        ("qdtree(file:a.sql), n", "nothing beside it"),
        ("n, qdtree(file:a.sql)", "whole cluster key"),
        ("qdtree(file:/nowhere/at/all.sql)", "no file of conditions /nowhere/at/all.sql"),
        ("qdtree(file:../x/..)", "file of conditions|cannot be read"),
    ],
)
def test_a_wrong_tree_is_refused_and_nothing_changes(memory_url: str, key: str, words: str) -> None:
    with pytest.raises(InvalidKeyError, match=words):
        tblctl.create(memory_url, SCHEMA, cluster_by=key, sample=rows(0))
    with pytest.raises(TableNotFoundError):
        tblctl.open(memory_url)
    table = tblctl.create(memory_url, SCHEMA, cluster_by="n")
    table.append(rows(0))
    with pytest.raises(InvalidKeyError, match=words):
        table.set_cluster_key(key)
    assert (table.snapshot.sequence, table.cluster_by) == (2, ("n",))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", InvalidKeyError, "has no condition"),
        (" -- nothing\n", InvalidKeyError, "has no condition"),
        (
            "n = 1\nn = = 2",
            InvalidPredicateError,
            r"cuts.sql: cannot read the condition at line 2, column \d+",
        ),
        ("n = 1\n  gone = 2", InvalidPredicateError, r"line 2, column 3: .*gone"),
        (
            "n = 1;\n\n n < 2 AND n > 5;",
            InvalidPredicateError,
            "line 3, column 2: .*no row satisfies n < 2 AND n > 5",
        ),
        ("c IS NULL AND c = 'x'", InvalidPredicateError, "line 1, column 1: .*no row satisfies"),
        ("n = 1.5", InvalidPredicateError, "no row satisfies"),
        ("n = 1\nTRUE", InvalidPredicateError, "line 2, column 1: .*it holds for all rows or for none"),
        ("n > 1 OR TRUE", InvalidPredicateError, "it holds for all rows or for none, whatever"),
        ("c LIKE '%x'", InvalidKeyError, "suggests a cut"),
        ("n < 100", InvalidKeyError, "leaves 30 of about 100 rows on both sides"),
        ("n = 1\n" * 201, InvalidKeyError, "201 conditions, a tree is made from at most 200"),
        ("n = 1 --" + "x" * (1 << 20), InvalidKeyError, "bytes, a file of conditions at most"),
    ],
)
def test_conditions_of_no_use_are_refused_and_nothing_changes(
    memory_url: str, tmp_path: Path, text: str, kind: type[TblctlError], words: str
) -> None:
    table = tblctl.create(memory_url, SCHEMA, cluster_by="n")
    table.append(rows(0))
    with pytest.raises(kind, match=words):
        table.set_cluster_key(filed(tmp_path, text))
    assert (table.snapshot.sequence, table.cluster_by) == (2, ("n",))


def test_a_file_that_is_no_text_is_refused(memory_url: str, tmp_path: Path) -> None:
    (tmp_path / "cuts.sql").write_bytes(b"c = '\xff'")
    with pytest.raises(InvalidKeyError, match="no text in UTF-8"):
        tblctl.create(memory_url, SCHEMA, cluster_by=f"qdtree(file:{tmp_path}/cuts.sql)", sample=rows(0))


def test_a_tree_needs_rows(memory_url: str, tmp_path: Path) -> None:
    key = filed(tmp_path)
    with pytest.raises(InvalidKeyError, match="a tree takes its cuts from rows, and a new table has none"):
        tblctl.create(memory_url, SCHEMA, cluster_by=key)
    with pytest.raises(InvalidKeyError, match="the table given has none"):
        tblctl.create(memory_url, SCHEMA, cluster_by=key, sample=rows(0, 0))
    with pytest.raises(InvalidDataError, match="has no column c"):
        tblctl.create(memory_url, SCHEMA, cluster_by=key, sample=rows(0).drop(["c"]))
    table = tblctl.create(memory_url, SCHEMA)
    with pytest.raises(InvalidKeyError, match="append rows first"):
        table.set_cluster_key(key)
    assert table.snapshot.sequence == 1


def test_a_file_with_an_odd_name_is_quoted(memory_url: str, tmp_path: Path) -> None:
    (tmp_path / 'odd, (") name.sql').write_text("n < 2")
    path = str(tmp_path / 'odd, (") name.sql').replace('"', '""')
    table = make(memory_url, f'qdtree(file:"{path}")', appends=1)
    assert table.cluster_by == (f'qdtree(file:"{path}")',)
    table.set_cluster_key(table.cluster_by)


def test_a_column_called_qdtree_is_still_a_key(memory_url: str) -> None:
    table = tblctl.create(memory_url, "qdtree: int64", cluster_by="qdtree desc")
    assert table.cluster_by == ("qdtree desc",)
