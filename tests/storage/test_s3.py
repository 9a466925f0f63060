"""Behaviour of S3 only: lost replies, busy or missing servers, credentials, buckets, bytes on the wire."""

from __future__ import annotations

import logging
import pickle
import sys
import traceback
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import free_port

from tblctl.tableformat.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    InputError,
    InvalidOptionError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedBackendError,
)
from tblctl.tableformat.storage import Storage, s3

SNAPSHOT = "metadata/snapshots/00000000000000000002.json"
RETRIES_OFF = {}
RETRIES_ON = {"config_kwargs": {"retries": {"max_attempts": 4, "mode": "standard"}}}
MOST_WAITS_SECONDS = 10.0  # of a request, and of two at once, whose connections are refused


def calls_of(storage):
    return {
        "read": lambda: storage.read("a"),
        "try_read": lambda: storage.try_read("a"),
        "read_many": lambda: storage.read_many(["a", "b"]),
        "write": lambda: storage.write("a", b"1"),
        "create": lambda: storage.create("a", b"1"),
        "delete": lambda: storage.delete(["a"]),
        "list": lambda: list(storage.list("")),
        "modified": lambda: storage.modified(["a"]),
        "is_empty": lambda: storage.is_empty(),  # noqa: PLW0108 (there is no storage when only the names are wanted)
        "delete_all": lambda: storage.delete_all(),  # noqa: PLW0108
        "open_input": lambda: storage.open_input("a"),
    }


EVERY_CALL = sorted(calls_of(None))


@pytest.mark.parametrize("options", [RETRIES_OFF, RETRIES_ON], ids=["retries off", "retries on"])
def test_a_create_whose_reply_was_lost_says_that_an_object_is_there_and_it_is_ours(proxy, proxied, options):
    storage = proxied.storage(**options)
    assert storage.create("metadata/snapshots/1.json", b"connects") is True
    proxy.on("PUT", SNAPSHOT, action="cut reply")
    assert storage.create(SNAPSHOT, b"mine") is False
    assert storage.read(SNAPSHOT) == b"mine"
    first = next(e for e in proxy.exchanges if SNAPSHOT in e.path)
    assert (first.action, first.status) == ("cut reply", 200)


@pytest.mark.parametrize("options", [RETRIES_OFF, RETRIES_ON], ids=["retries off", "retries on"])
def test_a_first_request_on_a_new_connection_may_lose_its_reply_too(proxy, proxied, options):
    proxy.on("PUT", SNAPSHOT, action="cut reply")
    storage = proxied.storage(**options)
    assert storage.create(SNAPSHOT, b"mine") is False
    assert storage.read(SNAPSHOT) == b"mine"


@pytest.mark.parametrize("options", [RETRIES_OFF, RETRIES_ON], ids=["retries off", "retries on"])
def test_a_create_that_never_reached_the_server_is_sent_again(proxy, proxied, options):
    storage = proxied.storage(**options)
    proxy.on("PUT", SNAPSHOT, action="drop", times=2)
    assert storage.create(SNAPSHOT, b"mine") is True
    assert storage.read(SNAPSHOT) == b"mine"


def test_a_create_whose_reply_was_lost_and_that_cannot_be_looked_up_has_an_unknown_outcome(
    proxy, proxied, minio
):
    storage = proxied.storage()
    assert storage.create("metadata/snapshots/1.json", b"proves the server") is True
    proxy.on("PUT", SNAPSHOT, action="cut reply")
    proxy.on("", "", action="drop", times=1000, nth=2)
    with pytest.raises(CommitOutcomeUnknownError, match=SNAPSHOT) as caught:
        storage.create(SNAPSHOT, b"mine")
    assert minio.secret not in str(caught.value)
    assert Storage(proxied.url, minio.storage_options).read(SNAPSHOT) == b"mine"


@pytest.mark.parametrize("connection", ["kept", "new"])
def test_a_create_that_was_stored_before_the_server_reset_and_left_has_an_unknown_outcome(
    proxy, proxied, minio, connection
):
    first = proxied.storage()
    assert first.create("metadata/snapshots/1.json", b"proves the server") is True
    storage = first if connection == "kept" else proxied.storage()
    proxy.on("PUT", SNAPSHOT, action="reset and leave")
    with pytest.raises(CommitOutcomeUnknownError, match=SNAPSHOT):
        storage.create(SNAPSHOT, b"mine")
    assert Storage(proxied.url, minio.storage_options).read(SNAPSHOT) == b"mine"
    assert [e.action for e in proxy.exchanges if SNAPSHOT in e.path] == ["reset and leave"]


@pytest.mark.parametrize("options", [RETRIES_OFF, RETRIES_ON], ids=["retries off", "retries on"])
def test_a_create_whose_connection_was_reset_says_that_an_object_is_there_and_it_is_ours(
    proxy, proxied, options
):
    storage = proxied.storage(**options)
    assert storage.create("metadata/snapshots/1.json", b"connects") is True
    proxy.on("PUT", SNAPSHOT, action="reset")
    assert storage.create(SNAPSHOT, b"mine") is False
    assert storage.read(SNAPSHOT) == b"mine"


def test_a_request_that_lost_its_reply_is_not_sent_again_below_us(proxy, proxied):
    """aiohttp would: then a refusal of the second (503) would hide that the first may have been carried out."""
    storage = proxied.storage()
    assert storage.create("metadata/snapshots/1.json", b"connects") is True
    proxy.on("PUT", SNAPSHOT, action="drop")
    proxy.on("", SNAPSHOT, action="reply", status=503, nth=2, times=1000)
    with pytest.raises(CommitOutcomeUnknownError, match=SNAPSHOT):
        storage.create(SNAPSHOT, b"mine")
    assert [e.method for e in proxy.exchanges if SNAPSHOT in e.path][:2] == ["PUT", "HEAD"]


@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (502, ""), (504, "GatewayTimeout"), (503, ""), (418, "")]
)
def test_a_create_whose_reply_does_not_say_that_nothing_was_done_has_an_unknown_outcome(
    proxy, proxied, status, code
):
    storage = proxied.storage()
    assert storage.create("metadata/snapshots/1.json", b"proves the server") is True
    proxy.on("PUT", SNAPSHOT, action="reply", status=status, code=code, times=1000)
    with pytest.raises(CommitOutcomeUnknownError, match=SNAPSHOT):
        storage.create(SNAPSHOT, b"mine")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", AccessDeniedError),
        (404, "NoSuchBucket", InputError),
        (400, "EntityTooLarge", StorageError),
        (507, "XMinioStorageFull", StorageError),
    ],
)
def test_a_create_that_an_s3_server_refused_surely_did_not_happen(proxy, proxied, status, code, kind):
    storage = proxied.storage()
    assert storage.create("metadata/snapshots/1.json", b"proves the server") is True
    proxy.on("PUT", SNAPSHOT, action="reply", status=status, code=code, times=1000)
    with pytest.raises(kind, match=SNAPSHOT):
        storage.create(SNAPSHOT, b"mine")


def test_a_server_that_leaves_before_a_create_surely_did_not_do_it(proxy, proxied):
    storage = proxied.storage()
    assert storage.create("metadata/snapshots/1.json", b"proves the server") is True
    fresh = proxied.storage()
    proxy.refuse()
    with pytest.raises(StorageError, match=SNAPSHOT):
        fresh.create(SNAPSHOT, b"mine")


def test_a_server_that_replaces_objects_although_asked_to_create_is_refused(minio, moto, monkeypatch):
    monkeypatch.setattr(s3, "_PROVEN", set())
    for server in (minio, moto):
        location = server.location()
        storage = location.storage()
        filesystem = storage._backend._filesystem()
        honest = filesystem._pipe_file

        async def careless(path, data, *, honest=honest, **options):
            return await honest(path, data, **(options | {"mode": "overwrite"}))

        with monkeypatch.context() as patch:
            patch.setattr(filesystem, "_pipe_file", careless)
            for _ in range(2):
                with pytest.raises(UnsupportedBackendError, match="replaces objects") as caught:
                    storage.create(SNAPSHOT, b"mine")
            assert server.endpoint_url in str(caught.value)
        assert storage.is_empty()
        assert storage.create(SNAPSHOT, b"mine") is True


def test_a_server_that_does_not_know_conditional_writes_is_refused(proxy, proxied):
    proxy.on("PUT", action="reply", status=501, code="NotImplemented")
    with pytest.raises(UnsupportedBackendError, match="conditional writes"):
        proxied.storage().create(SNAPSHOT, b"mine")


def test_a_server_is_tested_once_per_process_with_three_requests(proxy, proxied):
    for number in range(3):
        assert proxied.storage().create(f"metadata/snapshots/{number}.json", b"") is True
    probes = [e for e in proxy.exchanges if ".tmp-probe-" in e.path]
    assert [(e.method, e.status) for e in probes] == [("PUT", 200), ("PUT", 412), ("DELETE", 204)]
    assert len(proxy.exchanges) == len(probes) + 3
    assert not any(".tmp-" in info.name for info in proxied.storage().list("metadata/"))


def test_a_test_of_the_server_whose_reply_was_lost_still_proves_it(proxy, proxied):
    proxy.on("PUT", "tmp-probe", action="reset")
    proxy.on("DELETE", "tmp-probe", action="drop")
    assert proxied.storage().create(SNAPSHOT, b"mine") is True
    assert [e.status for e in proxy.exchanges if e.method == "PUT"] == [200, 412, 200]


def test_a_create_refused_by_a_busy_server_is_sent_again(proxy, proxied):
    proxy.on("PUT", SNAPSHOT, action="reply", status=503, times=3)
    assert proxied.storage().create(SNAPSHOT, b"mine") is True


def test_a_create_that_meets_a_conflict_is_sent_again(proxy, proxied):
    proxy.on("PUT", SNAPSHOT, action="reply", status=409, code="ConditionalRequestConflict", times=2)
    assert proxied.storage().create(SNAPSHOT, b"mine") is True


def test_a_create_that_the_server_keeps_refusing_is_a_storage_error_and_nothing_is_there(
    proxy, proxied, minio
):
    proxy.on("PUT", SNAPSHOT, action="reply", status=503, times=1000)
    with pytest.raises(StorageError, match=SNAPSHOT):
        proxied.storage().create(SNAPSHOT, b"mine")
    assert Storage(proxied.url, minio.storage_options).try_read(SNAPSHOT) is None


def test_a_server_that_hangs_after_taking_a_create_is_asked_again(proxy, proxied):
    storage = proxied.storage(config_kwargs={"read_timeout": 1})
    proxy.on("PUT", SNAPSHOT, action="hang")
    assert storage.create(SNAPSHOT, b"mine") is False
    assert storage.read(SNAPSHOT) == b"mine"


@pytest.mark.parametrize("operation", EVERY_CALL)
def test_errors_that_pass_are_not_seen_by_the_caller(proxy, proxied, operation):
    storage = proxied.storage()
    if operation not in {"create", "is_empty"}:
        storage.write("a", b"1")
    proxy.clear()
    proxy.on(action="reply", status=503)
    proxy.on(action="drop", nth=2)
    proxy.on(action="reply", status=500, code="InternalError", nth=3)
    calls_of(storage)[operation]()
    assert [e.action for e in proxy.exchanges[:3]].count("forward") <= 1


def test_a_server_that_asks_for_fewer_requests_is_asked_for_a_minute(proxy, proxied, s3_clock):
    storage = proxied.storage()
    storage.create("proof", b"")
    proxy.clear()
    proxy.on("PUT", action="reply", status=503, code="SlowDown", times=15)
    proxy.on("GET", action="reply", status=503, code="SlowDown", times=15)
    proxy.on("HEAD", action="reply", status=503, times=15)
    assert storage.create("a", b"1")
    assert storage.read("a") == b"1"
    assert storage.modified(["a"]) != [None]
    assert Counter(e.method for e in proxy.exchanges) == {"PUT": 16, "GET": 16, "HEAD": 16}
    waited = s3_clock.waited_seconds
    proxy.on("GET", action="reply", status=503, code="SlowDown", times=40)
    with pytest.raises(StorageError, match="fewer requests"):
        storage.read("a")
    assert 50 < s3_clock.waited_seconds - waited < 65
    proxy.clear()
    proxy.on("GET", action="reply", status=503, code="ServiceUnavailable", times=6)
    with pytest.raises(StorageError, match="does not respond properly"):
        storage.read("a")


@pytest.mark.parametrize("operation", EVERY_CALL)
def test_an_error_that_does_not_pass_is_not_repeated(proxy, proxied, operation):
    storage = proxied.storage()
    proxy.on(action="reply", status=403, code="AccessDenied", times=1000)
    with pytest.raises(AccessDeniedError):
        calls_of(storage)[operation]()
    # read_many asks for two objects (and may give up before the second), create proves the server
    asked = Counter((e.method, e.path, e.byte_range) for e in proxy.exchanges)
    assert asked
    assert max(asked.values()) == 1


@pytest.mark.parametrize(
    "fault",
    [
        {"action": "reply", "status": 503, "times": 2},
        {"action": "reply", "status": 500, "code": "InternalError", "times": 2},
        {"action": "drop", "times": 2},
        {"action": "reset", "times": 2},
        {"action": "cut reply", "times": 2},
        {"action": "hang"},
    ],
    ids=lambda fault: f"{fault['action']} {fault.get('status', '')}".strip(),
)
def test_a_range_that_is_fetched_ahead_is_asked_for_again_after_errors_that_pass(proxy, proxied, fault):
    storage = proxied.storage(config_kwargs={"read_timeout": 1})
    storage.write("a", b"x" * 1_000)
    proxy.clear()
    proxy.on("GET", "/a", **fault)
    with storage.open_input("a", size_bytes=1_000) as file, file.ranges.begin([(0, 10), (500, 600)]):
        assert file.read_at(100, 500) == b"x" * 100
    assert len(proxy.exchanges) == 1 + fault.get("times", 1)


def test_a_range_that_may_not_be_read_is_asked_for_once(proxy, proxied):
    proxy.on("GET", "/a", action="reply", status=403, code="AccessDenied", times=1000)
    file = proxied.storage().open_input("a", size_bytes=1_000)
    with file.ranges.begin([(0, 10)]), pytest.raises(PermissionError):
        file.read_at(10, 0)
    assert len(proxy.exchanges) == 1


@pytest.mark.parametrize("action", ["cut reply", "drop", "reset", "cut reply in body"])
def test_a_range_whose_connection_is_cut_for_good_is_an_error_of_the_storage(proxy, proxied, action):
    storage = proxied.storage()
    storage.write("a", b"x" * 1_000)
    proxy.on("GET", "/a", action=action, times=1000)
    with storage.open_input("a", size_bytes=1_000) as file:
        for read in (lambda: file.ranges.fetch(0, 10), lambda: file.read_at(10, 0)):
            with pytest.raises(OSError) as caught:
                read()
            error = storage.explain(caught.value, "read", "a")
            assert "the storage does not respond properly" in str(error)


def test_a_read_whose_body_was_cut_is_repeated(proxy, proxied):
    storage = proxied.storage()
    storage.write("a", b"x" * 100_000)
    proxy.on("GET", "/a", action="cut reply", times=2)
    assert storage.read("a") == b"x" * 100_000
    proxy.on("GET", "/a", action="cut reply", nth=1)
    with storage.open_input("a", size_bytes=100_000) as file:
        assert file.read_at(10, 5) == b"x" * 10


@pytest.mark.parametrize("operation", EVERY_CALL)
def test_a_server_that_is_down_is_reported_in_seconds(s3_clock, operation):
    url = f"http://127.0.0.1:{free_port()}"
    options = {"endpoint_url": url, "key": "any-key", "secret": "any-secret"}
    storage = Storage("s3://bucket/table", options)
    with pytest.raises(StorageError, match="s3://bucket/table") as caught:
        calls_of(storage)[operation]()
    assert 0 < s3_clock.waited_seconds < MOST_WAITS_SECONDS
    assert not isinstance(caught.value, ObjectNotFoundError)


@pytest.mark.parametrize("operation", EVERY_CALL)
@pytest.mark.parametrize(
    "wrong", [{"secret": "wrong-secret-value"}, {"key": "wrong-key-value"}], ids=["secret", "key"]
)
def test_wrong_credentials_are_access_denied(minio, operation, wrong):
    location = minio.location()
    with pytest.raises(AccessDeniedError, match="credentials") as caught:
        calls_of(location.storage(**wrong))[operation]()
    text = str(caught.value) + "".join(traceback.format_exception(caught.value))
    assert minio.secret not in text
    assert "wrong-secret-value" not in text


def test_no_credentials_at_all_are_access_denied(minio):
    storage = Storage(minio.location().url, {"endpoint_url": minio.endpoint_url})
    with pytest.raises(AccessDeniedError, match="credentials"):
        storage.read("a")


@pytest.mark.parametrize("operation", sorted(set(EVERY_CALL) - {"modified", "open_input"}))
def test_a_missing_bucket_is_named(s3_location, operation):
    storage = Storage("s3://no-such-bucket/table", s3_location.storage_options)
    with pytest.raises(InputError, match=r"bucket 'no-such-bucket' does not exist"):
        calls_of(storage)[operation]()


def test_an_impossible_bucket_name_is_bad_input(minio):
    for bucket in ("UPPER_case!", "a b"):
        with pytest.raises(InputError, match="bucket"):
            Storage(f"s3://{bucket}/table", minio.storage_options).write("a", b"")


@pytest.mark.parametrize("url", ["s3://", "s3:///table"])
def test_a_url_without_bucket_is_refused(url):
    with pytest.raises(InputError, match="bucket"):
        Storage(url)


def test_credentials_in_a_url_are_refused_without_showing_them():
    with pytest.raises(InputError, match="storage options") as caught:
        Storage("s3://me:pass-word@bucket/table")
    assert "pass-word" not in str(caught.value)


def test_a_bucket_itself_can_be_a_root(minio):
    minio.make_bucket("whole-bucket")
    storage = Storage("s3://whole-bucket", minio.storage_options)
    storage.write("data/a", b"1")
    assert [info.name for info in storage.list("data/")] == ["data/a"]
    assert pickle.loads(pickle.dumps(storage)).read("data/a") == b"1"
    storage.delete_all()
    assert storage.is_empty()


@pytest.mark.parametrize(
    "options", [{"secrt": "x"}, {"endpoint_url": "not a url"}, {"config_kwargs": {"no_such": 1}}]
)
def test_options_that_s3fs_does_not_know_are_refused(minio, options):
    with pytest.raises(InvalidOptionError, match="storage options"):
        minio.location().storage(**options).read("a")


def test_without_s3fs_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UnsupportedBackendError, match=r"pip install '\.\[s3\]'"):
        Storage("s3://bucket/table").read("a")


def test_a_web_server_that_is_not_s3_is_not_taken_for_an_empty_bucket(proxy, proxied):
    proxy.on("GET", action="reply", status=404, code="404")
    with pytest.raises(StorageError, match="not from an S3 server") as caught:
        proxied.storage().try_read(SNAPSHOT)
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_secrets_are_in_no_repr_log_or_error(minio, caplog):
    caplog.set_level(logging.DEBUG, logger="tblctl")
    storage = minio.location().storage(token="session-token-value")
    texts = [repr(storage), storage.url]
    for call in calls_of(storage).values():
        try:
            call()
        except Exception as error:
            texts += ["".join(traceback.format_exception(error)), repr(error.details)]
    texts += [record.getMessage() for record in caplog.records if record.name.startswith("tblctl")]
    assert len(texts) > 10
    for text in texts:
        assert minio.secret not in text
        assert "session-token-value" not in text


def test_an_object_that_the_server_did_not_delete_is_an_error(minio, monkeypatch):
    storage = minio.location().storage()
    reply = {
        "Errors": [{"Key": "k", "Code": "AccessDenied", "Message": "no"}, {"Key": "l", "Code": "NoSuchKey"}]
    }
    busy = {"Errors": [{"Key": "k", "Code": "SlowDown"}]}
    replies = [busy, reply, busy, {}]

    async def answer(_method, **_arguments):
        return replies.pop(0)

    monkeypatch.setattr(storage._backend._filesystem(), "_call_s3", answer)
    with pytest.raises(AccessDeniedError, match="k: no"):
        storage.delete(["k", "l"])
    storage.delete(["k"])
    assert replies == []


def test_reading_takes_one_request_whether_the_object_is_there_or_not(proxy, proxied):
    storage = proxied.storage()
    storage.write("a", b"1")
    proxy.clear()
    storage.read("a")
    storage.try_read("none")
    storage.read_many(["a", "none"])
    assert [e.method for e in proxy.exchanges] == ["GET"] * 4


def test_one_column_of_a_parquet_file_costs_little_more_than_its_bytes(proxy, proxied):
    rows = 200_000
    columns = {
        f"c{number}": pa.array([(row * 2654435761 * (number + 1)) % 2**63 for row in range(rows)])
        for number in range(8)
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, row_group_size=50_000, use_dictionary=False, compression="none")
    content = sink.getvalue()
    storage = proxied.storage()
    storage.write("data/a.parquet", content)
    proxy.clear()
    with storage.open_input("data/a.parquet", size_bytes=content.size) as source:
        file = pq.ParquetFile(source, pre_buffer=True)
        wanted = sum(file.metadata.row_group(g).column(3).total_compressed_size for g in range(4))
        assert file.read(columns=["c3"]).num_rows == rows
    fetched = sum(e.reply_bytes for e in proxy.exchanges)
    assert {e.method for e in proxy.exchanges} == {"GET"}
    assert all(e.byte_range for e in proxy.exchanges)
    assert fetched <= wanted + 70_000, (fetched, wanted, content.size)
    assert len(proxy.exchanges) <= 6, [e.byte_range for e in proxy.exchanges]
