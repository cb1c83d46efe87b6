"""The C that an app compiles: the bytes are the model's, and a compiler takes it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from edgekit_tflm.c_files import export_files

from edgekit.target import Artifact
from tests.targets.tflite.running import files_of
from tests.targets.tflm.networks import classifier, compiled, quantized

ARENA = {"runner": {"arena": {"bytes": 4096}}}
MAIN = """
#include <stdio.h>
#include "model.h"
int main(void) {
  fwrite(m_1, 1, sizeof m_1, stdout);
  fprintf(stderr, "%d %g %d %g %d %d", M_1_ARENA_BYTES, M_1_INPUT_0_SCALE, M_1_INPUT_0_ZERO_POINT,
          M_1_OUTPUT_0_SCALE, M_1_OUTPUT_0_ZERO_POINT, (int)((unsigned long)m_1 % 16));
  return 0;
}
"""
RESOLVER = """
#pragma once
namespace tflite {
template <unsigned int n> struct MicroMutableOpResolver {
  unsigned int known = 0;
  %s
};
}
"""
"""Where TFLM's own header stands: the wheel has none."""


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compiled(quantized(classifier()))


def written(artifact: Artifact, folder: Path) -> None:
    for name, content in export_files(files_of(artifact), artifact.options, ARENA, "m-1").items():
        (folder / name).write_bytes(content)


def stand_in(artifact: Artifact, folder: Path) -> list[str]:
    """TFLM's header, with the calls that the model needs, which are returned."""
    calls: list[str] = artifact.facts["kernels"]
    header = folder / "tensorflow/lite/micro/micro_mutable_op_resolver.h"
    header.parent.mkdir(parents=True)
    header.write_text(RESOLVER % "\n  ".join(f"void {call}() {{ ++known; }}" for call in calls))
    return calls


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_program_has_the_models_bytes_arena_and_scales(artifact: Artifact, tmp_path: Path) -> None:
    written(artifact, tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    command = ["cc", "-std=c11", "-Wall", "-Werror", "main.c", "model.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, check=True)
    assert done.stdout == artifact.files["model.tflite"]
    (taken,), (given,) = artifact.options["inputs"], artifact.options["outputs"]
    arena, scale, zero_point, out_scale, out_zero_point, misaligned = done.stderr.decode().split()
    assert (arena, misaligned) == ("4096", "0")
    assert float(scale) == pytest.approx(taken["scale"], rel=1e-5)
    assert float(out_scale) == given["scale"]
    assert (int(zero_point), int(out_zero_point)) == (taken["zero_point"], given["zero_point"])


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_resolver_registers_each_kernel_once(artifact: Artifact, tmp_path: Path) -> None:
    written(artifact, tmp_path)
    calls = stand_in(artifact, tmp_path)
    (tmp_path / "main.cc").write_text(
        f'#include "model.h"\nint main() {{ return m_1_resolver().known == {len(calls)} ? 0 : 1; }}\n'
    )
    subprocess.run(["c++", "-Wall", "-Werror", "-I.", "main.cc", "-o", "main"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], check=True)


@pytest.mark.skipif(
    shutil.which("arm-none-eabi-g++") is None, reason="no arm-none-eabi-g++ (Debian: gcc-arm-none-eabi)"
)
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m55"])
def test_compiled_for_a_microcontroller_the_model_is_in_flash(
    core: str, artifact: Artifact, tmp_path: Path
) -> None:
    written(artifact, tmp_path)
    stand_in(artifact, tmp_path)
    (tmp_path / "main.cc").write_text('#include "model.h"\nauto resolver = m_1_resolver();\n')
    for compiler, source in (("gcc", "model.c"), ("g++", "main.cc")):
        command = [f"arm-none-eabi-{compiler}", f"-mcpu={core}", "-mthumb", "-Wall", "-Werror", "-I.", "-c"]
        subprocess.run([*command, source], cwd=tmp_path, check=True)
    sizes = subprocess.run(
        ["arm-none-eabi-size", "-A", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    sections = {row[0]: int(row[1]) for line in sizes.splitlines()[2:] if len(row := line.split()) == 3}
    assert sections[".rodata"] == len(artifact.files["model.tflite"])
    assert sections[".data"] == sections[".bss"] == 0


def test_without_a_recorded_arena_it_says_so(artifact: Artifact) -> None:
    header = export_files(files_of(artifact), artifact.options, {}, "m")["model.h"].decode()
    assert "ARENA_BYTES" not in header
    assert "The arena was not recorded" in header


def test_names_that_would_end_a_comment(artifact: Artifact) -> None:
    ends = [{**artifact.options["inputs"][0], "name": "*/ #error"}]
    options = {**artifact.options, "inputs": ends}
    header = export_files(files_of(artifact), options, ARENA, "m")["model.h"].decode()
    assert "*/ #error" not in header
    assert "__ #error" in header
