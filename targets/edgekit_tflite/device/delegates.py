"""TFLite external delegates: find a shared library, check it before it is loaded, and open a file on it.

A vendor's delegate may crash or hang in each of its functions, and hold Python's interpreter lock while it
hangs. So a worker process opens and runs it (edgekit/runtime/loading/worker.py), unless the name of the
device begins with ``delegate-in-process:``.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.errors import EngineError, UsageError
from edgekit.system import breadcrumbs
from edgekit.system.shared_libraries import HEADER_BYTES, least_size
from edgekit.target.accelerators import KINDS, named
from edgekit.tensor_spec import Json, TensorSpec
from edgekit_tflite.device.families import FAMILIES, PREFIXES, Family
from edgekit_tflite.run import FILE, Binding, TfliteRunner, bind, load_engine, outside_delegates, quiet

ENTRY = b"\0tflite_plugin_create_delegate\0"
"""Function that TFLite calls, as it stands among the names of a library's functions."""
MACHINES = {3: "x86", 40: "32-bit ARM", 62: "x86-64", 183: "aarch64", 243: "RISC-V"}
"""``e_machine`` of an ELF header: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html."""
OLD_BUILD = "it was built for TFLite before 2.14: get a newer build"
"""Such a library passes ``TfLiteRegistration``, by value, with 64, 72 or 80 bytes instead of 88."""
NO_REASON = "it gave no reason; usual ones: no device, no permission, the device is busy, an unknown option"
COMPILED = "compiled"
"""Option of EdgeKit's: path of a file that a vendor's compiler made, e.g. ``edgetpu_compiler``."""
NAMED = 8
"""Nodes on the CPU that are named."""


class Delegate(NamedTuple):
    """A delegate of this machine.

    Attributes:
        options: Options by name.
        compiled: File that the vendor's compiler made of the variant's ``model.tflite``. None means that the
            delegate runs the variant's file.
    """

    path: Path
    family: Family
    options: Mapping[str, str]
    compiled: Path | None = None

    @property
    def identity(self) -> str:
        """Return what a verdict depends on: digest of the library, options, kernel and its drivers."""
        versions = [_driver_version(name) for name in self.family.modules]
        options = ",".join(f"{key}={value}" for key, value in sorted(self.options.items()))
        status = self.path.stat()
        digest = _checked(self.path, status.st_mtime_ns, status.st_size)
        if self.compiled is not None:
            options += f" sha256 {hashlib.sha256(self.compiled.read_bytes()).hexdigest()[:16]}"
        drivers = " ".join(["Linux", os.uname().release, *filter(None, versions)])
        return f"{digest[:16]}, {f'{options}, ' if options else ''}{drivers}"


def find(device: str) -> Delegate | None:
    """Return the delegate that a device means, or None if it means another kind of accelerator or there is
    none here.

    Args:
        device: ``delegate:FILE[,OPTION=VALUE]...``, the same with a family's name instead of the file, the
            name alone, or a kind of accelerator: the first family of it whose library is here. The option
            ``compiled`` is a file that the vendor's compiler made; the others are the delegate's.

    Raises:
        UsageError: an option has no value.
        EngineError: the named library or compiled file is missing.
    """
    if sys.platform != "linux":
        return None
    prefix, _, rest = device.partition(":")
    families = named(FAMILIES, device)
    if prefix not in PREFIXES:
        here = ((family, path) for family in families if (path := _path(family.file)))
        return next((Delegate(path, family, family.options) for family, path in here), None)
    family = families[0]
    name, *parts = rest.split(",")
    options = {**family.options, **_options(parts)}
    file = family.file if name == family.name else name
    path = _path(file)
    if path is None:
        where = (
            "there is no such file" if os.sep in file else "not in LD_LIBRARY_PATH or the system's folders"
        )
        raise EngineError(
            f"{file}: {where}; {f'install: {family.install}' if family.file else 'give its path'}"
        )
    compiled = options.pop(COMPILED, None)
    if compiled is not None and not Path(compiled).is_file():
        raise EngineError(f"{COMPILED}={compiled}: there is no such file")
    return Delegate(path, family, options, Path(compiled) if compiled else None)


def _options(parts: Sequence[str]) -> dict[str, str]:
    """Read ``KEY=VALUE``; a part without a sign continues the value before: ``backends=GpuAcc,CpuAcc``."""
    options: dict[str, str] = {}
    key = ""
    for part in parts:
        name, sign, value = part.partition("=")
        if not sign and not key:
            raise UsageError(f"{part!r} is not an option of a delegate; write delegate:FILE,OPTION=VALUE")
        key = name if sign else key
        options[key] = value if sign else f"{options[key]},{part}"
    return options


def _path(file: str) -> Path | None:
    if os.sep in file:
        return Path(file).absolute() if Path(file).is_file() else None
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    system = str(sysconfig.get_config_var("MULTIARCH") or "")
    folders += ["/usr/local/lib", f"/usr/lib/{system}", "/usr/lib", "/usr/lib64", "/lib"]
    paths = [Path(folder).absolute() / file for folder in folders if folder]
    return next((path for path in paths if path.is_file()), None) if file else None


@lru_cache(16)
def _checked(path: Path, mtime_ns: int, size_bytes: int) -> str:
    """Return the SHA-256 of a library that can be loaded here. The other arguments identify its content.

    Raises:
        EngineError: it is no library of this processor, or not a delegate.
    """
    own = _header(Path("/proc/self/exe"))
    header = _header(path)
    if header[:4] != b"\x7fELF":
        raise EngineError(f"{path} is not a shared library of Linux")
    if _machine(header) != _machine(own):
        raise EngineError(f"{path} is for {_machine(header)}, this is {_machine(own)}")
    if size_bytes < least_size(header):
        raise EngineError(f"{path} is cut short: it has {size_bytes} of at least {least_size(header)} bytes")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(ENTRY) < 0:
            raise EngineError(f"{path} is not a TFLite delegate: it has no tflite_plugin_create_delegate")
        return hashlib.sha256(content).hexdigest()


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)


def _machine(header: bytes) -> str:
    number = int.from_bytes(header[18:20], "little" if header[5:6] == b"\x01" else "big")
    bits = " with 32-bit addresses" if number in (62, 183) and header[4:5] == b"\x01" else ""
    return f"{MACHINES.get(number, f'processor {number}')}{bits}"


def _driver_version(module: str) -> str:
    for name in ("srcversion", "version"):
        try:
            return f"{module} {Path('/sys/module', module, name).read_text('ascii').strip()}"
        except (OSError, ValueError):  # it is not loaded, or has none
            continue
    return ""


def open_on(
    delegate: Delegate,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> DelegateRunner:
    """Load ``model.tflite`` on a delegate, the rest of it on XNNPACK.

    Raises:
        EngineError: it does not load, took no node, or writes over what it still reads.
    """
    name, path = delegate.path.name, delegate.compiled or files[FILE]
    version, module = load_engine()
    assert delegate.identity  # reads the library, and raises what is wrong with it
    known = f"known faults: {delegate.family.faults}" if delegate.family.faults else ""
    settings = f"; its options: {delegate.family.settings}" if delegate.family.settings else ""
    breadcrumbs.enter(f"create\n{known}")
    try:
        library = module.load_delegate(str(delegate.path), dict(delegate.options))
    except (ValueError, OSError, AttributeError) as problem:
        text = " ".join(str(problem).split()).removeprefix(f"Failed to load delegate from {delegate.path}")
        raise EngineError(f"{name} did not start: {text.strip() or NO_REASON + settings}") from None
    breadcrumbs.enter(f"Prepare\n{OLD_BUILD}{known and '; '}{known}")
    try:
        with quiet():
            interpreter = module.Interpreter(
                model_path=str(path), num_threads=threads, experimental_delegates=[library]
            )
            operators = interpreter._get_ops_details()  # XNNPACK takes its part in allocate_tensors
            interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as problem:
        reason = " ".join(str(problem).partition("Restored original execution plan")[0].split())
        raise EngineError(f"{name} refused {path.name}: {reason[:300] or NO_REASON}") from None
    del library  # the interpreter's is the only reference, so that it frees the delegate last
    breadcrumbs.enter(f"a run\n{known}")
    ends = [int(detail["index"]) for detail in interpreter.get_output_details()]
    nodes = outside_delegates([op for op in operators if op["op_name"] != "DELEGATE"], ends)
    left = outside_delegates(operators, ends)
    if len(left) == len(nodes):
        family, precision = delegate.family, options["precision"]
        takes = f"it takes {family.precision}" if family.file else "it may take another precision"
        raise _lasting(f"{name} took 0 of {len(nodes)} nodes: {takes}, the variant is {precision}")
    if _overlaps(interpreter, operators):
        raise _lasting(f"{name} writes over its inputs: {OLD_BUILD}")
    bindings = bind(interpreter, path, inputs, outputs, options)
    return DelegateRunner(interpreter, version, *bindings, options["precision"], delegate, nodes, left)


def _lasting(text: str) -> EngineError:
    """Return an error that this version of the delegate repeats."""
    error = EngineError(text)
    error.blame = "bundle"
    return error


def _overlaps(interpreter: Any, operators: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a partition's output shares memory with one of its inputs. TFLite then lets the delegate
    write over what it still reads, because it found chance bytes behind a shorter ``TfLiteRegistration``."""

    def span(index: int) -> tuple[int, int]:
        try:
            array = interpreter.tensor(index)()
        except ValueError:  # it has no memory
            return 0, 0
        return array.ctypes.data, array.ctypes.data + array.nbytes

    for partition in operators:
        if partition["op_name"] != "DELEGATE":
            continue
        read = [span(int(index)) for index in partition["inputs"] if index >= 0]
        for start, end in (span(int(index)) for index in partition["outputs"]):
            if any(start < last and first < end for first, last in read):
                return True
    return False


class DelegateRunner(TfliteRunner):
    """Loaded ``model.tflite`` with nodes on a delegate."""

    def __init__(
        self,
        interpreter: Any,
        version: str,
        inputs: Sequence[Binding],
        outputs: Sequence[Binding],
        precision: str,
        delegate: Delegate,
        nodes: Sequence[Mapping[str, Any]],
        left: Sequence[Mapping[str, Any]],
    ) -> None:
        super().__init__(interpreter, f"{version} with {delegate.path.name}", inputs, outputs, precision)
        kind, name = delegate.family.kind, delegate.path.name
        share = f", {len(left)} of {len(nodes)} nodes on the CPU" if left else ""
        self.device = f"{kind.upper() if kind in KINDS else 'delegate'} ({name}{share})"
        names = {detail["index"]: detail["name"] for detail in interpreter.get_tensor_details()}
        self._facts: dict[str, Json] = {
            "nodes_by_provider": {name: len(nodes) - len(left), **({"CPU": len(left)} if left else {})},
            "nodes_on_cpu": [
                f"{names.get(int(op['outputs'][0]), '')} ({op['op_name']})" for op in left[:NAMED]
            ],
        }

    def facts(self) -> dict[str, Json]:
        """Return the number of nodes that the delegate took and of the others, and names of these."""
        return self._facts

    def close(self) -> None:
        """Free the kernels before the delegate, which they use."""
        breadcrumbs.enter("destroy")
        self.interpreter.__del__()
        super().close()
