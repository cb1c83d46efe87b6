"""Compile ``libedgekit``.

    python -m edgekit.native.build -o DIR [--compiler g++]
    python -m edgekit.native.build -o DIR --target aarch64-linux-gnu.2.17
    python -m edgekit.native.build -o DIR --target all         # a folder for each platform of TARGETS
    python -m edgekit.native.build -o DIR --jni                # with the functions for kotlin/wrapper

All sources go through the compiler as one translation unit, which takes half of the time of single files.
The compiler is ``zig c++`` where the package ziglang is installed, else g++ or clang++. The compiler
runs in this folder and gets relative paths only, so that no path of a machine gets into the library.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from edgekit._version import __version__
from edgekit.errors import EdgeKitError, MissingDependency
from edgekit.native import webassembly

FOLDER = Path(__file__).parent
INCLUDE = FOLDER / "include"
JNI = "kotlin/jni.cpp"
"""Functions for Kotlin and Java, relative to FOLDER."""
STANDALONE = "standalone.cpp"
"""Source that only the shared library is compiled with, relative to FOLDER."""
FLAGS = (
    "-std=c++17",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # a fused multiply-add rounds once where numpy rounds twice
    "-Wall",
    "-Wextra",
)
RELEASE_FLAGS = ("-O3", "-s", "-ffunction-sections")
"""Flags for a library to ship: optimized and stripped; the linker leaves out functions that nothing calls."""
SUFFIXES = {"windows": ".dll", "macos": ".dylib"}
LINKED = {"windows": (), "macos": ("-Wl,-install_name,@rpath/libedgekit.dylib",)}
"""System -> the linker's flags; a library for macOS holds its own path otherwise. Others need libdl."""
TARGETS = (
    "x86_64-linux-gnu.2.17",
    "aarch64-linux-gnu.2.17",
    "arm-linux-gnueabihf.2.17",
    "aarch64-macos",
    "x86_64-windows-gnu",
    webassembly.TARGET,
)
"""Platforms that zig compiles for, by its names; glibc 2.17 is that of 2012."""


def zig_is_installed() -> bool:
    """Return whether the package ziglang, a compiler for all platforms, is installed."""
    return importlib.util.find_spec("ziglang") is not None


def compiler_command() -> list[str]:
    """Return the C++ compiler of this machine, as the start of a command.

    Raises:
        MissingDependency: no compiler is installed.
    """
    if zig_is_installed():
        return [sys.executable, "-m", "ziglang", "c++"]
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise MissingDependency("ziglang", "compiling libedgekit", install="pip install ziglang")


def compile_library(
    folder: Path,
    *,
    compiler: Sequence[str] = (),
    target: str = "",
    flags: Sequence[str] = RELEASE_FLAGS,
    jni: bool = False,
) -> Path:
    """Compile the library.

    Args:
        folder: Destination; created if it is missing.
        compiler: Start of the compiler's command; empty: :func:`compiler_command`.
        target: Zig's name of another platform, one of TARGETS; "": this one.
        flags: Flags in addition to FLAGS.
        jni: Whether to compile JNI as well. The headers are those of the JDK of this machine.

    Returns:
        The library, or ``edgekit.wasm``.

    Raises:
        MissingDependency: no compiler is installed, or not zig for another platform, or no JDK.
        EdgeKitError: the compiler failed; the text has its messages.
    """
    if target and not compiler and not zig_is_installed():
        raise MissingDependency("ziglang", f"compiling for {target}", install="pip install ziglang")
    compiler = compiler or compiler_command()
    source = translation_unit(STANDALONE, *([JNI] if jni else []))
    flags = [*flags, *(jni_flags() if jni else ())]
    if target == webassembly.TARGET:
        folder.mkdir(parents=True, exist_ok=True)
        module, options = folder / "edgekit.wasm", [*FLAGS, *flags, *definitions()]
        webassembly.compile_module(compiler, module, options, source, _run)
        (folder / "edgekit.wasm.lock").write_text(webassembly.lock_of(module, compiled_digest()))
        return module
    command = [*compiler, *(("-target", target) if target else ())]
    host = {"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
    system = next((name for name in SUFFIXES if name in (target or host)), "")
    library = folder / f"libedgekit{SUFFIXES.get(system, '.so')}"
    folder.mkdir(parents=True, exist_ok=True)
    linked = ["-shared", "-o", str(library.resolve()), *LINKED.get(system, ("-ldl", "-Wl,--gc-sections"))]
    if system == "windows":
        linked.append(f"-Wl,--out-implib,{library.with_suffix('.lib').resolve()}")
    _run(
        [*command, "-fPIC", *FLAGS, *flags, *definitions(), "-x", "c++", "-", "-x", "none", *linked],
        source,
    )
    return library


def compile_program(source: Path, program: Path, *, target: str = "", flags: Sequence[str] = ()) -> Path:
    """Compile a C++ program together with the library's sources.

    Args:
        target: Zig's name of another platform; "": this one.
        flags: Flags in addition to FLAGS.

    Raises:
        MissingDependency: no compiler is installed.
        EdgeKitError: the compiler failed.
    """
    lines = translation_unit(str(source.resolve()))
    output = ["-x", "c++", "-", "-x", "none", "-o", str(program.resolve())]
    output += [] if "windows" in target else ["-ldl"]
    command = [*compiler_command(), *(("-target", target) if target else ())]
    _run([*command, *FLAGS, *flags, *definitions(), *output], lines)
    return program


def sources() -> list[str]:
    """Return the sources, relative to FOLDER, in the order of their names."""
    return [f"source/{path.name}" for path in sorted((FOLDER / "source").glob("*.cpp"))]


def translation_unit(*others: str) -> str:
    """Return C++ that includes all sources, and then others."""
    return "".join(f'#include "{path}"\n' for path in (*sources(), *others))


def jni_flags() -> list[str]:
    """Return the compiler's flags for the headers of JNI.

    Raises:
        MissingDependency: no JDK is installed.
    """
    javac = shutil.which("javac")
    home = os.environ.get("JAVA_HOME") or (str(Path(javac).resolve().parents[1]) if javac else "")
    include = Path(home, "include")
    header = next(include.glob("*/jni_md.h"), None)  # in a folder named by the system
    if not home or header is None:
        raise MissingDependency("jni.h", "compiling with --jni", install="install a JDK, or set JAVA_HOME")
    return [f"-I{include}", f"-I{header.parent}"]


def compiled_digest() -> str:
    """Return the sha256 of all that the library's bytes depend on, except the compiler."""
    files = sorted([*(FOLDER / "source").glob("*.[ch]*"), *INCLUDE.glob("*.h")])
    files.append(FOLDER / STANDALONE)
    parts = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    flags = [*FLAGS, *RELEASE_FLAGS, *webassembly.FLAGS, *webassembly.LINKED]
    return hashlib.sha256("\n".join([*parts, *flags, __version__]).encode()).hexdigest()


def definitions() -> list[str]:
    """Return the compiler's flags for the version and the folders of headers, relative to FOLDER."""
    return [f'-DLIBRARY_VERSION="{__version__}"', "-Iinclude", "-Isource", "-I."]


def _run(command: Sequence[str], source: str) -> None:
    done = subprocess.run(command, cwd=FOLDER, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EdgeKitError(f"libedgekit does not compile with {command[0]}\n{done.stderr[-4000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the library and print its path and size."""
    parser = argparse.ArgumentParser(prog="python -m edgekit.native.build", description="Compile libedgekit.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write the library to")
    targets = ", ".join(TARGETS)
    parser.add_argument("--target", default="", help=f"another platform by zig's name, or all: {targets}")
    parser.add_argument("--compiler", default="", help="compiler to use instead of zig, g++ or clang++")
    parser.add_argument("--jni", action="store_true", help="add the functions for Kotlin and Java")
    options = parser.parse_args(arguments)
    if options.jni and options.target:
        parser.error("--jni compiles for this machine, whose JDK has the headers; leave out --target")
    every = options.target == "all"
    try:
        for target in TARGETS if every else (options.target,):
            folder = options.output / target if every else options.output
            library = compile_library(
                folder, compiler=options.compiler.split(), target=target, jni=options.jni
            )
            print(f"{library}  {library.stat().st_size} bytes", flush=True)
    except EdgeKitError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
