"""Compile libedgekit to WebAssembly for a page, with ``zig c++``.

    python -m edgekit.native.build --target wasm32-wasi -o edgekit/web     # edgekit/web/edgekit.wasm

zig's C++ library for WebAssembly is compiled without exceptions, and the core's errors are exceptions. So
three sources of LLVM, which the same package holds, are compiled too: they throw and catch by WebAssembly's
own instructions, which browsers have since 2021 and 2022 (Chrome 95, Firefox 100, Safari 15.2).
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from edgekit.errors import MissingDependency

TARGET = "wasm32-wasi"
FLAGS = ("-target", TARGET, "-mcpu=generic+exception_handling", "-fwasm-exceptions")
CALLED = (
    "edgekit_version",
    "edgekit_error",
    "edgekit_open",
    "edgekit_text",
    "edgekit_read",
    "edgekit_verify",
    "edgekit_begin",
    "edgekit_prepare",
    "edgekit_carry",
    "edgekit_decode",
    "edgekit_free_prediction",
)
"""Functions of edgekit.h that a page calls (edgekit/web/core.js); source/web.cpp exports its own."""
STACK_BYTES = 1 << 20
MEMORY_LIMIT_BYTES = 1 << 30
LINKED = (
    "-mexec-model=reactor",
    *(f"-Wl,--export={name}" for name in CALLED),
    f"-Wl,-z,stack-size={STACK_BYTES}",
    f"-Wl,--max-memory={MEMORY_LIMIT_BYTES}",
)

Run = Callable[[Sequence[str], str], None]
"""Runs a compiler's command with a source on its standard input."""


def compile_module(
    compiler: Sequence[str], module: Path, flags: Sequence[str], source: str, run: Run
) -> None:
    """Compile the WebAssembly.

    Args:
        compiler: Start of the command of ``zig c++``.
        flags: Flags of the core's sources.
        source: The core, as one translation unit.
        run: Runs a command.

    Raises:
        MissingDependency: the package ziglang is not installed.
        EdgeKitError: the compiler failed.
    """
    zig = _zig_library()
    abi, unwinding = zig / "libcxxabi", zig / "libunwind"
    with tempfile.TemporaryDirectory() as name:
        objects = [str(Path(name) / f"{i}.o") for i in range(3)]
        headers = [f"-I{folder}" for folder in (abi / "include", abi / "src", unwinding / "include")]
        shared = [*compiler, *FLAGS, "-O2", f"-ffile-prefix-map={zig}=zig", "-c"]
        building = ["-D_LIBCXXABI_BUILDING_LIBRARY", "-D_LIBCPP_BUILDING_LIBRARY"]
        building += ["-DLIBCXXABI_SILENT_TERMINATE", "-std=c++23", *headers, f"-I{zig / 'libcxx' / 'src'}"]
        for source_name, target in zip(("cxa_exception", "cxa_personality"), objects, strict=False):
            run([*shared, *building, str(abi / "src" / f"{source_name}.cpp"), "-o", target], "")
        c_source = ["-x", "c", str(unwinding / "src" / "Unwind-wasm.c")]
        run([*shared, "-fdeclspec", "-D_LIBUNWIND_HIDE_SYMBOLS", *headers, *c_source, "-o", objects[2]], "")
        core = [*FLAGS, *flags, "-x", "c++", "-", "-x", "none", *objects]
        run([*compiler, *core, *LINKED, "-o", str(module.resolve())], source)


def lock_of(module: Path, sources: str) -> str:
    """Return what edgekit.wasm.lock states of a module: the compiler's version and two digests."""
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    return f"ziglang {version('ziglang')}\nsources {sources}\nedgekit.wasm {digest}\n"


def _zig_library() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise MissingDependency("ziglang", "compiling WebAssembly", install="pip install ziglang")
    return Path(spec.origin).parent / "lib"
