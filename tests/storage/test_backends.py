"""Backends for reading only, and what an error means: pure tables."""

from __future__ import annotations

import errno
import os
import pickle
import traceback
import zipfile
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import cases

from tblctl.tableformat.errors import (
    AccessDeniedError,
    InputError,
    StorageError,
    TblctlError,
    UnsupportedBackendError,
)
from tblctl.tableformat.storage import Storage
from tblctl.tableformat.storage.failures import Failure, classify, explain
from tblctl.tableformat.storage.location import parse_location, scrub, secrets_in, without_credentials
from tblctl.tableformat.storage.s3 import READ_TIMEOUT_SECONDS, Patience, is_worth_a_try, wait_seconds


@pytest.fixture
def zip_url(tmp_path):
    path = tmp_path / "table.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t/data/a", b"1")
        archive.writestr("t/metadata/latest", b"22")
    return f"zip://t::{path}"


def test_other_filesystems_can_be_read(zip_url):
    storage = Storage(zip_url)
    assert storage.read("data/a") == b"1"
    assert storage.try_read("data/b") is None
    assert storage.read_many(["data/b", "metadata/latest"]) == [None, b"22"]
    assert [(i.name, i.size_bytes) for i in storage.list("")] == [("data/a", 1), ("metadata/latest", 2)]
    assert [at is None for at in storage.modified(["data/a", "data/b"])] == [False, True]
    assert not storage.is_empty()
    with storage.open_input("metadata/latest") as file:
        assert file.read() == b"22"


def test_other_filesystems_are_never_written(zip_url):
    storage = Storage(zip_url)
    for call in (
        lambda: storage.create("data/b", b""),
        lambda: storage.write("data/b", b""),
        lambda: storage.delete(["data/a"]),
        storage.delete_all,
    ):
        with pytest.raises(UnsupportedBackendError, match="atomic create"):
            call()


def test_an_unknown_scheme_is_refused_naming_it():
    with pytest.raises(UnsupportedBackendError, match="nosuch"):
        Storage("nosuch://x/y").read("a")


def test_a_url_is_shown_without_user_and_query():
    storage = Storage("ftp://me:pass-word@host/table?sig=abcdef", {"password": "pass-word"})
    assert storage.url == "ftp://host/table"
    assert "pass-word" not in repr(storage)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://me:pw@h:1/a?b=c#d", "http://h:1/a"),
        ("see 'https://h/x?X-Amz-Signature=1' now", "see 'https://h/x' now"),
        ("a@b.c? no url here", "a@b.c? no url here"),
        ("simplecache::http://u:p@h/x", "simplecache::http://h/x"),
    ],
)
def test_urls_lose_their_credentials(text, expected):
    assert without_credentials(text) == expected


@pytest.mark.parametrize(
    ("urls", "identity"),
    [
        (("gs://b/in", "gcs://b/in/", "GCS://b/in", "simplecache::gs://b/in"), "gs://b/in/"),
        (("s3://b/in", "s3a://b/in/", "filecache::s3://b/in", "s3://me:hunter2@b/in"), "s3://b/in/"),
        (
            (
                "abfs://one@acc.dfs.core.windows.net/in",
                "abfss://one@acc.blob.core.windows.net/in?sig=hunter2",
                "az://one/in",
            ),
            "abfs://one@acc.dfs.core.windows.net/in/",
        ),
        (("https://me:hunter2@h/in?sig=hunter2", "https://h/in#x"), "https://h/in/"),
        (("memory://x/in", "memory:///x/in/"), "memory://x/in/"),
        (("memory://", "memory:///"), "memory://"),
        (("github://org:repo@main/in",), "github://org:repo@main/in/"),
    ],
)
def test_names_of_one_place_have_one_identity_without_credentials(urls, identity):
    account = {"connection_string": "AccountName=acc;AccountKey=hunter2"}
    for url in urls:
        where = url.replace("s3://me:hunter2@", "simplecache::s3://me:hunter2@")
        assert Storage(where, account).identity == identity, url


def test_places_that_are_shown_alike_have_identities_of_their_own(tmp_path):
    pairs = [
        ("abfs://one@acc.dfs.core.windows.net/in", "abfs://two@acc.dfs.core.windows.net/in"),
        ("github://org:one@main/in", "github://org:two@main/in"),
        ("gs://b/day?1", "gs://b/day?2"),
        ("http://h:80/one/a@b", "http://h:80/two/a@b"),
    ]
    for one, other in pairs:
        assert Storage(one).url == Storage(other).url
        assert Storage(one).identity != Storage(other).identity
    assert (
        Storage("az://in", {"account_name": "one"}).identity
        != Storage("az://in", {"account_name": "two"}).identity
    )
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Storage(f"file://{tmp_path}/link").identity == f"{(tmp_path / 'real').resolve()}/"
    assert Storage("/").identity == "/"


def test_secret_options_are_found_in_every_depth_and_blotted_out():
    options = {
        "key": "AKIA-123456",
        "endpoint_url": "http://h",
        "client_kwargs": {"aws_secret_access_key": "deep-secret"},
    }
    assert set(secrets_in(options)) == {"AKIA-123456", "deep-secret"}
    assert scrub("deep-secret at http://h by AKIA-123456", secrets_in(options)) == "*** at http://h by ***"


def test_a_connection_string_and_its_key_are_blotted_out_whatever_the_option_is_called():
    for name in ("connection_string", "connection-string", "where"):
        text = "AccountName=acc;AccountKey=hunter2hunter2;EndpointSuffix=x"
        hidden = secrets_in({name: text})
        assert hidden == (text, "hunter2hunter2")
    assert secrets_in({"connection_string": "hunter2"}) == ("hunter2",)


@pytest.mark.parametrize("scheme", ["http", "leak"])
def test_a_signed_name_is_shown_in_no_error_and_no_log(scheme, caplog):
    storage, name = Storage(f"{scheme}://h/in"), "x.parquet?v=1&X-Amz-Signature=hunter2"
    storage._backend = Leaking("no bytes", f"{scheme}://h/in/{name}")
    with caplog.at_level("DEBUG"), pytest.raises(TblctlError) as caught:
        storage.read(name)
    assert "x.parquet in" in str(caught.value)
    assert "hunter2" not in seen_in(caught.value) + caplog.text


PASSWORDS = st.text(alphabet="aZ09/@:+%=-._~!$&*,;", min_size=6, max_size=40).filter(
    lambda text: not text.isdigit() and "::" not in text and "://" not in text and len(set(text)) > 3
)


def seen_in(error):
    """Return everything that an error and its causes show when printed or logged."""
    texts, todo = [], [error]
    while todo:
        one = todo.pop()
        if one is not None:
            texts += [
                str(one),
                repr(one),
                str(getattr(one, "details", "")),
                "".join(traceback.format_exception(one)),
            ]
            todo += [one.__cause__, one.__context__]
    return "\n".join(texts)


@settings(max_examples=cases(50), deadline=None)
@given(
    password=PASSWORDS,
    chain=st.sampled_from(("", "simplecache::", "filecache::blockcache::")),
    scheme=st.sampled_from(("s3", "s3a", "nosuch", "leak")),
    encoded=st.booleans(),
)
def test_a_password_in_a_location_is_shown_nowhere(password, chain, scheme, encoded):
    written = quote(password, safe="") if encoded else password
    url = f"{chain}{scheme}://someone:{written}@host/table"
    texts = [without_credentials(f"cannot read {url} at all")]
    try:
        storage = Storage(url)
        storage._backend = Leaking(f"no such bucket: someone:{password}", f"{url} and {written}")
        texts += [repr(storage), storage.url]
        storage.read("a")
    except TblctlError as error:
        texts.append(seen_in(error))
        again = pickle.loads(pickle.dumps(error))
        texts.append(seen_in(again))
    else:
        pytest.fail("nothing was raised")
    for text in texts:
        assert password not in text
        assert written not in text


class Leaking:
    """A driver that says what it was given."""

    def __init__(self, *texts):
        self._texts = texts

    def read(self, name):
        raise OSError(self._texts[1]) from KeyError(self._texts[0])


PIECE = st.text(alphabet="aZ09=+~_", min_size=6, max_size=12).filter(lambda text: len(set(text)) > 3)


class Cutting:
    """A driver that cuts what it was given at a separator, and repeats one piece."""

    def __init__(self, url, separator, number, change):
        pieces = url.split(separator)
        self._piece = change(pieces[number % len(pieces)])

    def read(self, name):
        raise OSError(f"cannot open {self._piece}") from ValueError(f"invalid port {self._piece!r}")


@settings(max_examples=cases(50), deadline=None)
@given(
    pieces=st.lists(PIECE, min_size=2, max_size=4),
    separator=st.sampled_from("/:@?#"),
    chain=st.sampled_from(("", "simplecache::", "filecache::simplecache::")),
    number=st.integers(0, 9),
    change=st.sampled_from((str, unquote, str.lower)),
    encoded=st.booleans(),
)
def test_a_driver_that_cuts_its_location_shows_no_piece_of_a_password(
    pieces, separator, chain, number, change, encoded
):
    cut = "%2F" if encoded else separator
    url = f"{chain}leak://user1:{cut.join(pieces)}@host/table"
    storage = Storage(url)
    storage._backend = Cutting(
        unquote(url) if encoded else url, "/" if encoded else separator, number, change
    )
    with pytest.raises(TblctlError) as caught:
        storage.read("a")
    text = seen_in(caught.value) + seen_in(pickle.loads(pickle.dumps(caught.value)))
    for piece in pieces:
        assert piece not in text
        assert change(piece) not in text


@pytest.mark.parametrize("scheme", ["ftp", "simplecache::ftp", "http", "filecache::simplecache::http"])
@pytest.mark.parametrize("password", ["S3CRETPW/x", "x1/S3CRETPW", "12345/S3CRETPW/x", "p@S3CRETPW/x"])
def test_real_drivers_show_no_piece_of_a_password(scheme, password):
    with pytest.raises(TblctlError) as caught:
        Storage(f"{scheme}://user1:{password}@127.0.0.1:1/t").read("metadata/latest")
    assert "s3cretpw" not in seen_in(caught.value).lower()
    assert caught.value.__cause__ is None


def test_a_short_piece_of_a_password_is_in_no_cause():
    storage = Storage("leak://user1:ab9/x@host/table")
    storage._backend = Cutting("ab9", "/", 0, str)
    with pytest.raises(TblctlError) as caught:
        storage.read("a")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("typo", ["s3;//", "s3:/", "s3", "s3:", "//"])
def test_a_chain_that_is_mistyped_shows_no_password(typo):
    shown = parse_location(f"simplecache::{typo}user:pass@host/x?token=abcdef").shown
    assert shown.startswith("simplecache::")
    assert shown.endswith("host/x")
    assert "pass" not in shown
    assert "abcdef" not in shown


def test_a_driver_that_is_missing_shows_no_password():
    with pytest.raises(UnsupportedBackendError) as caught:
        Storage(f"nosuch://someone:{quote('pa55', safe='')}/w0rd@host/x").read("a")
    assert "w0rd@" not in str(caught.value)
    assert "pa55/w0rd" not in seen_in(caught.value)


@pytest.mark.parametrize("url", ["s3://u:SECRET@bucket/x", "s3://u:SE/CRET@bucket/x", "s3a://u:SE@CR/ET@b/x"])
def test_credentials_in_an_s3_location_are_refused(url):
    with pytest.raises(InputError, match="credentials do not belong") as caught:
        Storage(url)
    assert "ET@" not in seen_in(caught.value)
    assert "ET" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket/a@b/c", "s3://bucket/day=1/x@y"])
def test_an_at_sign_in_a_key_is_no_credential(url):
    assert Storage(url).url == url


class ReplyError(Exception):
    def __init__(self, code, status, operation="GetObject"):
        super().__init__(code)
        self.operation_name = operation
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


def named(name):
    return type(name, (Exception,), {})("x")


def caused(error, cause):
    error.__cause__ = cause
    return error


CASES = [
    (FileNotFoundError(), Failure.MISSING),
    (NotADirectoryError(errno.ENOTDIR, ""), Failure.MISSING),
    (PermissionError(), Failure.DENIED),
    (OSError(errno.EROFS, ""), Failure.DENIED),
    (OSError(errno.ENOSPC, ""), Failure.FULL),
    (OSError(errno.EIO, ""), Failure.OTHER),
    (FileExistsError(), Failure.EXISTS),
    (OSError(errno.EINVAL, "no code: not a lost race"), Failure.OTHER),
    (caused(OSError(errno.EINVAL, ""), ReplyError("PreconditionFailed", 412)), Failure.EXISTS),
    (caused(OSError(errno.EINVAL, ""), ReplyError("InvalidArgument", 400)), Failure.OTHER),
    (caused(FileNotFoundError(), ReplyError("NoSuchBucket", 404)), Failure.NO_BUCKET),
    (caused(FileNotFoundError(), ReplyError("404", 404, "HeadObject")), Failure.MISSING),
    (caused(FileNotFoundError(), ReplyError("NoSuchKey", 404)), Failure.MISSING),
    (caused(FileNotFoundError(), ReplyError("404", 404)), Failure.NOT_S3),
    (ReplyError("409", None), Failure.CONFLICT),
    (ReplyError("OperationAborted", 409), Failure.CONFLICT),
    (ReplyError("SlowDown", 503), Failure.SLOWED),
    (ReplyError("503", 503, "HeadObject"), Failure.SLOWED),
    (ReplyError("SlowDownRead", 503), Failure.BUSY),
    (ReplyError("429", 429), Failure.SLOWED),
    (ReplyError("ServiceUnavailable", 503), Failure.BUSY),
    (ReplyError("XMinioStorageFull", 507), Failure.FULL),
    (ReplyError("SignatureDoesNotMatch", 403), Failure.DENIED),
    (named("NoCredentialsError"), Failure.DENIED),
    (named("EndpointConnectionError"), Failure.LOST),  # the client says it of resets in mid-request too
    (named("FSTimeoutError"), Failure.LOST),
    (ConnectionRefusedError(), Failure.NOT_SENT),
    (ConnectionResetError(), Failure.LOST),
    (TimeoutError(), Failure.LOST),
    (ValueError("x"), Failure.OTHER),
]


@pytest.mark.parametrize(("error", "expected"), CASES, ids=lambda value: repr(value)[:40])
def test_an_error_means(error, expected):
    assert classify(error) is expected


@pytest.mark.parametrize("error", [error for error, _ in CASES], ids=repr)
def test_every_error_becomes_one_of_ours_that_names_object_and_table(error):
    found = explain(error, operation="read", name="data/a", url="s3://bucket/t", secrets=())
    assert isinstance(found, TblctlError)
    assert isinstance(found, (StorageError, InputError, AccessDeniedError))
    assert "cannot read data/a in s3://bucket/t" in str(found)


def test_botocore_errors_are_known_by_the_names_that_this_version_has():
    botocore = pytest.importorskip("botocore.exceptions")
    request = {"endpoint_url": "http://h", "error": "x"}
    refused = botocore.EndpointConnectionError(endpoint_url="http://h", error=ConnectionRefusedError())
    assert classify(refused) is Failure.NOT_SENT
    assert classify(botocore.EndpointConnectionError(**request)) is Failure.LOST
    assert classify(botocore.ConnectTimeoutError(**request)) is Failure.NOT_SENT
    assert classify(botocore.ReadTimeoutError(**request)) is Failure.LOST
    assert classify(botocore.ConnectionClosedError(**request)) is Failure.LOST
    assert classify(botocore.SSLError(**request)) is Failure.OTHER
    assert classify(botocore.NoCredentialsError()) is Failure.DENIED


def test_waits_double_and_are_spread():
    assert [wait_seconds(tries, 1.0) for tries in range(1, 6)] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert wait_seconds(3, 0.0) == pytest.approx(0.2)
    assert wait_seconds(39, 1.0) == 3.2


@pytest.mark.parametrize(
    ("failure", "tries_done", "seconds", "expected"),
    [
        (Failure.BUSY, 1, 0.1, True),
        (Failure.LOST, 5, 7.9, True),
        (Failure.LOST, 6, 1.0, False),
        (Failure.LOST, 1, READ_TIMEOUT_SECONDS, True),
        (Failure.LOST, 2, 2 * READ_TIMEOUT_SECONDS, True),
        (Failure.LOST, 3, 8.1, False),
        (Failure.SLOWED, 39, 59.9, True),
        (Failure.SLOWED, 40, 1.0, False),
        (Failure.SLOWED, 5, 60.1, False),
        (Failure.DENIED, 1, 0.1, False),
        (Failure.MISSING, 1, 0.1, False),
        (Failure.NO_BUCKET, 1, 0.1, False),
        (Failure.OTHER, 1, 0.1, False),
    ],
)
def test_what_may_pass_is_tried_again_for_a_while_and_twice_even_after_timeouts(
    failure, tries_done, seconds, expected
):
    assert is_worth_a_try(failure, tries_done, seconds) is expected


def test_tries_that_were_slowed_leave_the_others_theirs():
    patience = Patience()
    for _ in range(20):
        assert patience.wait_seconds(Failure.SLOWED) is not None
    for _ in range(5):
        assert patience.wait_seconds(Failure.LOST) is not None
    assert patience.wait_seconds(Failure.SLOWED) is not None
    assert patience.wait_seconds(Failure.LOST) is None


def test_an_unreadable_root_is_no_crash_on_any_platform(tmp_path):
    assert Storage(os.fspath(tmp_path)).is_empty()
