"""Report what is missing if this Python cannot make the project's environment. Runs on any Python 3."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 (the point of this script)
    sys.exit(
        "tblctl needs Python 3.11 or newer, this is %s (%s); name another one: make PYTHON=python3.12 ..."  # noqa: UP031
        % (sys.version.split()[0], sys.executable)
    )
try:
    import ensurepip  # noqa: F401
except ImportError:
    sys.exit(
        "%s cannot make virtual environments: install its venv package (Debian: python3-venv)"  # noqa: UP031
        % sys.executable
    )
