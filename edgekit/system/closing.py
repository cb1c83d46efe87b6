"""Context managers that end with ``close``, and stay in their process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn, TypeVar

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Context manager that is closed at the end of its block."""

    __slots__ = ()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, as ``multiprocessing`` does with arguments: it holds what is this process's.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"a {type(self).__name__} can't be sent to another process; open one there")

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds."""
