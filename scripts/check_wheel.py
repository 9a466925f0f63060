"""Test the installed wheel with only its declared dependencies: every module imports, and the command works."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import tblctl

TEXT_LIMIT_SECONDS = 60
NEED_EXTRAS = {
    *("tblctl.pictures.drawing", "tblctl.pictures.page"),  # needs matplotlib
    *(
        f"tblctl.spark.{name}" for name in ("filters", "probe", "reading", "source", "writing")
    ),  # needs pyspark
}


def main() -> None:
    """Exit with a message at the first fault."""
    folder = Path(tblctl.__file__).parent
    if "site-packages" not in folder.parts:
        sys.exit(f"not an installed wheel: {folder}")
    if not (folder / "py.typed").is_file():
        sys.exit("py.typed is not in the wheel: type checkers would ignore the hints")
    names = sorted(module.name for module in pkgutil.walk_packages(tblctl.__path__, "tblctl."))
    for name in names:
        if not name.endswith("__main__") and name not in NEED_EXTRAS:
            importlib.import_module(name)
    command = Path(sys.executable).with_name("tblctl")
    subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL, timeout=TEXT_LIMIT_SECONDS)
    subprocess.run([command, "--version"], check=True, timeout=TEXT_LIMIT_SECONDS)
    print(
        f"the wheel imports whole ({len(names) - len(NEED_EXTRAS)} modules) and its command works, without extras"
    )


if __name__ == "__main__":
    main()
