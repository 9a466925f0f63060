"""What tblctl depends on may be used with its licence, and is newer than versions with known faults.

The list of faults is a dated copy: a test without internet cannot learn of new ones. `pip-audit` with internet does.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIME_EXTRAS = ("s3", "spark", "iceberg", "delta", "pictures")

ALLOWED = re.compile(
    r"Apache|\bMIT\b|BSD|\bPSF\b|Python Software Foundation|\bISC\b|MPL-2\.0|Mozilla Public License 2\.0|\bHPND\b"
    r"|Unlicense|0BSD|Zlib|CC0-1\.0|BSL-1\.0|matplotlib",
    re.IGNORECASE,
)
REFUSED = re.compile(
    r"\bA?GPL|GNU (?:Affero )?General Public|SSPL|Business Source|Commons Clause|Elastic License",
    re.IGNORECASE,
)
EXCEPTIONS = {
    "psycopg2-binary": "LGPL with exceptions: a library that is imported, in the extra for PostgreSQL catalogs only",
}
"""Packages whose licence is not in the list, each with the reason why it may be used."""

FAULTS_OF = "2025-06-30"
LEAST_SAFE = {
    # package: (the first version without the fault, its source)
    "pyarrow": ("14.0.1", "CVE-2023-47248: code in extension types of IPC files"),
    "aiohttp": ("3.10.11", "CVE-2024-52304: request smuggling"),
    "requests": ("2.32.4", "CVE-2024-47081: credentials of .netrc sent to others"),
    "urllib3": ("2.5.0", "CVE-2025-50181: redirects followed although switched off"),
    "certifi": ("2024.7.4", "CVE-2024-39689: a root certificate that is not trusted any more"),
    "idna": ("3.7", "CVE-2024-3651: quadratic time"),
    "pillow": ("10.3.0", "CVE-2024-28219: a buffer overflow"),
    "fonttools": ("4.43.0", "CVE-2023-45139: XML entities"),
    "numpy": ("1.22.2", "CVE-2021-41495: a null pointer"),
    "thrift": ("0.14.0", "CVE-2020-13949: memory by claimed lengths"),
    "protobuf": ("6.31.1", "CVE-2025-4565: recursion without a limit"),
    "grpcio": ("1.53.2", "CVE-2023-33953: memory and time by headers"),
    "pyspark": ("3.3.2", "CVE-2023-22946: a proxy user's privileges"),
    "setuptools": ("78.1.1", "CVE-2025-47273: paths out of a folder"),
    "pydantic": ("2.4.0", "CVE-2024-3772: quadratic time"),
    "sqlalchemy": ("1.3.0", "CVE-2019-7164: SQL in ORDER BY"),
}


def requirements(texts: list[str], extras: tuple[str, ...] = ("",)) -> list[Requirement]:
    """Return what is required in this environment, with some extras."""
    found = [Requirement(text) for text in texts]
    return [
        item
        for item in found
        if item.marker is None or any(item.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def direct() -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    return requirements(
        [*PROJECT["dependencies"], *(text for extra in RUNTIME_EXTRAS for text in optional[extra])]
    )


def runtime() -> dict[str, importlib.metadata.Distribution]:
    """Return all distributions that tblctl and its extras need at run time, as they are installed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = direct()
    while waiting:
        item = waiting.pop()
        name = canonicalize_name(item.name)
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform, or an extra that is not installed here: the next test notices direct ones
        waiting += requirements(found[name].requires or [], ("", *item.extras))
    return found


RUNTIME = runtime()


def licence(distribution: importlib.metadata.Distribution) -> str:
    """Return what a distribution says of its licence, in any of three ways."""
    metadata = distribution.metadata
    classifiers = [text for text in metadata.get_all("Classifier") or [] if text.startswith("License")]
    told = [metadata.get("License-Expression"), *classifiers]
    return " ".join(text for text in told if text) or (metadata.get("License") or "")[:300]


def test_all_direct_dependencies_are_looked_at() -> None:
    assert {canonicalize_name(item.name) for item in direct()} <= RUNTIME.keys()
    assert len(RUNTIME) > 30


@pytest.mark.parametrize("name", sorted(RUNTIME))
def test_a_dependency_has_a_licence_that_may_be_used(name: str) -> None:
    found = licence(RUNTIME[name])
    if name in EXCEPTIONS:
        assert not ALLOWED.search(found), "the exception is not needed any more"
        return
    assert ALLOWED.search(found), found
    assert not REFUSED.search(found), found


def constraints(file: str = "constraints.txt") -> dict[str, Version]:
    lines = (ROOT / "tests" / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.mark.parametrize("name", sorted(LEAST_SAFE))
def test_no_version_with_a_known_fault_is_tested_or_allowed(name: str) -> None:
    least, why = LEAST_SAFE[name]
    tested = constraints().get(name)
    assert tested is None or tested >= Version(least), why
    installed = RUNTIME.get(name)
    assert installed is None or Version(installed.version) >= Version(least), why
    for item in direct():
        if canonicalize_name(item.name) == name:
            floors = [Version(part.version) for part in item.specifier if part.operator in {">=", "==", "~="}]
            assert floors, f"{item} has no least version"
            assert max(floors) >= Version(least), why


def test_what_is_listed_is_used() -> None:
    """A package that nothing needs any more leaves the list, so that the list is read."""
    known = RUNTIME.keys() | constraints().keys() | {"setuptools"}
    assert LEAST_SAFE.keys() - known <= set(), LEAST_SAFE.keys() - known


def test_the_lowest_versions_that_are_allowed_are_the_ones_that_make_test_lowest_installs() -> None:
    pins = constraints("lowest.txt")
    needed = list(PROJECT["dependencies"])
    needed += [
        text
        for extra in ("s3", "pictures", "iceberg", "delta")
        for text in PROJECT["optional-dependencies"][extra]
    ]
    for item in map(Requirement, needed):
        (floor,) = [Version(part.version) for part in item.specifier if part.operator == ">="]
        assert pins[canonicalize_name(item.name)].release[: len(floor.release)] == floor.release, item
