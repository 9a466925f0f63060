"""Policies that installed packages offer, under the entry points `tblctl.policies`.

    [project.entry-points."tblctl.policies"]
    oldest = "your_package.policies:Oldest"

The name is the policy's own; the object is the policy, or its class, which is then called without arguments. Packages
are asked once, when somebody lists the policies or names one that is not known yet. One that cannot be loaded is told
in a warning; the others are not affected.
"""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from collections.abc import Mapping

from tblctl.selector.registry import register
from tblctl.tableformat.errors import InvalidOptionError

LOG = logging.getLogger("tblctl")

GROUP = "tblctl.policies"


class InstalledPolicies:
    """Registers what installed packages offer, at the first call of `load`."""

    def __init__(self) -> None:
        self._is_loaded = False
        self._broken: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._lock = threading.RLock()  # what is loaded may list the policies itself

    def load(self) -> Mapping[str, str]:
        """Register the policies; return by name why others could not be."""
        with self._lock:
            if not self._is_loaded:
                self._is_loaded = True
                for entry in importlib.metadata.entry_points(group=GROUP):
                    self._load(entry)
            return self._broken

    @property
    def sources(self) -> Mapping[str, str]:
        """The package of each policy that was registered, with its version, by the policy's name."""
        return self._sources

    def _load(self, entry: importlib.metadata.EntryPoint) -> None:
        source = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an installed package"
        try:
            value = entry.load()
            policy = value() if isinstance(value, type) else value
            if getattr(policy, "name", None) != entry.name:
                raise InvalidOptionError(f"its name is {getattr(policy, 'name', None)!r}")  # noqa: TRY301
            register(policy)
            self._sources[entry.name] = source
        except Exception as error:  # noqa: BLE001 (whatever it is, the other policies stay)
            why = f"{type(error).__name__}: {error}"
            problem = f"policy {entry.name!r} of {source} ({entry.value}) cannot be used: {why}"
            self._broken[entry.name] = problem
            LOG.warning("%s", problem)


INSTALLED = InstalledPolicies()
