"""Objects that are written little by little."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


Guard = Callable[[Callable[[], None]], None]
"""Runs an action as one storage call, with all that this stands for: errors of ours, faults of tests."""


class Output(Protocol):
    """An object on its way: nothing is to be seen of it before it is published, and nothing stays if it is not.

    Attributes:
        sink: what to write to; one thread at a time.
    """

    sink: pa.NativeFile

    def publish(self) -> None:
        """Make the object visible, whole and durable, replacing what is there; `sink` takes no more."""

    def abort(self) -> None:
        """Forget the object, as far as possible; never raises. Does nothing once published."""


class BufferedOutput:
    """Holds the object in memory and writes it in one go: for storages where parts bring nothing."""

    def __init__(self, write: Callable[[pa.Buffer], None], guard: Guard) -> None:
        import pyarrow as pa

        self.sink = pa.BufferOutputStream()
        self._write = write
        self._guard = guard

    def publish(self) -> None:
        """See `Output`."""
        self._guard(lambda: self._write(self.sink.getvalue()))

    def abort(self) -> None:
        """See `Output`."""
        self.sink.close()
