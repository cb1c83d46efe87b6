"""What shrinking aims at: fewer multiplications, fewer bytes, or a measured latency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from edgekit.errors import UsageError


@dataclass(frozen=True)
class ShrinkGoal:
    """How much smaller a model is to become.

    Attributes:
        kind: What is counted, or ``latency``: measured on the target's engine.
        share: How much less of it, between 0 and 1.
        target: Of the latency; else "".
    """

    kind: Literal["multiplications", "bytes", "latency"]
    share: float
    target: str = ""

    def __str__(self) -> str:
        of = f"latency on {self.target}" if self.kind == "latency" else self.kind
        return (
            f"{100 * self.share:g} % less {of}"
            if self.kind == "latency"
            else f"{100 * self.share:g} % fewer {of}"
        )


def shrink_goal(flops: str | float | None, size: str | float | None, latency: str | None) -> ShrinkGoal:
    """The goal of exactly one option.

    Args:
        flops: ``-20%``, ``20%`` or 0.2: of the multiplications.
        size: The same of the weights' bytes.
        latency: ``-25%@tflite``.

    >>> shrink_goal("-20%", None, None), shrink_goal(None, None, "25%@rpi5").target
    (ShrinkGoal(kind='multiplications', share=0.2, target=''), 'rpi5')

    Raises:
        UsageError: none or several are given, or one is malformed.
    """
    given = [option is not None for option in (flops, size, latency)]
    if sum(given) != 1:
        raise UsageError("give one of --flops -20%, --size -30% and --latency -25%@tflite")
    if latency is not None:
        share, _, target = str(latency).partition("@")
        if not target:
            raise UsageError(f"--latency is {latency!r}; it must name a target, e.g. -25%@tflite")
        return ShrinkGoal("latency", share_of("--latency", share), target)
    if flops is not None:
        return ShrinkGoal("multiplications", share_of("--flops", flops))
    assert size is not None
    return ShrinkGoal("bytes", share_of("--size", size))


def share_of(option: str, given: str | float) -> float:
    """How much less, 0 to 1.

    Args:
        option: Its name, for the error.
        given: ``-20%``, ``20%`` or 0.2.

    Raises:
        UsageError: it is none of these.
    """
    match = re.fullmatch(r"\s*-?(\d+(?:\.\d+)?)\s*%\s*", given, re.ASCII) if isinstance(given, str) else None
    share = float(match[1]) / 100 if match else given if isinstance(given, float) else 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option} is {given!r}; it must be a percentage between 0 and 100, e.g. -20%")
    return share
