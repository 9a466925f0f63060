"""`python -m tblctl.cli`: the command, where no script was installed."""

from __future__ import annotations

from tblctl.cli.main import run

if __name__ == "__main__":
    run()
