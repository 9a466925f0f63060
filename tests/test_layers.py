"""The layers of DESIGN hold: who imports whom, who may ask the clock, and what `import tblctl` costs.

Everything here reads source text only (but for the import costs, measured in fresh processes).
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {  # folder -> what it may import of the package besides itself
    "tableformat": (),
    "metrics": (),
    "selector": ("tblctl.metrics", "tblctl.tableformat.model", "tblctl.tableformat.errors"),
    "merger": ("tblctl.tableformat", "tblctl.selector.plan", "tblctl.selector.pricing.price"),
    "api": ("tblctl.tableformat", "tblctl.metrics", "tblctl.selector", "tblctl.merger"),
    "cli": ("tblctl",),
}
VALUES = ("errors", "model")
BELOW_NATIVE = (
    *("errors", "environment", "concurrency", "once", "progress", "model", "keys", "predicate", "reshape"),
    *("projection", "storage", "parquet", "conditions", "buffered_rows", "import_lists"),
)
ROOMS = {  # folder or file of tableformat/ -> what it may import of tableformat/ besides itself
    "errors": (),
    "progress": (),
    "environment": (),
    "concurrency": (),
    "once": (),
    "older_arrow": (),
    "model": ("errors", "older_arrow"),
    "predicate": (*VALUES, "older_arrow"),
    "keys": (*VALUES, "older_arrow", "predicate"),
    "reshape": VALUES,
    "projection": (*VALUES, "older_arrow", "reshape"),
    "buffered_rows": ("concurrency", "model", "keys"),
    "import_lists": (*VALUES, "storage", "parquet"),
    "conditions": (*VALUES, "predicate", "storage", "workload"),
    "port": (*VALUES, "environment", "progress", "storage", "workload"),
    "workload": (*VALUES, "environment", "storage", "predicate"),
    "pending": ("errors", "environment", "storage", "native/log"),
    "storage": ("errors", "environment", "concurrency"),
    "parquet": (*VALUES, "once", "keys", "predicate", "reshape", "projection", "storage"),
    "native/log": (
        *("errors", "environment", "concurrency", "model", "keys", "storage", "parquet", "port"),
        "import_lists",
    ),
    "native/blocks": (*VALUES, "parquet", "native/log"),
    "native/read": (*BELOW_NATIVE, "workload", "native/log", "native/blocks"),
    "native/write": (*BELOW_NATIVE, "native/log", "native/blocks", "native/read"),
    "native/upkeep": (*BELOW_NATIVE, "workload", "port", "native/log", "native/blocks", "native/read"),
    "native/block_io": (*BELOW_NATIVE, "native/log", "native/blocks"),
    "native": (*BELOW_NATIVE, "workload", "port", "native"),
    "iceberg/avro": (),
    "iceberg/location": ("errors",),
    "iceberg": (*BELOW_NATIVE, "workload", "port"),
    "folder": (*BELOW_NATIVE, "workload", "port"),
    "delta": (*BELOW_NATIVE, "workload", "port", "folder"),
    "formats": (*BELOW_NATIVE, "port", "native", "iceberg"),
}
OTHER_LAYERS_OF_CLI = tuple(f"tblctl.{name}" for name in LAYERS if name not in {"api", "cli"})
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 600


@dataclass(frozen=True, kw_only=True)
class Ban:
    """Names that only their owner may use; a name covers what lies below it (`random`: `random.choice`)."""

    names: tuple[str, ...]
    owners: tuple[str, ...]  # path prefixes
    instead: str


BANS = (
    Ban(
        names=("fsspec", "s3fs", "boto3", "botocore", "aiobotocore"),
        owners=("tableformat/storage/",),
        instead="tblctl.tableformat.storage.Storage",
    ),
    Ban(
        names=(
            "time.time",
            "time.time_ns",
            "time.sleep",
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
            "datetime.datetime.today",
            "datetime.date.today",
        ),
        owners=("tableformat/environment.py",),
        instead="the clock and the sleep of tblctl.tableformat.environment, handed in",
    ),
    Ban(
        names=("random", "secrets", "numpy.random", "os.urandom"),
        owners=("tableformat/environment.py",),
        instead="the rng of tblctl.tableformat.environment, handed in",
    ),
    Ban(
        names=("uuid.uuid1", "uuid.uuid4"),
        owners=("tableformat/environment.py",),
        instead="the ids of tblctl.tableformat.environment, handed in",
    ),
    Ban(
        names=("os.environ", "os.getenv", "os.environb"),
        owners=(
            "cli/",
            "tableformat/environment.py",
            "merger/engines/spark/session.py",  # takes back what pyspark sets there
        ),
        instead="an argument: nothing below the command reads environment variables",
    ),
    Ban(
        names=("print", "sys.stdout", "sys.stderr", "logging.basicConfig"),
        owners=("cli/",),
        instead="logging.getLogger(__name__), or a return value",
    ),
    Ban(
        names=("pyspark", "py4j"),
        owners=("merger/engines/spark/", "api/spark/"),
        instead="tblctl.merger.engines.spark, or tblctl.spark, the data source",
    ),
    Ban(
        names=("tblctl.tableformat.native",),
        owners=(
            "tableformat/",
            # operations of the native format only
            *(
                "api/table.py",
                "api/tables.py",
                "api/scan.py",
                "api/warehouse.py",
                "api/spark/",
                "api/importing",
            ),
        ),
        instead="tblctl.tableformat.formats.open_port: tables of every format are behind the port",
    ),
    Ban(names=("matplotlib",), owners=("api/pictures/drawing.py",), instead="tblctl.pictures.drawing"),
    Ban(
        names=("tblctl.tableformat.iceberg",),
        owners=("tableformat/", "api/iceberg.py", "api/importing_iceberg.py"),
        instead="tblctl.tableformat.formats.open_port, or tblctl.iceberg in api/",
    ),
    Ban(
        names=("pyiceberg.catalog", "pyiceberg.manifest", "pyiceberg.io"),
        owners=("tableformat/iceberg/",),
        instead="tblctl.tableformat.iceberg",
    ),
    Ban(
        names=("pyiceberg.table",),
        owners=("tableformat/iceberg/", "api/iceberg.py"),  # the latter takes a caller's table
        instead="tblctl.tableformat.iceberg",
    ),
    Ban(
        names=("pyarrow.set_cpu_count", "pyarrow.set_io_thread_count", "pyarrow.set_memory_pool"),
        owners=(),
        instead="an argument of the call: pyarrow's global settings are the host program's",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Use:
    """One place where a source file names something that it imported, or a builtin."""

    name: str
    line: int
    is_import: bool


MODULE_NAME = re.compile(r"\btblctl(?:\.[a-z_][a-z0-9_]*)+")


def layer_files() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def read_uses(source: str, *, package: str) -> list[Use]:
    """Return every imported module or name, and every attribute of one, by its full dotted name.

    A string that is the name of a module counts as an import: its file depends on that module too.
    `package` is the package that the file lies in, for relative imports.
    """
    tree = ast.parse(source)
    aliases: dict[str, str] = {"print": "print"}
    uses: list[Use] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                aliases[name.asname or name.name.split(".")[0]] = (
                    name.name if name.asname else name.name.split(".")[0]
                )
                uses.append(Use(name=name.name, line=node.lineno, is_import=True))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for name in node.names:
                full = f"{base}.{name.name}"
                aliases[name.asname or name.name] = full
                uses.append(Use(name=full, line=node.lineno, is_import=True))
    for node in ast.walk(tree):
        dotted = dotted_name(node)
        if dotted is not None and dotted[0] in aliases:
            full = ".".join([aliases[dotted[0]], *dotted[1:]])
            uses.append(Use(name=full, line=node.lineno, is_import=False))
    return uses


def named_modules(source: str) -> list[Use]:
    """Return the modules of the package that strings name, such as `"tblctl.tables:open"`; docstrings may name any."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        Use(name=name, line=node.lineno, is_import=True)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        for name in MODULE_NAME.findall(node.value)
        if is_module(name)
    ]


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module, or a name in one."""
    first, *rest = name.split(".")[1:]
    top = ROOT / first if first in LAYERS else ROOT / "api" / first
    return (top.is_dir() and (not rest or any(top.glob(f"{rest[0]}*")))) or top.with_suffix(".py").is_file()


def is_in(path: str, room: str) -> bool:
    return path == room or path.startswith(f"{room}/")


def room_violations(path: str, use: Use) -> list[str]:
    """Return what is wrong with an import inside tableformat/; the package itself holds nothing."""
    if use.name == "tblctl.tableformat":
        return []
    here = path.removeprefix("tableformat/").removesuffix(".py")
    there = use.name.removeprefix("tblctl.tableformat.").replace(".", "/")
    room = max((name for name in ROOMS if is_in(here, name)), key=len, default=None)
    if room is None or any(is_in(there, name) for name in (room, *ROOMS[room])):
        return []
    return [f"{path}:{use.line} imports {use.name}; {room} may import {', '.join(ROOMS[room]) or 'nothing'}"]


def dotted_name(node: ast.AST) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return None if base is None else [*base, node.attr]
    return None


def covers(name: str, used: str) -> bool:
    return used == name or used.startswith(name + ".")


def layer_violations(path: str, source: str) -> list[str]:
    """Return what is wrong with one file of a layer; `path` is relative to the repository."""
    layer = path.split("/", maxsplit=1)[0]
    own = "tblctl" if layer == "api" else f"tblctl.{layer}"
    package = ".".join([own, *path.split("/")[1:-1]])
    found = []
    for use in [*read_uses(source, package=package), *named_modules(source)]:
        if use.is_import and layer == "tableformat" and covers("tblctl.tableformat", use.name):
            found += room_violations(path, use)
        if use.is_import and covers("tblctl", use.name) and not may_import(layer, own, use.name):
            allowed = ", ".join(LAYERS[layer]) or "no other layer"
            found.append(f"{path}:{use.line} imports {use.name}; {layer}/ may import {allowed}")
        found += [
            f"{path}:{use.line} uses {use.name}; use {ban.instead}"
            for ban in BANS
            if any(covers(name, use.name) for name in ban.names) and not path.startswith(ban.owners or ("-",))
        ]
    return found


def may_import(layer: str, own: str, name: str) -> bool:
    if layer == "cli":
        return not any(covers(other, name) for other in OTHER_LAYERS_OF_CLI)
    if layer == "api":
        return not covers("tblctl.cli", name)
    return any(covers(allowed, name) for allowed in (own, *LAYERS[layer]))


def test_every_file_keeps_to_its_layer_and_leaves_clocks_and_storage_to_their_owners() -> None:
    found = [
        problem
        for path in layer_files()
        for problem in layer_violations(path.relative_to(ROOT).as_posix(), path.read_text())
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("tableformat/a.py", "from tblctl.metrics import depth", "tableformat/ may import no other layer"),
        ("tableformat/model/a.py", "from ...metrics import depth", "imports tblctl.metrics.depth"),
        ("tableformat/a.py", "import tblctl", "tableformat/ may import no other layer"),
        ("cli/a.py", "from tblctl.tableformat.model import options", "cli/ may import tblctl"),
        ("merger/a.py", "from tblctl.selector import policies", "may import tblctl.tableformat"),
        ("merger/a.py", "NAMES = ('tblctl.tables',)", "imports tblctl.tables; merger/ may import"),
        ("merger/a.py", "open_it = 'tblctl.tables:open'", "imports tblctl.tables; merger/ may import"),
        ("merger/a.py", "code = f'import tblctl.pictures.page, {name}'", "imports tblctl.pictures.page"),
        ("tableformat/parquet/a.py", "from tblctl.tableformat.native.log import names", "parquet may import"),
        ("tableformat/parquet/a.py", "x = 'tblctl.tableformat.native.port'", "parquet may import"),
        (
            "tableformat/native/log/a.py",
            "from tblctl.tableformat.native.read.scan import x",
            "native/log may",
        ),
        ("tableformat/native/read/a.py", "import tblctl.tableformat.native.write.dml", "native/read may"),
        ("tableformat/predicate/a.py", "from tblctl.tableformat.storage import Storage", "predicate may"),
        (
            "tableformat/model/a.py",
            "from tblctl.tableformat.storage import Storage",
            "model may import errors",
        ),
        ("api/a.py", "from tblctl.cli import main", "imports tblctl.cli.main"),
        ("tableformat/native/a.py", "import fsspec", "use tblctl.tableformat.storage.Storage"),
        ("tableformat/a.py", "import time as t\nt.time()", "a.py:2 uses time.time; use the clock"),
        ("tableformat/a.py", "from datetime import datetime\ndatetime.now()", "uses datetime.datetime.now"),
        ("tableformat/a.py", "from random import choice", "use the rng"),
        ("tableformat/a.py", "import numpy as np\nnp.random.rand()", "uses numpy.random.rand; use the rng"),
        ("tableformat/a.py", "import uuid\nuuid.uuid4()", "use the ids"),
        ("api/a.py", "import os\nos.environ['A']", "nothing below the command reads environment variables"),
        ("api/a.py", "print('hi')", "use logging.getLogger"),
        ("merger/a.py", "import pyspark.sql", "use tblctl.merger.engines.spark"),
        ("merger/a.py", "NAMES = ('tblctl.spark', 'b')", "imports tblctl.spark; merger/ may import"),
        ("api/sparkle.py", "import pyspark.sql", "or tblctl.spark, the data source"),
        ("api/a.py", "import pyarrow as pa\npa.set_cpu_count(1)", "the host program's"),
        ("api/clustered.py", "from tblctl.tableformat.native.log import alter", "formats.open_port"),
        ("merger/a.py", "import tblctl.tableformat.native.port", "behind the port"),
    ],
)
def test_a_breach_is_named_with_what_to_use_instead(path: str, source: str, expected: str) -> None:
    assert expected in "\n".join(layer_violations(path, source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("tableformat/storage/s3.py", "import s3fs"),
        ("merger/engines/spark/engine.py", "import pyspark.sql"),
        ("api/spark/reading.py", "import pyspark.sql"),
        ("tableformat/native/a.py", "from ..model.schema import Schema"),
        ("tableformat/a.py", "import time\ntime.perf_counter()"),
        ("tableformat/a.py", '"""See `tblctl.tables.open`."""\nLOG = getLogger("tblctl")'),
        ("merger/a.py", "x = 'tblctl.merger.round.round', 'tblctl.tableformat.port', 'tblctl.nowhere'"),
        ("tableformat/parquet/a.py", "from tblctl.tableformat.storage.ranges import GAP_BYTES"),
        ("tableformat/native/table.py", "from tblctl.tableformat.native.upkeep.gc import collect"),
        (
            "cli/a.py",
            "import tblctl\nfrom tblctl.errors import TblctlError\nfrom tblctl.cli.show import render\nprint()",
        ),
        ("api/a.py", "from tblctl.tableformat.errors import InputError"),
    ],
)
def test_what_the_layers_allow_passes(path: str, source: str) -> None:
    assert layer_violations(path, source) == []


def test_every_module_of_the_table_formats_is_in_a_room() -> None:
    folder = ROOT / "tableformat"
    modules = [path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.py")]
    assert [name for name in modules if not any(is_in(name, room) for room in ROOMS)] == ["__init__"]
    assert [room for room in ROOMS if not any(is_in(name, room) for name in modules)] == []


def test_functions_fit_a_screen_and_files_a_sitting() -> None:
    found = []
    folders = [ROOT / name for name in (*LAYERS, "tests", "benchmarks", "scripts")]
    for path in sorted(file for folder in folders for file in folder.rglob("*.py")):
        text = path.read_text()
        name = path.relative_to(ROOT)
        if text.count("\n") > MAX_FILE_LINES:
            found.append(f"{name}: {text.count(chr(10))} lines, at most {MAX_FILE_LINES}: split it")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    found.append(
                        f"{name}:{node.lineno} {node.name}: {lines} lines, at most {MAX_FUNCTION_LINES}"
                    )
    assert not found, "\n" + "\n".join(found)


def test_every_folder_with_code_is_a_package_in_pyproject() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.parent.relative_to(ROOT).parts for path in layer_files()}
    expected = {".".join(("tblctl", *parts)).replace("tblctl.api", "tblctl") for parts in folders}
    assert set(settings["packages"]) == expected
    mapped = settings["package-dir"].values()
    assert {folder.split("/", maxsplit=1)[0] for folder in mapped} == set(LAYERS)


def loaded_modules(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter holds after `statement`, beyond what it starts with."""
    program = (
        f"import sys, json; before = set(sys.modules)\n{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import tblctl", "import tblctl.errors", "import tblctl.cli.main"])
def test_importing_the_package_loads_no_heavy_library(statement: str) -> None:
    heavy = {
        "pyarrow",
        "pandas",
        "polars",
        "duckdb",
        "numpy",
        "pyiceberg",
        "sqlglot",
        "rich",
        "fsspec",
        "s3fs",
        "matplotlib",
    }
    loaded = {name.split(".")[0] for name in loaded_modules(statement)}
    assert not loaded & (heavy | {"pyspark", "asyncio"})


def test_a_table_of_any_format_loads_nothing_of_the_native_one() -> None:
    loaded = loaded_modules("import tblctl.clustered")
    assert "tblctl.clustered" in loaded
    assert not {name for name in loaded if covers("tblctl.tableformat.native", name)}
