"""The package as one zip for Spark's workers, which need no installation of tblctl.

The zip is named by its content's hash, since Spark refuses other content under a name that it knows, and lies at a
path that is the same for every session of a user, since a cluster refuses a known name from another path. It stays
there: executors that start late in a session fetch it from the driver then.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import io
import os
import stat
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

from tblctl.tableformat import formats
from tblctl.tableformat.errors import EngineError

PACKAGES = (
    "tblctl.merger",
    "tblctl.merger.engines",
    "tblctl.merger.engines.spark",
    "tblctl.merger.presort",
    "tblctl.merger.round",
    "tblctl.merger.task",
    "tblctl.selector",
    "tblctl.selector.policies",
    "tblctl.spark",
    *formats.PACKAGES,
)
"""What tasks and the processes beside Spark's driver import, besides `MODULES` of `tblctl` itself."""

MODULES = ("__init__.py", "as_of.py", "storage_text.py")

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the zip format's first moment: equal sources give equal bytes


def stored_zip() -> Path:
    """Return the zip's path, in a folder of this user's under the system's for temporary files; write it if needed.

    Raises:
        EngineError: it cannot be written; or the folder is open to others, who could put code of theirs there.
    """
    content = zip_content()
    try:
        path = _own_folder() / f"tblctl-{hashlib.sha256(content).hexdigest()[:16]}.zip"
        if not path.is_file() or path.read_bytes() != content:
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as unfinished:
                unfinished.write(content)
            Path(unfinished.name).replace(path)
    except OSError as error:
        raise EngineError(
            f"the code for Spark's workers cannot be kept: {error}; free space there, or let TMPDIR name another place"
        ) from error
    return path


@functools.cache
def zip_content() -> bytes:
    """Return the zip: the same bytes for the same sources, as they were when first asked for."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources().items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _sources() -> dict[str, bytes]:
    package = importlib.resources.files("tblctl")
    sources = {f"tblctl/{name}": package.joinpath(name).read_bytes() for name in MODULES}
    for name in PACKAGES:
        folder = name.replace(".", "/")
        for item in importlib.resources.files(name).iterdir():
            if item.name.endswith(".py"):
                sources[f"{folder}/{item.name}"] = item.read_bytes()
    return sources


def _own_folder() -> Path:
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"tblctl-{user}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise EngineError(
            f"{folder} keeps the code for Spark's workers, and other users could change it: expected a folder that "
            f"user {user} owns and nobody else may write to; remove it, or let TMPDIR name another place"
        )
    return folder
