"""Updates that are repeated: each in a process of its own, at times that no two devices share."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from edgekit.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LEAST_S = 10
FIRST_PART = 0.1
"""The first run comes within this part of the interval: devices that start together do not ask together."""
BACK_OFF_LIMIT = 8
"""After failures the interval is doubled, up to so many times itself."""
COMMAND = "from edgekit.cli import main; main(prog_name='edgekit')"


def interval_s(text: str) -> float:
    """Return the seconds of ``90s``, ``15m``, ``1h`` or ``1d``.

    >>> interval_s("15m")
    900.0

    Raises:
        UsageError: it is not of this form, or less than 10 seconds.
    """
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if match is None or (seconds := float(match[1]) * UNITS[match[2]]) < LEAST_S:
        raise UsageError(f"{text!r} is not an interval; use e.g. 15m, 1h or 1d, at least {LEAST_S}s")
    return seconds


def poll(
    run: Callable[[], bool],
    every_s: float,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[float, float], float] = random.uniform,
) -> None:
    """Run for ever, half to one and a half of ``every_s`` apart; further apart while runs fail.

    Args:
        run: One update; whether it succeeded.
        every_s: The mean interval in seconds.
    """
    sleep(draw(0.0, FIRST_PART * every_s))
    failed = 0
    while True:
        failed = 0 if run() else failed + 1
        sleep(draw(0.5, 1.5) * every_s * min(2**failed, BACK_OFF_LIMIT))


def run_child(arguments: Sequence[str]) -> bool:
    """``edgekit`` with these arguments, in a process that ends: its memory is not this one's."""
    return subprocess.run([sys.executable, "-c", COMMAND, *arguments], check=False).returncode == 0


def without_every(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of one run, without ``--every``.

    >>> without_every(["update", "--every", "1h", "--json"]), without_every(["update", "--every=1h"])
    (['update', '--json'], ['update'])
    """
    left, skipped = [], False
    for argument in arguments:
        if skipped or argument == "--every":
            skipped = argument == "--every" and not skipped
        elif not argument.startswith("--every="):
            left.append(argument)
    return left
