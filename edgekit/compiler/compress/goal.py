"""Goals of shrinking: fewer multiplications, fewer bytes, or a lower measured latency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from edgekit.errors import UsageError


@dataclass(frozen=True)
class ShrinkGoal:
    """Requested reduction of a model.

    Attributes:
        kind: The quantity to reduce; ``latency`` is measured on the target's engine.
        share: Share to remove, between 0 and 1.
        target: Target of the latency; else "".
    """

    kind: Literal["multiplications", "bytes", "latency"]
    share: float
    target: str = ""

    def __str__(self) -> str:
        quantity = f"latency on {self.target}" if self.kind == "latency" else self.kind
        return (
            f"{100 * self.share:g} % less {quantity}"
            if self.kind == "latency"
            else f"{100 * self.share:g} % fewer {quantity}"
        )


def shrink_goal(flops: str | float | None, size: str | float | None, latency: str | None) -> ShrinkGoal:
    """Parse the goal from exactly one option.

    Args:
        flops: Share of the multiplications to remove: ``-20%``, ``20%`` or 0.2.
        size: Share of the weights' bytes to remove, in the same form.
        latency: Share of the latency to remove, with the target: ``-25%@tflite``.

    >>> shrink_goal("-20%", None, None), shrink_goal(None, None, "25%@rpi5").target
    (ShrinkGoal(kind='multiplications', share=0.2, target=''), 'rpi5')

    Raises:
        UsageError: none or several are given, or one is malformed.
    """
    is_set = [option is not None for option in (flops, size, latency)]
    if sum(is_set) != 1:
        raise UsageError("add one of --flops -20%, --size -30% and --latency -25%@tflite")
    if latency is not None:
        share, _, target = str(latency).partition("@")
        if not target:
            raise UsageError(f"--latency is {latency!r}; it must name a target, e.g. -25%@tflite")
        return ShrinkGoal("latency", share_of("--latency", share), target)
    if flops is not None:
        return ShrinkGoal("multiplications", share_of("--flops", flops))
    assert size is not None
    return ShrinkGoal("bytes", share_of("--size", size))


def share_of(option: str, reduction: str | float) -> float:
    """Parse the share to remove, 0 to 1.

    Args:
        reduction: ``-20%``, ``20%`` or 0.2.
    """
    match = (
        re.fullmatch(r"\s*-?(\d+(?:\.\d+)?)\s*%\s*", reduction, re.ASCII)
        if isinstance(reduction, str)
        else None
    )
    share = float(match[1]) / 100 if match else reduction if isinstance(reduction, float) else 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option} is {reduction!r}; it must be a percentage between 0 and 100, e.g. -20%")
    return share
