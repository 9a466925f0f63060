"""Profiles of a file, variables, and what is typed: which goes before, and that no secret is shown."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tblctl
from tblctl import errors
from tblctl.cli import config
from tblctl.cli.main import application

TEXT = """
profile = "dev"

[profiles.dev]
price_per_gib = 0.5
log_level = "info"

[profiles.prod]
engine = "auto"
master = "local[2]"
price_per_hour = 2

[profiles.prod.storage.s3]
endpoint_url = "http://user:hunter2@127.0.0.1:9000"
key = { env = "MY_KEY" }
secret = { file = "SECRET_FILE" }
client_kwargs = { region_name = "eu-west-1" }

[profiles.prod.catalogs.lake]
uri = "postgresql://me:hunter2@db/cat"
token = { env = "MY_TOKEN" }
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tblctl.toml"
    (tmp_path / "secret").write_text("hunter2-file\n")
    path.write_text(TEXT.replace("SECRET_FILE", str(tmp_path / "secret")))
    monkeypatch.setenv("TBLCTL_CONFIG", str(path))
    monkeypatch.setenv("MY_KEY", "hunter2-key")
    monkeypatch.setenv("MY_TOKEN", "hunter2-token")
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(application, words)


class Opened:
    """Records what a table is opened with, and fails."""

    def __init__(self) -> None:
        self.how: dict[str, Any] = {}

    def __call__(self, _location: str, **how: Any) -> None:
        self.how = how
        raise errors.StorageError("no storage here")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    found = Opened()
    monkeypatch.setattr(tblctl, "open", found, raising=False)
    return found


def test_a_profile_gives_options_of_the_storage_and_the_catalog_of_a_location(opened: Opened) -> None:
    run("info", "s3://bucket/t", "--profile", "prod", "--storage-option", "client_kwargs.x=1")
    assert opened.how["storage_options"] == {
        "endpoint_url": "http://user:hunter2@127.0.0.1:9000",
        "key": "hunter2-key",
        "secret": "hunter2-file",
        "client_kwargs": {"x": "1"},
    }
    assert opened.how["catalog_options"] == {}
    run("--profile=prod", "info", "iceberg://lake/a.b", "--catalog-option", "uri=x")
    assert opened.how["catalog_options"] == {"uri": "x", "token": "hunter2-token"}
    run("info", "/data/t", "--profile", "prod")
    assert (opened.how["storage_options"], opened.how["catalog_options"]) == ({}, {})


def test_several_tables_and_a_statement_get_the_options_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def record(*_: object, storage_options: dict[str, Any], **__: object) -> None:
        seen.append(storage_options.get("key"))
        raise errors.StorageError("no storage here")

    monkeypatch.setattr(tblctl, "survey", record, raising=False)
    monkeypatch.setattr(tblctl, "execute", record, raising=False)
    run("info", "s3://b/x", "s3://b/y", "--profile", "prod")
    run("sql", "ALTER TABLE 's3://b/x' RECLUSTER", "--profile", "prod", "--engine", "local")
    assert seen == ["hunter2-key", "hunter2-key"]


def test_the_files_of_an_import_get_the_options_of_their_own_location(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, Any] = {}

    def record(sources: list[str], location: str, **how: Any) -> None:
        seen[location] = how["storage_options"].get("key"), how["storage_options"].get("x")
        seen.update((place, how["source_options"](place)) for place in sources)
        raise errors.StorageError("no storage here")

    monkeypatch.setattr(tblctl, "import_parquet", record, raising=False)
    run("import", "/in", "s3a://b/in", "gs://b/in", "/t", "--profile", "prod", "--storage-option", "x=1")
    assert (seen["/t"], seen["/in"], seen["gs://b/in"]) == ((None, "1"), {"x": "1"}, {"x": "1"})
    assert (seen["s3a://b/in"]["key"], seen["s3a://b/in"]["x"]) == ("hunter2-key", "1")
    run("import", "gs://b/in", "s3a://b/t", "--profile", "prod")
    assert (seen["s3a://b/t"], seen["gs://b/in"]) == (("hunter2-key", None), {})


@pytest.mark.parametrize("command", ["append", "overwrite"])
def test_appended_files_get_the_options_of_their_own_location(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    class Opened:
        def write(self, files: list[str], **how: Any) -> None:
            seen.update((place, how["source_options"](place)) for place in files)
            raise errors.StorageError("no storage here")

        append = overwrite = write

    def opened(location: str, *, storage_options: dict[str, Any], **_: Any) -> Opened:
        seen[location] = storage_options
        return Opened()

    monkeypatch.setattr(tblctl, "open", opened, raising=False)
    words = [command, "gs://b/t", "s3a://b/in", "/in", "--profile", "prod", "--storage-option", "x=1"]
    assert run(*words).exit_code == 1
    assert (seen["gs://b/t"], seen["/in"]) == ({"x": "1"}, {"x": "1"})
    assert (seen["s3a://b/in"]["key"], seen["s3a://b/in"]["x"]) == ("hunter2-key", "1")


def settings(*words: str) -> dict[str, Any]:
    found = json.loads(run("config", "show", "--json", *words).stdout)["settings"]
    return {name: (item["value"], item["origin"]) for name, item in found.items()}


def test_variables_go_before_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings() == {"price_per_gib": (0.5, "profile dev"), "log_level": ("info", "profile dev")}
    monkeypatch.setenv("TBLCTL_PROFILE", "prod")
    monkeypatch.setenv("TBLCTL_PRICE_PER_HOUR", "7")
    assert settings() == {
        "engine": ("auto", "profile prod"),
        "master": ("local[2]", "profile prod"),
        "price_per_hour": ("7", "TBLCTL_PRICE_PER_HOUR"),
    }
    assert settings("--profile", "dev")["price_per_gib"] == (0.5, "profile dev")


def test_prices_reach_a_plan_and_what_is_typed_goes_first(overlapping: str, tmp_path: Path) -> None:
    def budget(*words: str) -> Any:
        done = run("plan", overlapping, "--json", "--threshold", "1", *words)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)["options"]["budget"]["price_per_gib"]

    assert budget() == 0.5
    assert budget("--price-per-gib", "3") == 3.0
    plan = tmp_path / "plan.json"
    assert run("plan", overlapping, "--threshold", "1", "--output", str(plan)).exit_code == 0
    assert run("recluster", overlapping, "--plan", str(plan)).exit_code == 0, (
        "a plan fixes what one round does"
    )
    assert run("plan", overlapping, "--list").exit_code == 0


@pytest.mark.parametrize("words", [["--engine", "local"], ["--remote", "sc://h:1"]])
def test_what_is_typed_of_the_engine_overrules_a_master_of_the_profile(words: list[str]) -> None:
    done = run("recluster", "/nowhere", "--profile", "prod", "--if-exists", *words)
    assert (done.exit_code, done.stderr) == (0, "")


def test_a_log_level_of_a_profile_is_overruled_by_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    def log_and_fail(*_: object, **__: object) -> None:
        logging.getLogger("tblctl").info("a step")
        raise errors.StorageError("no storage here")

    monkeypatch.setattr(tblctl, "open", log_and_fail, raising=False)
    assert "a step" in run("history", "t").stderr
    assert "a step" not in run("history", "t", "-q").stderr
    assert "a step" not in run("history", "t", "--log-level", "error").stderr


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_is_shown_has_no_secret(form: list[str], tmp_path: Path) -> None:
    text = run("config", "show", "--profile", "prod", *form).stdout
    assert "hunter2" not in text
    for word in (
        "env:MY_KEY",
        f"file:{tmp_path / 'secret'}",
        "env:MY_TOKEN",
        "eu-west-1",
        "127.0.0.1:9000",
        "dev",
    ):
        assert word in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = [", "is not TOML"),
        ("key = 1\nsecret = hunter2", "is not TOML"),
        ("colour = 1", "colour: expected profile or profiles"),
        ("profiles = 1", "profiles: expected tables"),
        ("[profiles.p]\nnope = 1\nengine = 2", "profiles.p.nope: expected one of engine"),
        ("[profiles.p]\nprice_per_gib = 'x'", "profiles.p.price_per_gib: expected a number"),
        ("[profiles.p]\nstorage = {s3 = 1}", "profiles.p.storage: expected tables"),
        (
            "[profiles.p.storage.s3]\nsecret = 'hunter2'",
            "profiles.p.storage.s3.secret: name where a secret is",
        ),
        ("[profiles.p.storage.s3.kw]\ntoken = 'hunter2'", "profiles.p.storage.s3.kw.token: name where"),
        ("[profiles.p.storage.az]\nconnection_string = 'hunter2'", "az.connection_string: name where"),
        ("[profiles.p.storage.az]\nplace_url = 'A=b;AccountKey=hunter2'", "az.place_url: name where"),
        ("[profiles.p.storage.az]\nx = 'SharedAccessSignature=hunter2'", "az.x: name where"),
        ("profile = 'q'\n[profiles.p]", "there is no profile 'q' in "),
    ],
)
def test_a_file_that_is_wrong_is_one_message_without_secrets(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    done = run("history", "t")
    assert done.exit_code == 1
    assert message in done.stderr
    assert str(file) in done.stderr
    assert "hunter2" not in done.stderr


def test_a_secret_that_is_not_there_is_named_by_its_place(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MY_KEY")
    assert "key: the environment has no MY_KEY" in run("info", "s3://b/t", "--profile", "prod").stderr
    monkeypatch.setenv("MY_KEY", "x")
    (tmp_path / "secret").unlink()
    assert "secret: " in run("info", "s3://b/t", "--profile", "prod").stderr
    assert opened.how == {}


def test_where_the_file_is_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.config_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/tblctl.toml")
    assert config.config_file({}) == Path.home() / ".config" / "tblctl.toml"
    monkeypatch.setenv("TBLCTL_CONFIG", "/nowhere.toml")
    assert "/nowhere.toml, which TBLCTL_CONFIG names, is missing" in run("config", "show").stderr
    monkeypatch.delenv("TBLCTL_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    done = run("config", "show")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "/nowhere/tblctl.toml (missing)" in done.stdout
