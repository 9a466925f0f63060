"""Write a picture to a file in the format that its name asks for."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from tblctl.local_file import is_full, whole_file, why_unwritten
from tblctl.pictures.picture import Picture
from tblctl.tableformat.errors import InvalidOptionError, StorageError

FORMATS = ("svg", "png", "html")


class Drawing:
    """A picture that notebooks show where it is the value of a cell. It is drawn when it is shown."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture

    def _repr_svg_(self) -> str:
        from tblctl.pictures.drawing import draw_svg

        return draw_svg(self.picture)[0].decode()

    def __repr__(self) -> str:
        return f"Drawing({self.picture.title!r})"


def check_drawing(path: str | os.PathLike[str] | None) -> None:
    """Raise if pictures cannot be drawn, or not to this file; None stands for no file.

    Raises:
        InvalidOptionError: as for `picture_format`.
    """
    if path is not None:
        picture_format(path)
    else:
        _require_matplotlib()


def picture_format(path: str | os.PathLike[str]) -> str:
    """Return the format that a file's name asks for.

    Raises:
        InvalidOptionError: the format is not known, the folder is missing, or matplotlib is not installed.
    """
    file = Path(path)
    extension = file.suffix.removeprefix(".").lower()
    if extension not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        msg = f"picture {os.fspath(path)!r}: expected a file's name that ends with one of {known}"
        raise InvalidOptionError(msg)
    if not file.parent.is_dir():
        msg = f"picture {os.fspath(path)!r} cannot be written: there is no folder {os.fspath(file.parent)!r}"
        raise InvalidOptionError(msg)
    _require_matplotlib()
    return extension


def _require_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        msg = (
            "pictures are drawn with matplotlib, which is not installed: install the extra pictures, "
            "pip install '.[pictures]' in the checkout"
        )
        raise InvalidOptionError(msg)


def write_picture(picture: Picture, path: str | os.PathLike[str]) -> None:
    """Draw the picture in the format that the file's name asks for. An existing file is replaced.

    Raises:
        InvalidOptionError: as for `picture_format`, or the file cannot be written.
        StorageError: the disk is full. The file is as before.
    """
    kind = picture_format(path)
    if kind == "html":
        from tblctl.pictures.page import picture_page

        content = picture_page(picture)
    else:
        from tblctl.pictures.drawing import draw_png, draw_svg

        content = draw_png(picture) if kind == "png" else draw_svg(picture)[0]
    write_whole(path, content)


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file of pictures.

    Raises:
        InvalidOptionError: it cannot be written.
        StorageError: the disk is full. The file is as before.
    """
    try:
        with whole_file(path) as part:
            part.write_bytes(content)
    except OSError as error:
        msg = f"picture {os.fspath(path)!r} cannot be written: {why_unwritten(error)}"
        raise (StorageError if is_full(error) else InvalidOptionError)(msg) from error
