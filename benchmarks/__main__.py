"""`python -m benchmarks [SUBJECT ..]` runs subjects, each in its own process, so that none warms up the next."""

from __future__ import annotations

import subprocess
import sys

SUBJECTS = (
    "append",
    "before",
    "scan",
    "record",
    "metadata",
    "startup",
    "metrics",
    "boxes",
    "index",
    "curves",
    "qdtree",
    "layout_estimates",
    "planning",
    "policies",
    "worth",
    "workload",
    "predictions",
    "partitions",
    "merge",
    "layouts",
    "e2e",
    "memory",
    "large_files",
    "copy",
    "readers",
    "encode",
    "group",
    "requests",
    "skew",
    "cuts",
    "scale",
    "spark_source",
    "manifests",
    "commits",
    "load",
    "snapshots",
    "iceberg_snapshots",
    "iceberg",
    "small",
    "overlap",
    "beside",
    "folder",
)


def main() -> int:
    words = sys.argv[1:]
    options = [word for word in words if word.startswith("-")]
    failed = 0
    for subject in [word for word in words if word not in options] or SUBJECTS:
        failed |= subprocess.run(
            [sys.executable, "-m", f"benchmarks.{subject}", *options], check=False
        ).returncode
        print()
    return failed


if __name__ == "__main__":
    sys.exit(main())
