"""Hooks of MkDocs: the site has the README as its first page, and what pages outside docs/ are linked to.

Links are written so that they hold in the repository. Here they lose the way out of docs/, or into it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    **{name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
RESULTS = "benchmarks/results"
_LINK = re.compile(r"\]\((?:\.\./|docs/)([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root, and the results of benchmarks with a page that lists them."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
    results = sorted(path for path in (ROOT / RESULTS).iterdir() if path.suffix in {".txt", ".svg"})
    for path in results:
        files.append(File.generated(config, f"{RESULTS}/{path.name}", abs_src_path=str(path)))
    listed = "\n".join(f"- [{path.name}]({path.name})" for path in results)
    files.append(
        File.generated(config, f"{RESULTS}/index.md", content=f"# Results of benchmarks\n\n{listed}\n")
    )
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with links as the site has them."""
    found = _LINK.sub(r"](\1)", markdown)
    return found.replace(f"]({RESULTS})", f"]({RESULTS}/index.md)")
