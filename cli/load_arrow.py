"""Load Arrow without pandas."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec


class _NoPandas:
    """A finder that finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)
        return None


def load_arrow() -> None:
    """Load Arrow, and let it believe that there is no pandas. Others still find it.

    Arrow loads pandas, where it is installed, when it makes its first array. That takes a sixth of a command on a small
    table, and no command needs it.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.array([0])  # now it looks, and never again
    finally:
        sys.meta_path.remove(finder)
