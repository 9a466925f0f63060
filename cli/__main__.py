"""`python -m tblctl.cli` runs the command without an installed script."""

from __future__ import annotations

from tblctl.cli.main import run

if __name__ == "__main__":
    run()
