"""Builds for other platforms by zig, and the WebAssembly that the wheel carries.

``python -m edgekit.native.build --target all -o DIR`` is the long form: it compiles for every platform.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from edgekit.errors import MissingDependency
from edgekit.native import build, webassembly
from tests.native.case_files import judge_answers, run_emulated, write_cases
from tests.native.cases import DECODERS
from tests.native.equality import Totals
from tests.native.library import link_program

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "edgekit" / "web"
CASES = 100
WINE = shutil.which("wine64", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/lib/wine"]))
SIZE_LIMIT_BYTES = 400_000
"""Largest size of the WebAssembly, compressed."""
LIBRARY_LIMIT_BYTES = 550_000
"""Largest size of the library for aarch64, stripped, with zig's C++ library inside, in bytes."""
REBUILD = "compile it again: python -m edgekit.native.build --target wasm32-wasi -o edgekit/web"


def locked() -> dict[str, str]:
    """Lines of edgekit.wasm.lock."""
    return dict(line.split() for line in (WEB / "edgekit.wasm.lock").read_text().splitlines())


def test_the_webassembly_of_the_wheel_is_that_of_these_sources() -> None:
    assert locked()["sources"] == build.compiled_digest(), REBUILD
    assert locked()["edgekit.wasm"] == hashlib.sha256((WEB / "edgekit.wasm").read_bytes()).hexdigest()
    assert f"ziglang=={locked()['ziglang']}" in (WEB / "README.md").read_text()


def test_it_is_small_and_has_no_path_of_a_machine() -> None:
    import gzip

    content = (WEB / "edgekit.wasm").read_bytes()
    assert len(gzip.compress(content)) < SIZE_LIMIT_BYTES
    assert b"site-packages" not in content
    assert b"/home/" not in content


@pytest.mark.needs_zig
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    if version("ziglang") != locked()["ziglang"]:
        pytest.skip(f"edgekit.wasm is of zig {locked()['ziglang']}, and {version('ziglang')} is installed")
    made = build.compile_library(tmp_path, target=webassembly.TARGET)
    assert made.read_bytes() == (WEB / "edgekit.wasm").read_bytes()
    assert (tmp_path / "edgekit.wasm.lock").read_text() == (WEB / "edgekit.wasm.lock").read_text()


@pytest.mark.needs_zig
def test_the_library_for_phones_is_small(tmp_path: Path) -> None:
    made = build.compile_library(tmp_path, target="aarch64-linux-gnu.2.17")
    assert made.stat().st_size < LIBRARY_LIMIT_BYTES


@pytest.mark.needs_zig
@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are not installed")
def test_the_windows_library_exports_the_interface_and_needs_the_system_only(tmp_path: Path) -> None:
    made = build.compile_library(tmp_path, target="x86_64-windows-gnu")
    done = subprocess.run(["objdump", "-p", made], capture_output=True, text=True, check=True)
    header = (build.INCLUDE / "edgekit.h").read_text("utf-8")
    functions = set(re.findall(r"^\w+_API .*?\b(edgekit_\w+)\(", header, re.MULTILINE))
    assert len(functions) == 25
    exports = re.search(r"Name Pointer\] Table.*?\n((?:\t\[ *\d+\] .*\n)+)", done.stdout)
    assert exports
    assert {line.split()[-1] for line in exports[1].splitlines()} == functions
    needed = set(re.findall(r"DLL Name: (\S+)", done.stdout))
    assert needed
    assert {
        name for name in needed if not re.fullmatch(r"KERNEL32\.dll|api-ms-win-crt-[a-z0-9-]+\.dll", name)
    } == set()


@pytest.mark.needs_zig
@pytest.mark.needs_qemu
@pytest.mark.parametrize(
    ("target", "emulator"), [("aarch64-linux-musl", "qemu-aarch64"), ("arm-linux-musleabihf", "qemu-arm")]
)
def test_arm_computes_what_python_computes(tmp_path: Path, target: str, emulator: str) -> None:
    totals = run_emulated(range(CASES), target, emulator, tmp_path)
    assert len(totals.cases) == len(DECODERS)


@pytest.mark.needs_zig
@pytest.mark.skipif(WINE is None, reason="Wine is not installed")
def test_windows_computes_what_python_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINEPREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("WINEDEBUG", "-all")
    totals = run_emulated(range(CASES), "x86_64-windows-gnu", str(WINE), tmp_path)
    assert len(totals.cases) == len(DECODERS)


@pytest.mark.needs_compiler
def test_the_program_of_the_cases_here(tmp_path: Path) -> None:
    """The same program without emulation: without zig it is what shows that the files are read right."""
    source = Path(__file__).with_name("run_cases.cpp")
    program = link_program(source, tmp_path / "run")
    write_cases(range(20), tmp_path)
    subprocess.run([program, tmp_path, "20"], check=True, timeout=100)
    judge_answers(range(20), tmp_path, Totals())
    (tmp_path / "3.answer").write_bytes((tmp_path / "4.answer").read_bytes())
    with pytest.raises(AssertionError):
        judge_answers(range(20), tmp_path, Totals())


def test_another_platform_needs_zig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency):
        build.compile_library(tmp_path, target="aarch64-macos")
    assert build.main(["-o", str(tmp_path), "--target", "all"]) == 3
    assert capsys.readouterr().err.strip() == (
        "ziglang is not installed, and compiling for x86_64-linux-gnu.2.17 needs it: pip install ziglang"
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_exports_of_the_webassembly_are_what_the_page_calls() -> None:
    script = (
        "const m = new WebAssembly.Module(require('fs').readFileSync(process.argv[1]));"
        "console.log(WebAssembly.Module.exports(m).map((x) => x.name).join(' '));"
        "console.log(WebAssembly.Module.imports(m).map((x) => x.name).join(' '))"
    )
    done = subprocess.run(
        ["node", "-e", script, WEB / "edgekit.wasm"], capture_output=True, text=True, check=True
    )
    exports, imports = (set(line.split()) for line in done.stdout.splitlines())
    core = (WEB / "core.js").read_text()
    assert imports == {"fd_close", "fd_seek", "fd_write", "read", "size"}
    assert {name for name in exports if name not in core} == set()
    assert set(webassembly.CALLED) <= exports
