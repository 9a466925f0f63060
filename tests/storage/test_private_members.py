"""Private members of fsspec, s3fs and their dependencies: every used one is named here, and exists.

They may change in any release of these packages, without notice. So pyproject.toml caps these packages, and an upgrade
that takes a member away fails here by name, instead of at a commit.
"""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from s3fs import S3FileSystem

from tblctl.tableformat.storage.s3 import in_one_request

ROOT = Path(__file__).parents[2]
FOLDERS = ("tableformat", "metrics", "selector", "merger", "api", "cli")
PACKAGES = ("fsspec", "s3fs", "aiobotocore", "aiohttp", "botocore")

METHODS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "_cat_file": (S3FileSystem._cat_file, (None, "path"), {"start": 0, "end": 1, **in_one_request()}),
    "_call_s3": (S3FileSystem._call_s3, (None, "put_object"), {"Bucket": "b", "Key": "k", "Body": b""}),
    "_pipe_file": (S3FileSystem._pipe_file, (None, "path", b""), {"chunksize": 1, "mode": "create"}),
    "_get_session": (AIOHTTPSession._get_session, (None, None), {}),
}
"""Private methods that are called, or overridden, with the arguments that they are given."""

ATTRIBUTES = {"_s3", "_retry_connection"}
"""Private attributes that are read or set."""


def _own_names() -> set[str]:
    """Return the private members that the code's own classes and modules define."""
    found = set()
    for tree in _trees().values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
                    found.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def _trees() -> dict[Path, ast.Module]:
    return {
        path: ast.parse(path.read_text())
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _foreign_private_uses() -> dict[str, set[str]]:
    """Return the private members that modules with a user of these packages take from anything but `self`."""
    found: dict[str, set[str]] = {}
    for path, tree in _trees().items():
        if path.parent != ROOT / "tableformat" / "storage":
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not _is_private(node.attr):
                continue
            if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
                continue
            found.setdefault(node.attr, set()).add(path.name)
    return found


def test_every_private_member_of_the_packages_for_s3_that_is_used_is_listed() -> None:
    used = {
        name
        for name, files in _foreign_private_uses().items()
        if files & {"s3.py", "s3_parts.py", "arrow.py"}
    }
    assert used == set(METHODS) | ATTRIBUTES


def test_no_other_module_of_the_storage_uses_private_members_of_others() -> None:
    known = {"s3.py", "s3_parts.py", "arrow.py"}
    others = {name: files - known for name, files in _foreign_private_uses().items() if files - known}
    assert set(others) <= _own_names(), "members of our own classes only"


def test_only_the_storage_imports_the_packages() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
        if name.split(".")[0] in PACKAGES
    }
    assert {path for path in found if not path.startswith("tableformat/storage/")} == set()


@pytest.mark.parametrize("name", METHODS)
def test_the_private_method_takes_what_it_is_given(name: str) -> None:
    method, arguments, named = METHODS[name]
    inspect.signature(method).bind(*arguments, **named)
    assert inspect.iscoroutinefunction(method)


def test_the_private_attributes_exist() -> None:
    assert "_retry_connection" in aiohttp.ClientSession.ATTRS
    assert "_retry_connection" in inspect.getsource(aiohttp.ClientSession._request)
    assert "self._s3 =" in inspect.getsource(S3FileSystem.set_session)
    assert "http_session_cls" in inspect.signature(AioConfig.__init__).parameters


def test_the_pinned_s3fs_is_told_to_read_an_object_in_one_request() -> None:
    assert in_one_request() == {"max_concurrency": 1}


def test_members_that_are_public_by_name_alone_exist() -> None:
    """Not underscored, but in no documentation either."""
    assert isinstance(MemoryFileSystem.store, dict)
    inspect.signature(MemoryFile.__init__).bind(None, MemoryFileSystem(), "/path", b"")
    assert isinstance(inspect.getattr_static(AsyncFileSystem, "loop"), property)
    assert "self.retries" in inspect.getsource(S3FileSystem.__init__) or hasattr(S3FileSystem, "retries")


def test_the_packages_are_capped_above_the_pinned_releases_that_the_tests_run_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [*project["dependencies"], *project["optional-dependencies"]["s3"]]
    for name in ("fsspec", "s3fs", "aiobotocore", "aiohttp"):
        [requirement] = [text for text in stated if re.match(rf"{name}[<>=]", text)]
        [cap] = re.findall(r"<([\d.]+)", requirement)
        installed = importlib.metadata.version(name)
        assert _numbers(installed) < _numbers(cap), requirement
        pins = (ROOT / "tests" / "constraints.txt").read_text()
        assert f"\n{name}=={installed}\n" in f"\n{pins}", "the tests run with the pinned one"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
