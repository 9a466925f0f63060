"""Properties that are worked out once and may read from the storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_T = TypeVar("_T")


class once(Generic[_T]):  # noqa: N801 (used as a decorator, as `property` is)
    """A property that is worked out at its first use and kept. Two threads may both work it out; the last result stays.

    `functools.cached_property` of Python 3.11 holds a lock meanwhile, one for all objects of the class. So one thread
    that waits for the storage would make all others of the process wait.
    """

    def __init__(self, work: Callable[[Any], _T]) -> None:
        self._work = work
        self._name = work.__name__
        self.__doc__ = work.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type) -> _T: ...

    def __get__(self, owner: object | None, kind: type) -> Self | _T:
        if owner is None:
            return self
        found = self._work(owner)
        owner.__dict__[self._name] = found  # from now on found before this
        return found
