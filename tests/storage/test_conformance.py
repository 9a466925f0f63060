"""Every behaviour of Storage on every backend: local disk, memory, S3 on moto's server, S3 on MinIO."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import racing

from tblctl.tableformat.errors import CorruptTableError, ObjectNotFoundError
from tblctl.tableformat.storage import Storage

UNSAFE_NAMES = [
    "",
    "/etc/passwd",
    "..",
    "../x",
    "data/../../x",
    "data/..",
    ".",
    "./x",
    "data/./x",
    "data//x",
    "data/",
    "a\\b",
    "..\\x",
    "a\0b",
    "C:/x",
    "c:x",
    "x" * 1025,
    "ä" * 600,
    "\ud800",
    None,
    7,
    b"x",
]


@pytest.fixture
def storage(location):
    return location.storage()


def names_below(storage, prefix=""):
    return [info.name for info in storage.list(prefix)]


def test_what_was_written_is_read_back(storage):
    storage.write("data/a.bin", b"one")
    assert storage.read("data/a.bin") == b"one"
    storage.write("data/a.bin", b"two")
    assert storage.read("data/a.bin") == b"two"


def test_an_arrow_buffer_and_an_empty_object_can_be_written(storage):
    storage.write("buffer", pa.py_buffer(b"from arrow"))
    storage.write("empty", b"")
    assert storage.create("created", pa.py_buffer(b"")) is True
    assert storage.read("buffer") == b"from arrow"
    assert storage.read("empty") == storage.read("created") == b""


def test_reading_a_missing_object_says_so_and_names_it(storage):
    with pytest.raises(ObjectNotFoundError, match="data/none") as caught:
        storage.read("data/none")
    assert storage.url in str(caught.value)
    assert storage.try_read("data/none") is None


def test_a_folder_is_not_an_object(storage):
    storage.write("data/a", b"1")
    assert storage.try_read("data") is None
    assert [at is None for at in storage.modified(["data", "data/a", "data/a/b"])] == [True, False, True]
    assert storage.try_read("data/a/b") is None


def test_create_takes_a_free_name_once(storage):
    assert storage.create("metadata/snapshots/1.json", b"first") is True
    assert storage.create("metadata/snapshots/1.json", b"second") is False
    assert storage.read("metadata/snapshots/1.json") == b"first"


def test_create_does_not_replace_what_write_wrote(storage):
    storage.write("a", b"written")
    assert storage.create("a", b"created") is False
    assert storage.read("a") == b"written"


def test_a_refused_create_leaves_nothing_behind(storage):
    storage.create("m/a", b"1")
    storage.create("m/a", b"2")
    assert names_below(storage) == ["m/a"]


def test_a_big_object_is_created_once(storage):
    big = os.urandom(1 << 20) * 30
    assert storage.create("big", big) is True
    assert storage.create("big", b"x" * len(big)) is False
    assert storage.read("big") == big


def one_winner_of_16(storage_of_thread, name):
    """Race 16 threads for `name`; return the winner's number, having checked that there is exactly one."""
    barrier = threading.Barrier(16)

    def attempt(number):
        storage = storage_of_thread()
        storage.modified(["warm-up"])
        barrier.wait()
        return storage.create(name, f"thread {number}".encode())

    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(attempt, range(16)))
    assert won.count(True) == 1, won
    return won.index(True)


@pytest.mark.parametrize("shared", [True, False], ids=["one Storage", "a Storage each"])
def test_of_16_threads_that_create_a_name_exactly_one_wins(location, shared):
    if location.kind == "moto":
        pytest.skip(
            "moto's source looks first and stores then, without a lock: this would race moto, not tblctl"
        )
    storage = location.storage()
    for number in range(5 if shared else 2):  # opening S3 takes 0.1 s of CPU
        name = f"metadata/snapshots/{number}.json"
        winner = one_winner_of_16((lambda: storage) if shared else location.storage, name)
        assert storage.read(name) == f"thread {winner}".encode()


def test_of_8_processes_that_create_a_name_exactly_one_wins(location):
    if location.kind in {"memory", "moto"}:
        pytest.skip(f"{location.kind}: not shared between processes, or without an atomic create of its own")
    names = [f"metadata/snapshots/{number}.json" for number in range(20)]
    pickled = pickle.dumps(location.storage())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["s3fs", "tblctl"])
    with ProcessPoolExecutor(8, mp_context=context) as pool:
        start_seconds = time.time() + 2
        jobs = [pool.submit(racing.create_all, pickled, worker, names, start_seconds) for worker in range(8)]
        won = [job.result() for job in jobs]
    for number, name in enumerate(names):
        winners = [worker for worker in range(8) if won[worker][number]]
        assert len(winners) == 1, (name, winners)
        assert location.storage().read(name) == f"worker {winners[0]}".encode()
    assert names_below(location.storage()) == sorted(names)


def test_read_many_keeps_the_order_and_gives_none_for_missing_ones(storage):
    names = [f"data/{number}" for number in range(100)]
    for name in names[::2]:
        storage.write(name, name.encode())
    contents = storage.read_many(names[::-1])
    assert contents == [name.encode() if int(name[5:]) % 2 == 0 else None for name in names[::-1]]
    assert storage.read_many([]) == []


def test_modified_tells_when_each_object_was_written_by_the_time_of_the_listing(storage):
    storage.write("data/a", b"")
    storage.write("data/b", b"")
    found = storage.modified(["data/x", "data/a", "data/y", "data/b"])
    assert [at is None for at in found] == [True, False, True, False]
    listed = {item.name: item.modified_seconds for item in storage.list()}
    step = storage.time_step_seconds
    for name, at in zip(["data/a", "data/b"], found[1::2], strict=True):
        # S3 shows whole seconds here and may show milliseconds there: the same when rounded down to steps.
        assert at // step == listed[name] // step if step == 1 else at == listed[name]
    assert abs(found[1] - time.time()) < 60  # the servers of these tests have this machine's clock
    assert storage.modified([]) == []


def test_what_is_written_a_step_of_the_clock_later_bears_a_later_time(storage):
    storage.write("a", b"")
    time.sleep(storage.time_step_seconds)
    storage.write("b", b"")
    first, second = storage.modified(["a", "b"])
    assert first < second


def test_deleted_objects_are_gone_and_missing_ones_ignored(storage):
    for name in ("data/a", "data/b", "data/c"):
        storage.write(name, b"1")
    storage.delete(["data/a", "data/none", "nowhere/at/all", "data/c"])
    storage.delete([])
    assert names_below(storage) == ["data/b"]
    assert storage.try_read("data/a") is None


def test_more_objects_than_one_request_holds_can_be_listed_and_deleted(storage):
    names = [f"data/{number:04d}" for number in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: storage.write(name, b"x"), names))
    assert names_below(storage, "data/") == names
    storage.delete(names)
    assert storage.is_empty()


def test_a_listing_is_sorted_and_knows_sizes_and_times(storage):
    before = time.time()
    for name in ("b", "a/b", "a-b", "ab", "a/a/z", "a.b"):
        storage.write(name, name.encode())
    infos = list(storage.list(""))
    assert [info.name for info in infos] == sorted(["b", "a/b", "a-b", "ab", "a/a/z", "a.b"])
    assert [info.size_bytes for info in infos] == [len(info.name) for info in infos]
    assert all(before - 5 <= info.modified_seconds <= time.time() + 4 for info in infos)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", ["data/1", "data/12", "data2/1", "metadata/latest", "metadata/snapshots/1"]),
        ("data/", ["data/1", "data/12"]),
        ("data", ["data/1", "data/12", "data2/1"]),
        ("data/12", ["data/12"]),
        ("metadata/snapshots/", ["metadata/snapshots/1"]),
        ("metadata/s", ["metadata/snapshots/1"]),
        ("nothing/here/", []),
        ("data/1/", []),
    ],
)
def test_a_listing_holds_exactly_the_names_that_start_with_the_prefix(storage, prefix, expected):
    for name in ("data/1", "data/12", "data2/1", "metadata/latest", "metadata/snapshots/1"):
        storage.write(name, b"")
    assert names_below(storage, prefix) == expected


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("", ["data/", "data2/", "metadata/"]),
        ("data/", []),
        ("metadata/", ["metadata/snapshots/"]),
        ("nothing/", []),
        ("metadata/latest/", []),
    ],
)
def test_folders_are_those_right_below_one(storage, folder, expected):
    assert storage.folders() == []
    for name in ("data/1", "data/12", "data2/1", "metadata/latest", "metadata/snapshots/1", "top"):
        storage.write(name, b"")
    assert storage.folders(folder) == expected


def test_a_listing_sees_what_another_storage_just_wrote_and_deleted(location):
    one, other = location.storage(), location.storage()
    assert names_below(one) == []
    other.write("data/a", b"")
    assert names_below(one) == ["data/a"]
    other.delete(["data/a"])
    assert names_below(one) == []


def test_a_neighbour_whose_name_starts_alike_is_not_touched(location):
    neighbour = Storage(location.url + "2", location.storage_options)
    neighbour.write("data/a", b"kept")
    storage = location.storage()
    assert storage.is_empty()
    storage.write("data/a", b"")
    storage.delete_all()
    assert storage.is_empty()
    assert neighbour.read("data/a") == b"kept"
    neighbour.delete_all()


def test_delete_all_leaves_nothing_and_can_be_repeated(storage):
    for name in ("data/a", "metadata/latest", "metadata/snapshots/1", "deep/er/est/x", ".tmp-1"):
        storage.write(name, b"1")
    assert not storage.is_empty()
    storage.delete_all()
    assert storage.is_empty()
    assert names_below(storage) == []
    storage.delete_all()


@pytest.mark.parametrize("name", UNSAFE_NAMES, ids=lambda name: ascii(name)[:20])
def test_an_unsafe_name_is_refused_by_every_call(storage, name):
    calls = [
        lambda: storage.read(name),
        lambda: storage.try_read(name),
        lambda: storage.read_many(["fine", name]),
        lambda: storage.write(name, b""),
        lambda: storage.create(name, b""),
        lambda: storage.delete(["fine", name]),
        lambda: storage.modified([name]),
        lambda: storage.open_input(name),
    ]
    if name not in ("", "data/"):
        calls.append(lambda: storage.list(name))
    for call in calls:
        with pytest.raises(CorruptTableError, match="unsafe name"):
            call()
    assert storage.is_empty()


@pytest.mark.parametrize(
    "name",
    [".tmp-1", "a..b", "...", "data/ä ö.parquet", "ab:c/d", "it's [odd]*?.json", "%2e%2e/x", "x" * 200],
)
def test_an_odd_but_safe_name_works(storage, name):
    assert storage.create(name, b"1") is True
    assert storage.read(name) == b"1"
    assert storage.read_many([name]) == [b"1"]
    assert names_below(storage) == [name]
    assert storage.modified([name]) != [None]
    storage.delete([name])
    assert storage.is_empty()


def test_storage_survives_pickling(location):
    storage = location.storage()
    storage.write("a", b"1")
    again = pickle.loads(pickle.dumps(storage))
    assert (again.url, repr(again)) == (storage.url, repr(storage))
    assert again.read("a") == b"1"


def test_storage_that_was_used_works_in_a_forked_child(location):
    storage = location.storage()
    storage.write("a", b"1")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        assert pool.submit(racing.read_it, storage, "a").result(60) == b"1"


def test_threads_can_share_one_storage(storage):
    def work(number):
        name = f"data/{number}"
        storage.write(name, name.encode())
        written, none = storage.modified([name, "none"])
        return storage.read(name) == name.encode() and written is not None and none is None

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(64)))
    assert len(names_below(storage)) == 64


def test_an_object_opens_for_random_access(storage):
    content = bytes(range(256)) * 100
    storage.write("data/a", content)
    for size_bytes in (None, len(content)):
        with storage.open_input("data/a", size_bytes=size_bytes) as file:
            assert file.size() == len(content)
            assert file.read_at(10, 300) == content[300:310]
            assert file.read_at(100, len(content) - 10) == content[-10:]
            assert file.seek(5) == 5
            assert file.read(3) == content[5:8]
            assert file.read() == content[8:]


def test_opening_a_missing_object_says_so(storage):
    with pytest.raises(ObjectNotFoundError, match="data/none"):
        storage.open_input("data/none")


def test_parquet_is_read_through_open_input_from_many_threads(storage):
    table = pa.table({"a": range(10_000), "b": [str(number) for number in range(10_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1_000)
    storage.write("data/a.parquet", sink.getvalue())

    def read(_number):
        with storage.open_input("data/a.parquet") as file:
            return pq.ParquetFile(file, pre_buffer=True).read().equals(table)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(16)))


def test_a_dataset_reads_through_the_arrow_filesystem(storage):
    table = pa.table({"a": range(1_000)})
    for number in range(3):
        sink = pa.BufferOutputStream()
        pq.write_table(table.slice(number * 300, 300), sink)
        storage.write(f"data/{number}.parquet", sink.getvalue())
    filesystem, root = storage.arrow_filesystem()
    paths = [f"{root}/data/{number}.parquet" for number in range(3)]
    dataset = ds.dataset(paths, format="parquet", filesystem=filesystem)
    assert dataset.count_rows() == 900
    assert dataset.to_table(filter=ds.field("a") >= 890).num_rows == 10
