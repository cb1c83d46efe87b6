"""Compile ``libedgekit``.

    python -m edgekit.native.build -o DIR [--target aarch64-linux-gnu.2.17] [--compiler g++]

All sources go through the compiler as one translation unit, which takes half of the time of single files.
The compiler is ``zig c++`` where the package ziglang is installed, else g++ or clang++. The compiler
runs in this folder and gets relative paths only, so that no path of a machine gets into the library.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from edgekit._version import __version__
from edgekit.errors import EdgeKitError, MissingDependency

FOLDER = Path(__file__).parent
INCLUDE = FOLDER / "include"
FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # a fused multiply-add rounds once where numpy rounds twice
    "-Wall",
    "-Wextra",
)
RELEASE_FLAGS = ("-O2", "-s")
"""Flags for a library to ship: optimized and stripped."""
SUFFIXES = {"windows": ".dll", "macos": ".dylib"}


def compiler_command() -> list[str]:
    """Return the C++ compiler of this machine, as the start of a command.

    Raises:
        MissingDependency: no compiler is installed.
    """
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise MissingDependency("ziglang", "compiling libedgekit", install="pip install ziglang")


def compile_library(
    folder: Path, *, compiler: Sequence[str] = (), target: str = "", flags: Sequence[str] = RELEASE_FLAGS
) -> Path:
    """Compile the library.

    Args:
        folder: Destination; created if it is missing.
        compiler: Start of the compiler's command; empty: :func:`compiler_command`.
        target: Zig's name of another platform, e.g. ``aarch64-linux-gnu.2.17``; "": this one.
        flags: Flags in addition to FLAGS.

    Returns:
        The library.

    Raises:
        MissingDependency: no compiler is installed.
        EdgeKitError: the compiler failed; the text has its messages.
    """
    command = [*(compiler or compiler_command()), *(("-target", target) if target else ())]
    system = next((name for name in SUFFIXES if name in (target or sys.platform)), "")
    library = folder / f"libedgekit{SUFFIXES.get(system, '.so')}"
    folder.mkdir(parents=True, exist_ok=True)
    linked = ["-shared", "-o", str(library.resolve()), *(["-ldl"] if not system else [])]
    _run(
        [*command, *FLAGS, *flags, *definitions(), "-x", "c++", "-", "-x", "none", *linked],
        "".join(f'#include "{source}"\n' for source in sources()),
    )
    return library


def compile_program(source: Path, program: Path, *, flags: Sequence[str] = ()) -> Path:
    """Compile a C++ program together with the library's sources.

    Args:
        source: The program.
        program: Destination.
        flags: Flags in addition to FLAGS.

    Raises:
        MissingDependency: no compiler is installed.
        EdgeKitError: the compiler failed.
    """
    lines = "".join(f'#include "{each}"\n' for each in (*sources(), str(source.resolve())))
    output = ["-x", "c++", "-", "-x", "none", "-o", str(program.resolve()), "-ldl"]
    _run([*compiler_command(), *FLAGS, *flags, *definitions(), *output], lines)
    return program


def sources() -> list[str]:
    """Return the sources, relative to FOLDER, in the order of their names."""
    return [f"source/{path.name}" for path in sorted((FOLDER / "source").glob("*.cpp"))]


def definitions() -> list[str]:
    """Return the compiler's flags for the version and the folders of headers, relative to FOLDER."""
    return [f'-DLIBRARY_VERSION="{__version__}"', "-Iinclude", "-Isource", "-I."]


def _run(command: Sequence[str], source: str) -> None:
    """Run a compiler in FOLDER, so that no path of this machine gets into what it writes."""
    done = subprocess.run(command, cwd=FOLDER, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EdgeKitError(f"libedgekit does not compile with {command[0]}\n{done.stderr[-4000:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile the library and print its path and size."""
    parser = argparse.ArgumentParser(prog="python -m edgekit.native.build", description="Compile libedgekit.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write the library to")
    parser.add_argument("--target", default="", help="another platform, by zig's name of it")
    parser.add_argument("--compiler", default="", help="compiler to use instead of zig, g++ or clang++")
    options = parser.parse_args(arguments)
    try:
        library = compile_library(options.output, compiler=options.compiler.split(), target=options.target)
    except EdgeKitError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    print(f"{library}  {library.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
