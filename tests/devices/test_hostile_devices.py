"""Devices that answer anything: too much, for ever, with control characters, with lines for pip."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.devices import connection, vendor_tools
from edgekit.devices.connection import Connection
from edgekit.devices.inventory import Inventory, read_inventory
from edgekit.devices.measure import _checked
from edgekit.devices.provision import _platforms, missing_packages
from edgekit.devices.transport import parse_address, why_unreachable
from edgekit.devices.vendor_tools import look_for_tools
from edgekit.errors import DeviceError
from tests.devices.local_ssh import local_ssh

PI = parse_address("pi@board")
GOOD: dict[str, Any] = {
    "python": [3, 11, 2],
    "implementation": "cpython",
    "bits": 64,
    "machine": "aarch64",
    "system": "Linux",
    "release": "6.6.31",
    "libc": ["glibc", "2.36"],
    "texts": {},
    "free_bytes": 1 << 30,
    "packages": {"numpy": "2.1.0"},
    "tools": {},
}
ESCAPE = "\x1b]0;owned\x07"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WAITS_S", ())
    monkeypatch.setattr(connection, "END_SECONDS", 0.5)


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> Any:
    """The answer of a device that is this shell command."""
    local_ssh(folder, monkeypatch, f"{shell}\nexit 0")
    return Connection(PI, lambda line: None).ask({"do": "inventory"})


@pytest.mark.parametrize(
    ("shell", "why"),
    [
        ("yes '{\"hello\": 1}'", r"['hello']"),
        ("echo '{\"hello\": 1}'; yes '{\"more\": 1}'", r"['more']"),
        ("echo '{\"more\": 1}'", r"['more']"),
        ("echo '[1, 2]'", "a list"),
        (
            "echo '{\"hello\": 1}'; head -c 9000000 /dev/zero",
            "its answer: 8388609 bytes; the limit is 8388608",
        ),
        ("printf '[%0100000d' 1 | tr 0 '['", "its answer: "),
    ],
)
def test_answers_that_are_none_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, why: str
) -> None:
    with pytest.raises(DeviceError) as error:
        asked(tmp_path, monkeypatch, shell)
    assert str(error.value).startswith(f"pi@board sent an invalid response: {why}")
    assert len(str(error.value)) < 400


def test_what_a_device_does_not_read_is_no_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended when the payload is written, which then waits in the buffer of a broken pipe."""

    def late() -> Iterator[bytes]:
        time.sleep(1)
        yield b"x"

    local_ssh(tmp_path, monkeypatch, "echo '[1, 2]'\nexit 0")
    with pytest.raises(DeviceError, match="sent an invalid response: a list"):
        Connection(PI, lambda line: None)._once({"do": "inventory"}, late)


def test_a_device_that_keeps_the_connection_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = asked(tmp_path, monkeypatch, "echo '{\"hello\": 1}'; echo '{\"answer\": 7}'; exec sleep 3600")
    assert said == 7


def test_an_error_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError) as error:
        asked(tmp_path, monkeypatch, f'echo \'{{"error": "{"x" * 60_000}"}}\'')
    assert str(error.value) == "pi@board: " + "x" * 4000


def test_what_ssh_says_changes_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError) as error:
        asked(tmp_path, monkeypatch, f"printf '{ESCAPE}' >&2; exit 9")
    assert str(error.value) == "pi@board can't be reached: \\x1b]0;owned\\x07"
    assert len(why_unreachable(PI, "x" * 9000)) == 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"python": [3, 11]},
        {"python": "x"},
        {"python": []},
        {"python": [3, 11, 2, 1]},
        {"python": ["x", 1, 2]},
        {"machine": f"aarch64{ESCAPE}"},
        {"machine": "a\nb"},
        {"machine": 7},
        {"release": "x" * 201},
        {"system": "Linux\n  kept: no variant is worse"},
        {"libc": ["glibc"]},
        {"libc": ["glibc", "2\n36"]},
        {"tools": {"trtexec": f"/usr/bin/{ESCAPE}"}},
        {"packages": {"numpy": 2}},
        {"packages": ["numpy"]},
        {"packages": 3},
        {"bits": "x"},
        {"bits": None},
        {"texts": {"a"}},
    ],
)
def test_an_inventory_is_of_words_and_numbers(wrong: dict[str, Any]) -> None:
    assert read_inventory(GOOD, "pi@board").python == (3, 11, 2)
    with pytest.raises(DeviceError, match=r"^pi@board sent an invalid description: "):
        read_inventory({**GOOD, **wrong}, "pi@board")


def test_no_name_of_a_package_is_a_line_for_pip() -> None:
    """Names and versions go into a file of constraints, in which pip obeys options."""
    packages = {
        "numpy": "2.1.0\n--find-links http://evil.example",
        "onnxruntime\n--find-links http://evil.example": "1",
        "flatbuffers": " @ http://evil.example/flatbuffers.whl",
        "protobuf": "5.0; python_version>'3'",
        "Pillow.Simd": "9.0.post1+local",
    }
    assert read_inventory({**GOOD, "packages": packages}, "pi@board").packages == {
        "pillow-simd": "9.0.post1+local"
    }


def test_a_version_that_is_none_is_one_that_is_missing() -> None:
    pytest.importorskip("packaging")
    found = read_inventory({**GOOD, "packages": {"onnxruntime": "1.x.unknown"}}, "pi@board")
    assert "onnxruntime" not in missing_packages(["ort"], found).present


def test_a_libc_of_the_far_future_takes_no_memory() -> None:
    for version in ("2.99999999999999", "2.\u0663"):
        tags = _platforms(Inventory("aarch64", libc=("glibc", version), system="Linux 6"))
        assert len(tags) < 10


def row(**fields: Any) -> dict[str, Any]:
    times = {"p50_ms": 1.0, "p95_ms": 1.0, "p99_ms": 1.0, "threads": 1}
    return {"variant": "ort-fp32", "engine": "ONNX Runtime 1.32", **times, **fields}


@pytest.mark.parametrize(
    ("device", "rows"),
    [
        ({}, [row(variant="another")]),
        ({}, [row(variant=["ort-fp32"])]),
        ({}, [row(engine=ESCAPE)]),
        ({}, [row(p50_ms="1")]),
        ({}, [row(p50_ms=-1.0)]),
        ({}, "rows"),
        ({"cpu": f"A CPU{ESCAPE}"}, [row()]),
        ({"cpu": "A CPU\n"}, [row()]),
        ({"system": "x" * 201}, [row()]),
        ({"isa": [7]}, [row()]),
        ({"isa": None}, [row()]),
    ],
)
def test_figures_of_a_device_are_of_the_bundle_that_it_ran(device: dict[str, Any], rows: Any) -> None:
    manifest: dict[str, Any] = {"variants": [{"name": "ort-fp32"}]}
    facts = {"cpu": "A CPU", "isa": [], "machine": "aarch64", "system": "Linux 6", "python": "3.11"}
    assert _checked({"device": facts, "results": [row()]}, "bench", manifest, "pi@board") == (facts, [row()])
    with pytest.raises(DeviceError, match=r"^pi@board sent an invalid response: "):
        _checked({"device": {**facts, **device}, "results": rows}, "bench", manifest, "pi@board")


def test_a_tool_that_prints_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor_tools, "OUTPUT_LIMIT_BYTES", 1 << 20)
    local_ssh(tmp_path, monkeypatch, "exec yes")
    with pytest.raises(DeviceError, match=r"^pi@board: a command there prints more than 1 MB$"):
        look_for_tools(PI)


def test_what_a_shell_says_changes_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"Linux 6{ESCAPE}\\naarch64\\n\\nmodel name : {ESCAPE}\\n"
    local_ssh(tmp_path, monkeypatch, f"printf '{said}'; exit 0")
    found = look_for_tools(PI)
    assert (found.system, found.machine) == ("Linux 6\\x1b]0;owned\\x07", "aarch64")
    assert found.cpu == "\\x1b]0;owned\\x07"
