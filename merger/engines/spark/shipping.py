"""The package as one zip for Spark's workers, so that they need no installation of tblctl.

It holds the bytecode, too, that this Python keeps of its modules: to compile them takes a worker a quarter of a second.
Workers of another version of Python pass it over, and compile.

The zip is named by its content's hash, since Spark refuses other content under a known name. Its path is the same for
every session of a user, since a cluster refuses a known name from another path. It is not deleted: executors that start
late in a session fetch it from the driver.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import importlib.util
import io
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from tblctl.tableformat.errors import EngineError


@dataclass(frozen=True, kw_only=True)
class Code:
    """The parts of tblctl that Spark's workers need, chosen by the layer that knows every use of a session.

    Attributes:
        packages: dotted names of whole packages, with their sub-packages.
        modules: single files of the top package, including `__init__.py`.
    """

    packages: tuple[str, ...]
    modules: tuple[str, ...]


_FAST = 1
"""The level of compression: the zip is read from the driver's disk, or sent once to each executor."""

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip format's first moment: equal sources give equal bytes


def stored_zip(code: Code) -> Path:
    """Return the zip's path in this user's temporary folder. Write it if needed.

    Raises:
        EngineError: it cannot be written; or others may write to the folder, and could put their code there.
    """
    content = zip_content(code)
    try:
        path = _own_folder() / f"tblctl-{hashlib.sha256(content).hexdigest()[:16]}.zip"
        if not path.is_file() or path.read_bytes() != content:
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as unfinished:
                unfinished.write(content)
            Path(unfinished.name).replace(path)
    except OSError as error:
        raise EngineError(
            f"the code for Spark's workers cannot be stored: {error}; free space there, or set TMPDIR to another place"
        ) from error
    return path


@functools.cache
def zip_content(code: Code) -> bytes:
    """Return the zip: the same bytes for the same sources and bytecode. They are read at the first call."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources(code).items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source, zipfile.ZIP_DEFLATED, _FAST)
    return buffer.getvalue()


def _sources(code: Code) -> dict[str, bytes]:
    """Return the source files, and their bytecode, by their path in the zip.

    An editable installation maps `tblctl` to one folder and each layer to another, so each package is asked for by its
    own name. Below a layer's root, folders lie as packages do.
    """
    top = importlib.resources.files("tblctl")
    sources = dict(found for name in code.modules for found in _module(top.joinpath(name), f"tblctl/{name}"))
    for name in code.packages:
        sources |= _files_below(importlib.resources.files(name), name.replace(".", "/"))
    return sources


def _files_below(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _files_below(item, f"{path}/{item.name}")
        elif item.name.endswith(".py"):
            yield from _module(item, f"{path}/{item.name}")


def _module(item: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    source = item.read_bytes()
    yield path, source
    bytecode = _bytecode(Path(str(item)), source)
    if bytecode is not None:
        yield f"{path}c", bytecode


def _bytecode(path: Path, source: bytes) -> bytes | None:
    """Return the bytecode that Python keeps of a source file, marked as up to date whatever the time of the source.

    None if there is none, or of another source. The layout of its first 16 bytes is that of PEP 552.
    """
    try:
        kept = Path(importlib.util.cache_from_source(path)).read_bytes()
        made = int(path.stat().st_mtime)
    except (OSError, NotImplementedError):
        return None
    word = 0xFFFF_FFFF
    stamp = (made & word).to_bytes(4, "little") + (len(source) & word).to_bytes(4, "little")
    if kept[:16] != importlib.util.MAGIC_NUMBER + bytes(4) + stamp:
        return None
    unchecked = (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + unchecked + kept[16:]


def _own_folder() -> Path:
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"tblctl-{user}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise EngineError(
            f"{folder} keeps the code for Spark's workers, and other users could change it: expected a folder that "
            f"user {user} owns and nobody else may write to; remove it, or set TMPDIR to another place"
        )
    return folder
