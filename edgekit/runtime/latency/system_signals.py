"""Load, heat and power as the system reports them in files; read on demand. What is not reported is None.

    signals = read()
    signals.strained        # "the processor is throttled to 60 % of its clock", or ""

Linux only; elsewhere everything is None. Files and units are documented in the kernel's documentation:
driver-api/thermal/sysfs-api (millidegrees), ABI/testing/sysfs-class-power (percent), admin-guide/pm/cpufreq
(kilohertz), accounting/psi (percent of time); and in Raspberry Pi's ``vcgencmd get_throttled`` (bits).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

THROTTLED_SHARE = 0.8
"""Share of the full clock below which the processor counts as throttled."""
BATTERY_LOW = 0.2
PI_THROTTLED_NOW = 0xF
"""Under-voltage, clock capped, throttled, soft temperature limit; the higher bits report past events."""
PASSIVE = ("passive", "hot", "critical")
"""Trip points at which the kernel throttles."""


class Signals(NamedTuple):
    """One reading. None means not reported.

    Attributes:
        temperature_c: Temperature of the hottest zone.
        hot: Whether a zone has reached the trip point at which the kernel throttles.
        clock_share: The processor's maximum clock now, as a share of its full clock.
        throttled: Whether the board reports throttling (Raspberry Pi).
        on_battery: Whether the device runs on battery.
        load: Runnable processes per core, over the last minute.
        pressure: Share of the last 10 s in which some process waited for a core.
    """

    temperature_c: float | None = None
    hot: bool | None = None
    clock_share: float | None = None
    throttled: bool | None = None
    battery_share: float | None = None
    on_battery: bool | None = None
    load: float | None = None
    pressure: float | None = None

    @property
    def strained(self) -> str:
        """Why the device should use a faster variant; empty if there is no known reason.

        Load and pressure are not reasons: their effect shows in the prediction times.
        """
        if self.throttled:
            return "the board throttles its processor"
        if self.clock_share is not None and self.clock_share < THROTTLED_SHARE:
            return f"the processor is throttled to {self.clock_share:.0%} of its clock"
        if self.hot:
            return f"it is at {self.temperature_c or 0:.0f} degrees, where the kernel throttles"
        if self.on_battery and self.battery_share is not None and self.battery_share < BATTERY_LOW:
            return f"{self.battery_share:.0%} of the battery is left"
        return ""


def read(root: str | Path = "/") -> Signals:
    """Read all signals, in about a millisecond. Never raises: what cannot be read is None.

    Args:
        root: Folder that holds ``sys`` and ``proc``.
    """
    root = Path(root)
    temperature_c, hot = _heat(root / "sys/class/thermal")
    battery_share, on_battery = _power(root / "sys/class/power_supply")
    return Signals(
        temperature_c,
        hot,
        _clock_share(root / "sys/devices/system/cpu/cpufreq"),
        _throttled(root / "sys/devices/platform/soc/soc:firmware/get_throttled"),
        battery_share,
        on_battery,
        _load(root),
        _pressure(root / "proc/pressure/cpu"),
    )


def _heat(folder: Path) -> tuple[float | None, bool | None]:
    hottest: float | None = None
    hot: bool | None = None
    for zone in _folders(folder, "thermal_zone*"):
        milli = _number(zone / "temp")
        if milli is None or not -50_000 < milli < 250_000:  # sleeping zones report 0 or garbage
            continue
        hottest = milli / 1000 if hottest is None else max(hottest, milli / 1000)
        for kind in _folders(zone, "trip_point_*_type"):
            limit = _number(kind.with_name(kind.name.replace("_type", "_temp")))
            if _text(kind) in PASSIVE and limit is not None and limit > 0:
                hot = bool(hot) or milli >= limit
    return hottest, hot


def _clock_share(folder: Path) -> float | None:
    """Return the lowest limit of any policy: the kernel throttles by lowering scaling_max_freq."""
    shares = []
    for policy in _folders(folder, "policy*"):
        maximum, now = _number(policy / "cpuinfo_max_freq"), _number(policy / "scaling_max_freq")
        if maximum and now is not None:
            shares.append(min(1.0, now / maximum))
    return min(shares, default=None)


def _throttled(path: Path) -> bool | None:
    text = _text(path)
    try:
        return None if text is None else bool(int(text, 16) & PI_THROTTLED_NOW)
    except ValueError:
        return None


def _power(folder: Path) -> tuple[float | None, bool | None]:
    """Read the device's own batteries; those of peripherals, e.g. a mouse, have the scope ``Device``."""
    shares, discharging = [], []
    for supply in _folders(folder, "*"):
        if _text(supply / "type") != "Battery" or _text(supply / "scope") == "Device":
            continue
        percent, status = _number(supply / "capacity"), _text(supply / "status")
        if percent is not None and 0 <= percent <= 100:
            shares.append(percent / 100)
        if status is not None and status != "Unknown":
            discharging.append(status == "Discharging")
    return min(shares, default=None), any(discharging) if discharging else None


def _load(root: Path) -> float | None:
    try:
        running = float((_text(root / "proc/loadavg") or "").split()[0])
    except (IndexError, ValueError):
        return None
    cores = len(_folders(root / "sys/devices/system/cpu", "cpu[0-9]*"))
    return running / cores if cores else None


def _pressure(path: Path) -> float | None:
    for line in (_text(path) or "").splitlines():
        kind, *figures = line.split()
        values = dict(figure.partition("=")[::2] for figure in figures)
        if kind == "some" and "avg10" in values:
            try:
                return float(values["avg10"]) / 100
            except ValueError:
                return None
    return None


def _folders(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _number(path: Path) -> float | None:
    try:
        return float(_text(path) or "")
    except ValueError:
        return None


def _text(path: Path) -> str | None:
    """Return the first 4 kB of a file; None if it cannot be read, e.g. a missing or sleeping sensor."""
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode("ascii", "replace").strip()
    except OSError:
        return None
