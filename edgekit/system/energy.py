"""Energy that the processor has used, if the kernel tells: RAPL, as /sys/class/powercap has it.

Source: the Linux kernel's Documentation/power/powercap/powercap.rst. The counters are those of whole
packages: what else runs is in them. Since 2020 they are readable for root alone (CVE-2020-8694).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")


class EnergyReading(NamedTuple):
    """Package -> (microjoules, the value at which its counter begins again); or why there is none."""

    packages: dict[str, tuple[int, int]]
    absent: str


def read_energy(folder: Path = POWERCAP) -> EnergyReading:
    """Return the counters of all packages now."""
    counters = {}
    try:
        zones = sorted(folder.glob("intel-rapl:[0-9]*"))
        for zone in zones:
            if zone.name.count(":") == 1:  # intel-rapl:0:1 is a part of intel-rapl:0
                counters[zone.name] = (_number(zone / "energy_uj"), _number(zone / "max_energy_range_uj"))
    except PermissionError as problem:
        return EnergyReading({}, f"{problem.filename} is not readable for this user")
    except (OSError, ValueError) as problem:
        return EnergyReading({}, f"{folder} can't be read: {problem}")
    return EnergyReading(counters, "" if counters else f"{folder} has no RAPL counters")


def joules_between(before: EnergyReading, after: EnergyReading) -> float | None:
    """Return the energy between two readings in J, or None if a counter is missing. Each counter may wrap
    around once."""
    if not before.packages or before.packages.keys() != after.packages.keys():
        return None
    used = 0
    for name, (now, limit) in after.packages.items():
        grown = now - before.packages[name][0]
        used += grown if grown >= 0 else grown + limit
    return used / 1e6


def _number(path: Path) -> int:
    return int(path.read_text("ascii"))
