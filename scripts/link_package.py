"""Make a folder with the package laid out as installed, of links to the layer folders, for mypy."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def link(target: Path, *, root: Path) -> None:
    """Make `target`/tblctl: links to everything in api, and to each other folder that pyproject.toml maps."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = dict(settings["package-dir"])
    package = target / "tblctl"
    package.mkdir(parents=True)
    for source in (root / folders.pop("tblctl")).iterdir():
        if source.suffix in {".py", ".pyi", ".typed"} or (source / "__init__.py").is_file():
            (package / source.name).symlink_to(source)
    for name, folder in folders.items():
        (package / name.removeprefix("tblctl.")).symlink_to(root / folder)


if __name__ == "__main__":
    link(Path(sys.argv[1]), root=Path(__file__).resolve().parent.parent)
