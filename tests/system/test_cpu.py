"""The processor as the system tells of it, and what is remembered by it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.compiler.quantize.search import measurement_cache
from edgekit.system import cpu, timings


@pytest.fixture(autouse=True)
def not_cached() -> Iterator[None]:
    functions = (cpu.cpu_name, cpu.instruction_sets)
    yield
    for function in functions:
        function.cache_clear()


CPUINFO = {
    "processor : 0\nmodel name : AMD  EPYC 9B45\nmodel : 2\n": "AMD EPYC 9B45",
    "processor : 0\nCPU part : 0xd0b\n\nModel : Raspberry Pi 5 Model B": "Raspberry Pi 5 Model B 0xd0b",
}


@pytest.mark.parametrize("text", CPUINFO)
def test_cpu_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(path: Path, *args: Any, **options: Any) -> str:
        assert str(path) == "/proc/cpuinfo"
        return text

    name: Callable[[], str] = cpu.cpu_name.__wrapped__
    monkeypatch.setattr(Path, "read_text", read_text)
    assert name() == CPUINFO[text]


def test_cpu_name_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(path: Path, *args: Any, **options: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    name: Callable[[], str] = cpu.cpu_name.__wrapped__
    assert name() == "riscv64"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16\nflags : avx_vnni\n", ("avx2", "avx512f", "avx512_bf16")),
        ("Features\t: fp asimd asimdhp bf16\n", ("asimd", "asimdhp", "bf16")),
        ("model name: x\n", ()),
    ],
)
def test_instruction_sets_on_linux(monkeypatch: pytest.MonkeyPatch, text: str, found: tuple[str]) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    cpu.instruction_sets.cache_clear()
    assert cpu.instruction_sets() == found


def test_instruction_sets_on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "hw.optional.arm.FEAT_BF16: 1\nhw.optional.arm.FEAT_I8MM: 0\nhw.optional.AdvSIMD: 1\n"
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, stdout=listed, stderr="")
    )
    cpu.instruction_sets.cache_clear()
    assert cpu.instruction_sets() == ("asimd", "bf16")


def test_the_same_name_with_other_instructions_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for flags in ("avx2", "avx2 avx512_vnni"):
        text = f"model name : Intel Xeon Processor\nflags : {flags}\n"
        monkeypatch.setattr("sys.platform", "linux")
        monkeypatch.setattr(Path, "read_text", lambda *_, text=text, **__: text)
        cpu.cpu_name.cache_clear()
        cpu.instruction_sets.cache_clear()
        keys |= {measurement_cache.key("a"), timings.timing_key("a" * 64, "Engine 1", 1)}
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, ""),
        ({"needs_isa": ["amx_bf16", "avx2"]}, ""),
        ({"needs_isa": "avx512_bf16"}, ""),  # a bundle from elsewhere may hold anything there
        (
            {"needs_isa": ["avx512_bf16", "amx_bf16"]},
            "it needs a processor with avx512_bf16 or amx_bf16; this one has avx2",
        ),
    ],
)
def test_what_a_variant_needs(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], why: str) -> None:
    monkeypatch.setattr(cpu, "instruction_sets", lambda: ("avx2",))
    assert cpu.lacking(options) == why


def test_a_system_that_tells_of_no_instructions_lacks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "instruction_sets", lambda: ())
    why = "it needs a processor with bf16; this one has none that the system reports"
    assert cpu.lacking({"needs_isa": ["bf16"]}) == why
