"""Signals: read from the files that the kernel documents; absent or nonsense is None, never an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgekit.runtime.latency.system_signals import Signals, read

PHONE = {
    "sys/class/thermal/thermal_zone0/temp": "61500",
    "sys/class/thermal/thermal_zone0/trip_point_0_type": "active",
    "sys/class/thermal/thermal_zone0/trip_point_0_temp": "50000",
    "sys/class/thermal/thermal_zone0/trip_point_1_type": "passive",
    "sys/class/thermal/thermal_zone0/trip_point_1_temp": "80000",
    "sys/class/thermal/thermal_zone1/temp": "45000",
    "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "1800000",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "1800000",
    "sys/devices/system/cpu/cpufreq/policy4/cpuinfo_max_freq": "2400000",
    "sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq": "2400000",
    "sys/devices/system/cpu/cpu0/online": "1",
    "sys/devices/system/cpu/cpu1/online": "1",
    "sys/class/power_supply/battery/type": "Battery",
    "sys/class/power_supply/battery/capacity": "64",
    "sys/class/power_supply/battery/status": "Discharging",
    "sys/class/power_supply/usb/type": "USB",
    "sys/class/power_supply/usb/online": "0",
    "sys/class/power_supply/mouse/type": "Battery",
    "sys/class/power_supply/mouse/scope": "Device",
    "sys/class/power_supply/mouse/capacity": "3",
    "sys/class/power_supply/mouse/status": "Discharging",
    "proc/loadavg": "1.50 0.75 0.60 3/345 9876",
    "proc/pressure/cpu": "some avg10=12.50 avg60=3.00 avg300=1.00 total=9\nfull avg10=0.00 total=0",
}
POLICY = "sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq"
BATTERY = "sys/class/power_supply/battery/"
ZONE = "sys/class/thermal/thermal_zone0/temp"
OTHER_ZONE = {
    "sys/class/thermal/thermal_zone1/trip_point_0_type": "critical",
    "sys/class/thermal/thermal_zone1/trip_point_0_temp": "90000",
}
PI = "sys/devices/platform/soc/soc:firmware/get_throttled"


def device(root: Path, files: Mapping[str, str]) -> Signals:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", "ascii")
    return read(root)


def test_a_whole_device(tmp_path: Path) -> None:
    signals = device(tmp_path, PHONE)
    assert signals == Signals(61.5, False, 1.0, None, 0.64, True, 0.75, 0.125)
    assert signals.strained == ""


def test_what_is_absent_is_none(tmp_path: Path) -> None:
    assert read(tmp_path) == Signals() == read(tmp_path / "nowhere")
    assert Signals().strained == ""


@pytest.mark.parametrize(
    ("files", "field", "value"),
    [
        ({ZONE: ""}, "temperature_c", 45.0),
        ({ZONE: "cold"}, "temperature_c", 45.0),
        ({ZONE: "-274000"}, "temperature_c", 45.0),
        ({POLICY: "many"}, "clock_share", 1.0),
        ({BATTERY + "capacity": "101"}, "battery_share", None),
        ({BATTERY + "status": "Unknown"}, "on_battery", None),
        ({BATTERY + "status": "Charging"}, "on_battery", False),
        ({"proc/loadavg": ""}, "load", None),
        ({"proc/pressure/cpu": "some avg10=x"}, "pressure", None),
        ({PI: "0x50000"}, "throttled", False),  # it was, once
        ({PI: "50005"}, "throttled", True),
        ({PI: "?"}, "throttled", None),
    ],
)
def test_what_is_nonsense_is_left_out(
    tmp_path: Path, files: dict[str, str], field: str, value: float | bool | None
) -> None:
    assert getattr(device(tmp_path, {**PHONE, **files}), field) == value


def test_a_sensor_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    device(tmp_path, PHONE)
    (tmp_path / ZONE).unlink()
    (tmp_path / ZONE).mkdir()  # reading it is an error of the system's
    assert read(tmp_path).temperature_c == 45.0


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({PI: "4"}, "the board throttles its processor"),
        ({POLICY: "1440000"}, "the processor is throttled to 60% of its clock"),
        ({POLICY: "1920000"}, ""),
        ({ZONE: "80000"}, "it is at 80 degrees, where the kernel throttles"),
        ({ZONE: "79999"}, ""),
        ({ZONE: "80000", **OTHER_ZONE}, "it is at 80 degrees, where the kernel throttles"),
        ({BATTERY + "capacity": "19"}, "19% of the battery is left"),
        ({BATTERY + "capacity": "19", BATTERY + "status": "Charging"}, ""),
        ({"proc/loadavg": "90 90 90 1/1 1"}, ""),  # its cost shows in the times
    ],
)
def test_what_a_device_should_do_with_less_for(tmp_path: Path, files: dict[str, str], text: str) -> None:
    assert device(tmp_path, {**PHONE, **files}).strained == text


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux has")
def test_this_machine_answers_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.getloadavg()[0]
    monkeypatch.delattr("time.sleep")
    signals = read()
    after = os.getloadavg()[0]
    cores = len(list(Path("/sys/devices/system/cpu").glob("cpu[0-9]*")))
    assert cores > 0
    assert signals.load is not None
    # The kernel counts anew every five seconds, and writes two digits.
    low, high = min(before, after) - 0.01, max(before, after) + 0.01
    assert low <= signals.load * cores <= high
