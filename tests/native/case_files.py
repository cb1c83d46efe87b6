"""The cases of cases.py as files, for a core that this Python cannot load: on ARM, or in a browser.

    python -m tests.native.case_files 10000 aarch64-linux-musl qemu-aarch64

compiles run_cases.cpp by zig for another processor, runs it in an emulator and compares it with Python.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.native import build
from tests.native.cases import make_case
from tests.native.equality import Answer, Totals, judge, write_bundle
from tests.native.library import Found


def write_cases(numbers: Sequence[int], folder: Path) -> None:
    """Write 0.edgekit, 0.frame (width, height and order as int32, then pixels), 0.output, and so on."""
    for i, number in enumerate(numbers):
        case = make_case(number)
        write_bundle(case, folder / f"{i}.edgekit")
        height, width = case.frame.shape[:2]
        head = np.array([width, height, case.order == "bgr"], np.int32)
        (folder / f"{i}.frame").write_bytes(head.tobytes() + case.frame.tobytes())
        (folder / f"{i}.output").write_bytes(case.output.tobytes())


def judge_answers(numbers: Sequence[int], folder: Path, totals: Totals) -> None:
    """Compare 0.answer and so on with Python. Raises AssertionError where they differ."""
    for i, number in enumerate(numbers):
        judge(make_case(number), read_answer((folder / f"{i}.answer").read_bytes(), number), totals)


def run_emulated(numbers: Sequence[int], target: str, emulator: str, folder: Path) -> Totals:
    """Compile run_cases.cpp for a target, run it in an emulator and compare. Raises AssertionError.

    Windows loads the library itself, edgekit.dll; elsewhere its sources are part of the program.
    """
    source = Path(__file__).with_name("run_cases.cpp")
    if "windows" in target:
        program = link_to_library(source, target, folder)
    else:
        program = build.compile_program(source, folder / "run_cases", target=target, flags=["-O2"])
    write_cases(numbers, folder)
    subprocess.run([emulator, program, folder, str(len(numbers))], check=True, timeout=3600)
    totals = Totals()
    judge_answers(numbers, folder, totals)
    return totals


def link_to_library(source: Path, target: str, folder: Path) -> Path:
    """Compile the library and a program that loads it, for Windows, into a folder."""
    imports = build.compile_library(folder, target=target).with_suffix(".lib")
    program = folder / "run_cases.exe"
    command = [*build.compiler_command(), "-target", target, "-std=c++17", f"-I{build.INCLUDE}"]
    subprocess.run([*command, str(source), str(imports), "-o", str(program)], check=True, timeout=300)
    return program


class _Reader(NamedTuple):
    content: memoryview
    at: list[int]

    def take(self, dtype: str, count: int = 1) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        begin = self.at[0]
        self.at[0] += np.dtype(dtype).itemsize * count
        return np.frombuffer(self.content[begin : self.at[0]], dtype)


def read_answer(content: bytes, number: int) -> Answer:
    """Return what run_cases.cpp, or a page, wrote for a case."""
    reader = _Reader(memoryview(content), [0])
    prepared = bytes(reader.take("u1", int(reader.take("<i8")[0])))
    placement = [*reader.take("<i4", 4).tolist(), *reader.take("<f8", 4).tolist()]
    indices, labels, scores, boxes = [], [], [], []
    for _ in range(int(reader.take("<i8")[0])):
        indices.append(int(reader.take("<i8")[0]))
        scores.append(reader.take("<f4")[0])
        boxes.append(reader.take("<f4", 4))
        labels.append(bytes(reader.take("u1", int(reader.take("<i8")[0]))).decode())
    assert reader.at[0] == len(content)
    found = Found(
        make_case(number).card["task"]["kind"],
        np.array(indices, np.int64),
        labels,
        np.array(scores, np.float32),
        np.array(boxes, np.float32).reshape(-1, 4),
    )
    return Answer(prepared, placement, found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(run_emulated(range(int(sys.argv[1])), sys.argv[2], sys.argv[3], Path(name)))
