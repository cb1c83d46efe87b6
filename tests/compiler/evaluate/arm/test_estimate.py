"""Cycles from counts: by pipelines, by function, and relative to the float parent within a time limit."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import cast

import pytest

from edgekit.compiler.evaluate.arm import estimate
from edgekit.compiler.evaluate.arm import instructions as a64
from edgekit.compiler.evaluate.arm.emulator import BasicBlock, cpuinfo
from edgekit.compiler.evaluate.arm.estimate import FunctionNames
from edgekit.compiler.evaluate.arm.processors import PROCESSORS
from edgekit.errors import EngineError
from edgekit.target.contract import Artifact
from edgekit.target.installed_profiles import find_profile

A72, A76, X1 = (PROCESSORS[name] for name in ("cortex-a72", "cortex-a76", "cortex-x1"))
SDOT, FMLA, ADD = 0x4F87E205, 0x4F801218, 0x1100052A


@pytest.mark.parametrize(
    ("counts", "a72", "a76", "x1"),
    [
        ({a64.FMA_Q: 100}, 100, 50, 25),
        ({a64.WIDENING: 100}, 100, 100, 50),
        ({a64.WIDENING: 100, a64.SHIFT: 100}, 100, 100, 50),  # on different pipelines
        ({a64.WIDENING: 100, a64.VECTOR: 100}, 100, 100, 50),
        ({a64.WIDENING: 100, a64.FMA_D: 300}, 200, 200, 100),  # all vector pipelines are busy
        ({a64.LOAD_2: 100}, 200, 100, 200 / 3),
        ({a64.INTEGER: 400}, 200, 400 / 3, 100),
        ({a64.INTEGER: 100, a64.BRANCH: 100, a64.LOAD: 100, a64.VECTOR: 300}, 200, 150, 75),
        ({a64.INTEGER: 100, a64.BRANCH: 50, a64.LOAD: 50, a64.VECTOR: 100}, 100, 75, 37.5),  # all are decoded
        ({}, 0, 0, 0),
    ],
)
def test_cycles_are_those_of_the_busiest_pipelines(
    counts: dict[str, float], a72: float, a76: float, x1: float
) -> None:
    assert [each.cycles(counts) for each in (A72, A76, X1)] == pytest.approx([a72, a76, x1])


def test_every_class_has_a_price() -> None:
    for processor in PROCESSORS.values():
        missing = set(a64.CLASSES) - set(processor.costs)
        has_dot = "asimddp" in processor.features.split()
        assert missing == ({a64.MATRIX} if has_dot else {a64.MATRIX, a64.DOT})
        assert set("".join(processor.costs.values())) <= set(processor.pipelines)


def test_functions_are_bounded_one_by_one() -> None:
    blocks = [
        (
            "xnn_f32_gemm_minmax_ukernel_6x8__asm_aarch64_neonfma_ld128",
            BasicBlock("lib", 0, 100, (FMLA, FMLA)),
        ),
        (
            "xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_4x16c4__neondot",
            BasicBlock("lib", 64, 10, (SDOT, SDOT, ADD)),
        ),
        ("xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_1x16c4__neondot", BasicBlock("lib", 96, 10, (SDOT,))),
        ("memcpy", BasicBlock("libc", 0, 3, (ADD, ADD, ADD))),
    ]
    found = estimate.estimated(A76, blocks)
    assert found.families == {
        "f32_gemm": (200, 100.0),
        "qs8_qc8w_igemm": (40, 15.0),
        "rest": (9, 3.0),
    }
    assert (found.processor, found.instructions, found.cycles) == ("Cortex-A76", 249, 118.0)
    assert found.classes == {a64.FMA_Q: 200, a64.DOT: 30, a64.INTEGER: 19}


class FakeEstimator:
    """Has cycles for files by their content, and fails for others."""

    processor = A76

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.ran = seconds, list[bytes]()

    def estimate(self, artifact: Artifact, timeout_seconds: float) -> estimate.Estimate:
        content = bytes(artifact.files["m"])
        self.ran.append(content)
        if self.seconds > timeout_seconds:
            raise EngineError("the time limit for runs under qemu was reached")
        if not content.isdigit():
            raise EngineError("the run under qemu failed: unsupported")
        return estimate.Estimate("", 0, float(content), {}, {})


def ratios(fake: FakeEstimator, *contents: bytes) -> tuple[list[float | None], str]:
    made = estimate.RatioEstimator(cast(estimate.Estimator, fake), Artifact({"m": b"3000"}), 10.0)
    found = [made.ratio(Artifact({"m": content})) for content in contents]
    return found, made.failure


def test_the_parent_runs_once_and_first() -> None:
    fake = FakeEstimator()
    assert ratios(fake, b"1000", b"3300") == ([0.333, 1.1], "")
    assert fake.ran == [b"3000", b"1000", b"3300"]


def test_after_a_failure_nothing_more_is_run() -> None:
    fake = FakeEstimator()
    why = "the run under qemu failed: unsupported"
    assert ratios(fake, b"1000", b"?", b"1000") == ([0.333, None, None], why)
    assert fake.ran == [b"3000", b"1000", b"?"]
    fake = FakeEstimator(seconds=11.0)
    assert ratios(fake, b"1000") == ([None], "the time limit for runs under qemu was reached")


def test_profiles_name_processors_that_have_a_price(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "counting").mkdir()
    (tmp_path / "counting" / "block_counts.so").touch()
    found = {}
    for here in (tmp_path, tmp_path / "not"):
        monkeypatch.setenv("EDGEKIT_ARM", str(here))
        for name in ("rpi4", "rpi5", "android-arm64", "tflite"):
            made = estimate.ratio_estimator(find_profile(name), (), (), {}, Artifact({}), 10.0)
            found[here.name == "not", name] = made and made.processor
    none = dict.fromkeys([(True, name) for name in ("rpi4", "rpi5", "android-arm64", "tflite")])
    assert found == {
        (False, "rpi4"): "Cortex-A72",
        (False, "rpi5"): "Cortex-A76",
        (False, "android-arm64"): None,
        (False, "tflite"): None,
        **none,
    }


def test_cpuinfo_names_the_part() -> None:
    assert cpuinfo(A72, 1).splitlines() == [
        "processor\t: 1",
        "Features\t: fp asimd evtstrm crc32 cpuid",
        "CPU implementer\t: 0x41",
        "CPU architecture\t: 8",
        "CPU variant\t: 0x0",
        "CPU part\t: 0xd08",
        "CPU revision\t: 3",
        "",
    ]


def test_names_of_functions(tmp_path: Path) -> None:
    names = b"\0first\0second\0"
    symbols = b"".join(
        struct.pack("<IBBHQQ", *row)
        for row in ((7, 2, 0, 1, 0x200, 0), (1, 2, 0, 1, 0x100, 0x10), (1, 1, 0, 1, 0x300, 4))
    )
    sections = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64 + len(names), len(symbols), 1, 0, 8, 24),
    ]
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", 64 + len(names) + len(symbols))
    header = header.ljust(58, b"\0") + struct.pack("<HHH", 64, len(sections), 1)
    path = tmp_path / "lib.so"
    path.write_bytes(header + names + symbols + b"".join(sections))
    found = FunctionNames(path)
    looked_up = [found.name_at(address) for address in (0xFF, 0x100, 0x10F, 0x110, 0x200, 0x999)]
    assert looked_up == ["", "first", "first", "", "second", "second"]
    path.write_bytes(b"text")
    assert FunctionNames(path).name_at(0x100) == ""
