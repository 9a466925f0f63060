"""Installed packages offer policies by entry points; one that is broken does not keep the others from being used."""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tblctl
from tblctl import installed, policies
from tblctl.cli.main import application
from tblctl.errors import InvalidOptionError
from tblctl.selector import registry

MODULE = """
from dataclasses import dataclass
import numpy as np
from tblctl import policies

@dataclass(frozen=True, kw_only=True)
class Options:
    {option}: int = policies.option(default=3, unit="blocks", help="Blocks to merge.", least=2)

class Offered:
    name = "{name}"
    summary = "is offered by a package"
    options = Options

    def decide(self, view, budget, options, **_):
        blocks = np.flatnonzero(view.selectable)[: options.{option}]
        level = policies.next_level(view, blocks)
        return policies.Decision(drafts=(policies.Draft(blocks=blocks, output_level=level, why="offered"),))

policies.summaries()  # a package may look at what there is
offered = Offered()
"""


def install(folder: Path, name: str, entry: str, source: str) -> None:
    """Lay out a package as an installer does."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[tblctl.policies]\n{entry}\n")


def offered(name: str, option: str = "most_offered") -> str:
    return MODULE.format(name=name, option=option)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages; the registry is as in a process that has just started."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(registry, "_POLICIES", dict(registry._POLICIES))
    monkeypatch.setattr(policies, "INSTALLED", installed.InstalledPolicies())
    importlib.invalidate_caches()
    yield folder
    for name in [name for name in sys.modules if name.startswith("pkg_")]:
        del sys.modules[name]


@pytest.fixture
def location(tmp_path: Path) -> str:
    table = tblctl.create(tmp_path / "t", "k: int64", cluster_by="k")
    for rows in (50, 10, 40, 20):
        table.append(pa.table({"k": range(rows)}))
    return str(tmp_path / "t")


@pytest.mark.parametrize("what", ["Offered", "offered"])
def test_an_offered_policy_is_used_by_name_as_its_class_or_an_object(
    site: Path, location: str, what: str
) -> None:
    install(site, "pkg_a", f"ours = pkg_a:{what}", offered("ours"))
    plan = tblctl.open(location).plan("ours", options={"most_offered": 2})
    assert [(group.rows, group.why) for group in plan.groups] == [(60, "offered")]
    assert policies.summaries()["ours"] == "is offered by a package"


def test_the_command_takes_an_offered_policy_and_its_options(site: Path, location: str) -> None:
    install(site, "pkg_b", "theirs = pkg_b:Offered", offered("theirs"))
    words = ["recluster", location, "--policy", "theirs", "--most-offered", "4", "--dry-run", "--json"]
    plan = json.loads(CliRunner().invoke(application, words).stdout)
    assert (plan["policy"], len(plan["groups"][0]["blocks"])) == ("theirs", 4)
    assert "or theirs, which is offered by a package" in " ".join(
        CliRunner().invoke(application, ["recluster", "--help"]).stdout.split()
    )


BROKEN = {
    "it cannot be imported": (
        "bad = pkg_c:Offered",
        "import nowhere_at_all",
        "ModuleNotFoundError: No module",
    ),
    "it is not there": (
        "bad = pkg_c:Missing",
        "",
        "AttributeError: module 'pkg_c' has no attribute 'Missing'",
    ),
    "it cannot be made": ("bad = pkg_c:Bad", "class Bad:\n def __init__(self, x): ...", "TypeError: "),
    "it is no policy": ("bad = pkg_c:bad", "class B: name = 'bad'\nbad = B()", "decide is missing"),
    "it has another name": ("bad = pkg_c:Offered", offered("good"), "its name is 'good'"),
    "its option is a flag": (
        "bad = pkg_c:Offered",
        offered("bad", "final"),
        "option final: tblctl recluster takes",
    ),
}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what was logged, without the steps that loggers below `tblctl` log once another test asked for them."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_one_is_told_with_its_package_and_leaves_the_others(
    site: Path, location: str, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    entry, source, why = BROKEN[case]
    install(site, "pkg_c", entry, source)
    install(site, "pkg_d", "fine = pkg_d:Offered", offered("fine"))
    table = tblctl.open(location)
    own = {policy.name for policy in registry.registered()}
    with caplog.at_level(logging.WARNING, logger="tblctl"):
        assert set(policies.summaries()) == {*own, "fine"}
    (record,) = warnings_of(caplog)
    assert record.getMessage().startswith("policy 'bad' of pkg_c 1.5 (pkg_c:")
    assert why in record.getMessage()
    assert table.plan("fine").policy == "fine"
    with pytest.raises(
        InvalidOptionError, match=r"^policy 'bad' of pkg_c 1.5 \(pkg_c:\w+\) cannot be used: "
    ):
        table.plan("bad")
    assert len(warnings_of(caplog)) == 1
    result = CliRunner().invoke(application, ["recluster", location, "--policy", "bad"])
    assert (result.exit_code, "policy 'bad' of pkg_c 1.5" in result.stderr) == (2, True)
    assert CliRunner().invoke(application, ["recluster", location, "--policy", "fine"]).exit_code == 0


def test_packages_are_not_asked_for_a_policy_that_is_known(site: Path, location: str) -> None:
    install(site, "pkg_e", "loud = pkg_e:Offered", "raise SystemExit('imported')")
    table = tblctl.open(location)
    assert table.plan("full").policy == "full"
    assert table.recluster().policy == "levels"


def test_a_program_s_own_policy_of_that_name_comes_first(site: Path) -> None:
    install(site, "pkg_f", "ours = pkg_f:Offered", offered("ours"))
    namespace: dict[str, object] = {}
    exec(offered("ours").replace("policies.summaries()", ""), namespace)
    registry.register(namespace["offered"])  # type: ignore[arg-type]
    assert policies.policy_of("ours") is namespace["offered"]
    policies.summaries()
    assert policies.policy_of("ours") is namespace["offered"]


def test_the_help_of_tblctl_loads_no_package_that_offers_a_policy(site: Path) -> None:
    install(site, "pkg_g", "loud = pkg_g:Offered", "raise SystemExit('imported')")
    program = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "from tblctl.cli.main import application\napplication(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Commands:" in done.stdout) == (0, True)


def test_the_list_of_policies_names_the_package_of_each_and_why_one_cannot_be_used(site: Path) -> None:
    install(site, "pkg_h", "ours = pkg_h:Offered", offered("ours"))
    install(site, "pkg_i", "bad = pkg_i:Offered", "import nowhere_at_all")
    found = {item.name: item for item in policies.listed()}
    assert (found["levels"].source, found["ours"].source) == ("tblctl", "pkg_h 1.5")
    assert found["ours"].problem is None
    assert [option.name for option in found["ours"].options] == ["most_offered"]
    assert "No module named 'nowhere_at_all'" in str(found["bad"].problem)
    text = CliRunner().invoke(application, ["recluster", "--list-policies"]).stdout
    assert "policy 'bad' of pkg_i 1.5 (pkg_i:Offered) cannot be used" in text
