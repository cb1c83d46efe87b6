"""Context managers that end with ``close``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Context manager that is closed at the end of its block."""

    __slots__ = ()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds."""
