"""The command's output on a terminal of a given width."""

from __future__ import annotations

import os
import pty
import subprocess
import sys


def on_terminal(*words: object, columns: int, **environment: str) -> str:
    """Return what the command writes to a terminal."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tblctl.cli", *map(str, words)],
        stdout=other,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", **environment},
    )
    os.close(other)
    written = b""
    while True:
        try:
            part = os.read(main, 65_536)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        written += part
    os.close(main)
    assert process.wait(60) == 0
    return written.decode().replace("\r\n", "\n")
