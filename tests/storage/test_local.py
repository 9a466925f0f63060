"""Behaviour of local disk only: links, flushes, full disks, folders."""

# ruff: noqa: PTH112, PTH115 (what is patched and looked at is the os module)

from __future__ import annotations

import errno
import os
import pickle
import shutil

import pytest

from tblctl.tableformat.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    CorruptTableError,
    InputError,
    StorageError,
    UnsupportedBackendError,
)
from tblctl.tableformat.storage import Storage


@pytest.fixture
def root(tmp_path):
    return tmp_path / "table"


@pytest.fixture
def storage(root):
    return Storage(str(root))


def failing(code):
    def fail(*_arguments, **_options):
        raise OSError(code, os.strerror(code))

    return fail


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def test_paths_urls_and_home_mean_the_same_place(root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for url in (
        "table",
        "./table/",
        f"file://{root}",
        f"file://localhost{root}",
        "~/table",
        "x/../table",
        root,
    ):
        assert Storage(url).url == str(root), url


def test_a_relative_path_stays_the_same_place_when_the_working_folder_changes(root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    storage = Storage("table")
    monkeypatch.chdir("/")
    storage.write("a", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"
    assert (root / "a").read_bytes() == b"1"


@pytest.mark.parametrize("url", ["", "a\0b"])
def test_an_empty_location_is_refused(url):
    with pytest.raises(InputError, match="location"):
        Storage(url)


@pytest.mark.parametrize("operation", ["write", "create"])
def test_content_is_flushed_before_its_name_is_published_and_the_folder_after(
    storage, root, monkeypatch, operation
):
    (root / "m").mkdir(parents=True)
    events = []
    fsync = os.fsync
    link, replace = os.link, os.replace

    def log_fsync(handle):
        events.append("flush folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "flush file")
        fsync(handle)

    def log_link(*names):
        events.append("publish")
        link(*names)

    def log_replace(*names):
        events.append("publish")
        replace(*names)

    monkeypatch.setattr(os, "fsync", log_fsync)
    monkeypatch.setattr(os, "link", log_link)
    monkeypatch.setattr(os, "replace", log_replace)
    getattr(storage, operation)("m/a", b"1")
    assert events == ["flush file", "publish", "flush folder"]


def test_every_folder_that_was_made_is_flushed_in_its_parent(storage, root, monkeypatch):
    flushed = []
    fsync = os.fsync

    def log(handle):
        flushed.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", log)
    storage.write("metadata/snapshots/1", b"")
    folders = [root.parent, root, root / "metadata", root / "metadata" / "snapshots"]
    assert [path for path in flushed if os.path.isdir(path)] == [str(folder) for folder in folders]


@pytest.mark.parametrize("operation", ["write", "create"])
@pytest.mark.parametrize("edge", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_storage_error_and_leaves_no_part(storage, root, monkeypatch, operation, edge, code):
    storage.write("data/old", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, edge, failing(code))
        with pytest.raises(StorageError, match=r"data/new.*full") as caught:
            getattr(storage, operation)("data/new", b"x" * 1000)
        with pytest.raises(StorageError):
            storage.write("data/old", b"new")
    assert type(caught.value) is StorageError
    assert files_below(root) == ["data/old"]
    assert storage.read("data/old") == b"old"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_read_only_folder_is_access_denied(storage, root, monkeypatch, code):
    storage.write("data/old", b"old")
    real = os.open

    def read_only(path, flags, *mode):
        if flags & os.O_WRONLY:
            raise OSError(code, os.strerror(code), path)
        return real(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        patch.setattr(os, "unlink", failing(code))
        for call in (
            lambda: storage.write("data/new", b""),
            lambda: storage.create("data/new", b""),
            lambda: storage.delete(["data/old"]),
        ):
            with pytest.raises(AccessDeniedError, match="permissions"):
                call()
    assert files_below(root) == ["data/old"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere: the errors are simulated above")
def test_a_folder_without_write_permission_is_access_denied(storage, root):
    root.mkdir()
    root.chmod(0o500)
    with pytest.raises(AccessDeniedError):
        storage.write("a", b"")
    root.chmod(0o700)


def test_permission_to_read_denied_is_not_taken_for_missing(storage, monkeypatch):
    storage.write("data/a", b"")
    monkeypatch.setattr("builtins.open", failing(errno.EACCES))
    monkeypatch.setattr(os, "stat", failing(errno.EACCES))
    monkeypatch.setattr(os, "scandir", failing(errno.EACCES))
    for call in (
        lambda: storage.read("data/a"),
        lambda: storage.try_read("data/a"),
        lambda: storage.read_many(["data/a"]),
        lambda: storage.modified(["data/a"]),
        lambda: list(storage.list("")),
        storage.is_empty,
    ):
        with pytest.raises(AccessDeniedError):
            call()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_filesystem_without_hard_links_is_refused_at_create(storage, root, monkeypatch, code):
    monkeypatch.setattr(os, "link", failing(code))
    with pytest.raises(UnsupportedBackendError, match="hard links"):
        storage.create("metadata/snapshots/1", b"")
    assert files_below(root) == []


def test_a_create_that_the_disk_did_not_confirm_has_an_unknown_outcome(storage, monkeypatch):
    storage.write("m/other", b"")
    real = os.fsync

    def fail_on_folders(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_on_folders)
        with pytest.raises(CommitOutcomeUnknownError, match="m/a") as caught:
            storage.create("m/a", b"mine")
    assert caught.value.details["not_durable"] is True
    assert storage.read("m/a") == b"mine"


def test_a_folder_that_could_not_be_flushed_is_flushed_again(storage, monkeypatch):
    storage.write("m/other", b"")
    real, seen = os.fsync, []

    def fail_first(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            seen.append(handle)
            if len(seen) == 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_first)
    assert storage.create("m/a", b"mine") is True
    assert len(seen) == 2


@pytest.mark.parametrize("operation", ["write", "create"])
def test_a_temporary_file_that_cannot_be_removed_does_not_undo_what_was_published(
    storage, monkeypatch, operation
):
    monkeypatch.setattr(os, "unlink", failing(errno.EIO))
    assert getattr(storage, operation)("m/a", b"mine") in {True, None}
    assert storage.read("m/a") == b"mine"
    if operation == "create":
        assert storage.create("m/a", b"other") is False


def test_a_temporary_file_whose_name_is_taken_is_not_taken_for_the_object(storage, monkeypatch):
    storage.write("m/other", b"")
    real = os.open

    def taken(path, flags, *mode):
        if flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return real(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", taken)
        with pytest.raises(StorageError, match="m/a"):
            storage.create("m/a", b"mine")
    assert storage.try_read("m/a") is None
    assert storage.create("m/a", b"mine") is True


def test_short_writes_are_continued(storage, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:7]))
    storage.write("a", bytes(range(256)))
    assert storage.read("a") == bytes(range(256))


@pytest.mark.parametrize("operation", ["write", "create"])
def test_an_interrupt_leaves_no_temporary_file(storage, root, monkeypatch, operation):
    def interrupt(*_names):
        raise KeyboardInterrupt

    storage.write("m/old", b"")
    monkeypatch.setattr(os, "link", interrupt)
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        getattr(storage, operation)("m/a", b"1")
    assert files_below(root) == ["m/old"]


@pytest.fixture
def sweep(root, monkeypatch):
    """Remove temporary files as soon as they are flushed, as a gc without a grace period may, several times."""
    real, left = os.fsync, [0]

    def flush(handle):
        real(handle)
        for path in root.rglob(".tmp-*") if left[0] else ():
            left[0] -= 1
            path.unlink()

    monkeypatch.setattr(os, "fsync", flush)
    return left


@pytest.mark.parametrize("operation", ["write", "create"])
def test_a_temporary_file_that_a_gc_removes_is_written_again(storage, root, sweep, operation):
    sweep[0] = 2
    assert getattr(storage, operation)("m/a", b"mine") in {True, None}
    assert sweep == [0]
    assert (files_below(root), storage.read("m/a")) == (["m/a"], b"mine")
    if operation == "create":
        sweep[0] = 1
        assert storage.create("m/a", b"other") is False
        assert storage.read("m/a") == b"mine"


@pytest.mark.parametrize("operation", ["write", "create"])
def test_a_gc_that_removes_every_temporary_file_is_named(storage, root, sweep, operation):
    sweep[0] = 1_000
    with pytest.raises(StorageError, match=r"m/a.*removed 10 times.*older_than"):
        getattr(storage, operation)("m/a", b"mine")
    assert files_below(root) == []


@pytest.mark.parametrize("operation", ["write", "create"])
def test_a_table_that_is_deleted_meanwhile_does_not_come_back(storage, root, monkeypatch, operation):
    real = os.fsync

    def flush(handle):
        real(handle)
        if list(root.rglob(".tmp-*")):
            shutil.rmtree(root)

    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(StorageError):
        getattr(storage, operation)("m/a", b"mine")
    assert not root.exists()


def test_temporary_files_of_a_killed_writer_are_listed(storage, root):
    storage.write("metadata/snapshots/1", b"")
    (root / "metadata/snapshots/.tmp-dead").write_bytes(b"half")
    assert [info.name for info in storage.list("metadata/")] == [
        "metadata/snapshots/.tmp-dead",
        "metadata/snapshots/1",
    ]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_that_leaves_the_table_is_refused_and_what_it_points_to_is_untouched(
    storage, root, tmp_path, kind
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root.mkdir()
    if kind == "file":
        (root / "data").mkdir()
        (root / "data" / "secret").symlink_to(outside / "secret")
    else:
        (root / "data").symlink_to(outside)
    calls = [
        lambda: storage.read("data/secret"),
        lambda: storage.try_read("data/secret"),
        lambda: storage.read_many(["data/secret"]),
        lambda: storage.open_input("data/secret"),
        lambda: storage.write("data/secret", b"x"),
        lambda: storage.create("data/secret", b"x"),
        lambda: storage.delete(["data/secret"]),
        lambda: storage.modified(["data/secret"]),
    ]
    for call in calls:
        with pytest.raises(CorruptTableError, match="link"):
            call()
    assert list(storage.list("")) == []
    assert not storage.is_empty()
    storage.delete_all()
    assert files_below(outside) == ["secret"]
    assert not root.exists()


def test_links_that_stay_inside_and_a_root_behind_a_link_work(root, tmp_path):
    root.mkdir()
    (tmp_path / "alias").symlink_to(root)
    storage = Storage(str(tmp_path / "alias"))
    storage.write("data/a", b"1")
    (root / "data" / "b").symlink_to("a")
    assert storage.read("data/b") == b"1"
    storage.delete_all()
    assert storage.is_empty()
    assert (tmp_path / "alias").is_symlink()


def test_empty_folders_count_as_nothing(storage, root):
    (root / "data" / "deep").mkdir(parents=True)
    assert storage.is_empty()
    storage.delete_all()
    assert not root.exists()


def test_a_file_where_a_folder_should_be_is_an_error_not_a_crash(root):
    root.write_bytes(b"a file")
    storage = Storage(str(root))
    assert storage.try_read("a") is None
    for call in (lambda: storage.write("a", b""), lambda: storage.create("a", b"")):
        with pytest.raises(StorageError):
            call()
    assert not storage.is_empty()


def test_a_name_too_long_for_the_disk_is_missing_when_read_and_an_error_when_written(storage):
    name = "x" * 300
    assert storage.try_read(name) is None
    assert storage.modified([name]) == [None]
    with pytest.raises(StorageError):
        storage.write(name, b"")
