"""The first load of a variant, in a child process: what kills an engine kills the child.

    why_not(bundle, variant, threads)      # "" where the variant loaded and answered the golden vectors

The child is limited (lowly.py): in time, in memory, without new privileges, gone when its parent is. What is
believed of it is its exit code and a small file. What came out is remembered by the variant's files and the
engine's version, so a variant is probed once; in a folder that others may write to, nothing is.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgekit._version import __version__
from edgekit.formats import strict_json
from edgekit.formats.npy import npy_bytes
from edgekit.formats.strict_json import JsonError
from edgekit.runtime.loading import background, golden_check, unpacked_files
from edgekit.system import cache_folder, cpu, json_records, ownership, timings
from edgekit.target import registry
from edgekit.tensors import Json

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant

PROBE_SECONDS = 60.0
"""Until the child is killed. Loading takes a second here and ten on a small board with a slow card."""
MEMORY_MB = 4096
"""Address space of the child beyond ten times the variant's files; engines reserve far more than they use."""
RECORDS_LIMIT, RECORD_LIMIT_BYTES = 2000, 16_384
RESULT, REQUEST, VERSION = "result.json", "request.json", "engine"
CRASHES = frozenset({"SIGSEGV", "SIGFPE", "SIGILL", "SIGBUS", "SIGABRT", "SIGSYS", "SIGTRAP"})
"""Signals that are the variant's or the engine's own doing, and will come again. What was killed otherwise,
took too long or was refused is probed again at the next load."""


class Probed(NamedTuple):
    """How a probe went.

    Attributes:
        why: What is wrong; empty where nothing is.
        engine: Name and version of the engine; empty where the child did not come so far.
        lasting: Whether it is worth remembering: the next probe would say the same.
        blame: Whose doing it is, as ``EdgeKitError.blame`` has it.
        note: Why it cannot be remembered; empty where it can.
    """

    why: str
    engine: str = ""
    lasting: bool = True
    blame: str = ""
    note: str = ""


def why_not(bundle: Bundle, variant: Variant, threads: int) -> str:
    """Why a variant must not be loaded in this process; empty where it may. See :func:`probed`."""
    return probed(bundle, variant, threads).why


def probed(bundle: Bundle, variant: Variant, threads: int) -> Probed:
    """How the probe of a variant went, remembered where it can be.

    A missing engine is no reason against it: loading says so by itself, and better. Nor is anything asked of
    a target that makes its variants ready on the device, in a child process of its own; that is for the
    target to say, never for a bundle.
    """
    if background.on_device(variant.target) or not _is_python():
        return Probed("")
    folder, key = cache_folder.cache_folder() / "probes", _key(bundle, variant)
    known = json_records.recall(folder, key, RECORD_LIMIT_BYTES)
    if isinstance(known, dict):
        try:
            version = registry.engine(variant.target).engine_version()
        except Exception:  # whatever it raises, loading will too
            return Probed("")
        if version == known.get("engine"):
            why = str(known.get("why", ""))
            return Probed(why, version, blame="bundle" if why else "")  # of failures, crashes alone last
    found = probe(bundle, variant, threads)
    if found.lasting:
        json_records.record(folder, key, {"engine": found.engine, "why": found.why}, RECORDS_LIMIT)
    unused = json_records.why_unused(folder)
    return found._replace(note=f"{unused}; what is probed is not remembered" if unused else "")


def probe(bundle: Bundle, variant: Variant, threads: int, seconds: float = PROBE_SECONDS) -> Probed:
    """Load a variant in a child process and run it on the golden vectors.

    Raises:
        BundleError: an entry is damaged.
        EngineError: the variant can be unpacked nowhere.
    """
    import subprocess  # here: a variant that was probed before needs none of it, and it costs 9 ms
    import tempfile

    paths = unpacked_files.unpack(bundle, variant)
    with tempfile.TemporaryDirectory(prefix="edgekit-probe-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / REQUEST).write_bytes(strict_json.encode(_request(bundle, variant, paths, threads, seconds)))
        for number, pair in enumerate(bundle.golden):
            for kind, arrays in zip("xy", pair, strict=True):
                for place, array in enumerate(arrays.values()):
                    (folder / f"{number}.{kind}{place}.npy").write_bytes(npy_bytes(array))
        command = [sys.executable, "-m", "edgekit.runtime.loading.probe_child", name]
        with open(folder / "log", "wb") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            code: int | None = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        return judged(code, _read(folder / RESULT), _version(folder), seconds)


def judged(code: int | None, result: Mapping[str, Json], engine: str, seconds: float) -> Probed:
    """What to think of a child that ended.

    Args:
        code: Its exit code, negative for a signal; None: it was killed for its time.
        result: What it wrote; empty where it wrote nothing that can be read.
        engine: Name and version of the engine that it was about to load with.
        seconds: That it had.

    >>> judged(-8, {}, "ONNX Runtime 1.31.1", 60)[:2]
    ('it killed the process that tried it (SIGFPE)', 'ONNX Runtime 1.31.1')
    """
    if code is None:
        return Probed(f"it was not loaded after {seconds:g} s in a process of its own", engine, False)
    if code < 0:
        name = _signal_name(-code)
        lasting = name in CRASHES and bool(engine)  # without an engine, its import is what killed it
        blame = "bundle" if lasting else "machine" if name == "SIGKILL" or not engine else ""
        return Probed(f"it killed the process that tried it ({name})", engine, lasting, blame)
    why = result.get("why")
    if code == 0 and why == "":
        return Probed("", engine)
    if code == 0 and result.get("missing"):
        return Probed("")  # remembered under no version: once the engine is installed, it is probed
    said = str(why or f"the process that tried it ended with code {code}")[:400]
    blame = str(result.get("blame", ""))
    return Probed(said, engine, lasting=False, blame=blame if blame in ("bundle", "machine") else "")


def _request(
    bundle: Bundle, variant: Variant, paths: Mapping[str, Path], threads: int, seconds: float
) -> dict[str, Json]:
    specs = [[[s.name, s.dtype, list(s.shape)] for s in group] for group in (bundle.inputs, bundle.outputs)]
    size_mb = sum(bundle.size_bytes(entry) for entry in variant.files.values()) >> 20
    return {
        "target": variant.target,
        "files": {name: str(path) for name, path in paths.items()},
        "inputs": specs[0],
        "outputs": specs[1],
        "options": dict(variant.options),
        "threads": threads,
        "golden": len(bundle.golden),
        "limits_db": golden_check.garbage_limits_db(variant.evidence, [spec.name for spec in bundle.outputs]),
        "memory_mb": MEMORY_MB + 10 * size_mb,
        "seconds": seconds,
    }


def _key(bundle: Bundle, variant: Variant) -> str:
    digest = timings.digest_of({name: bundle.sha256(entry) for name, entry in variant.files.items()})
    facts = ["probe", digest, variant.target, dict(variant.options), cpu.cpu_name(), __version__]
    return hashlib.sha256(strict_json.encode(facts)).hexdigest()


def _is_python() -> bool:
    """Whether a child can be started with this process's program; an app frozen into a file is its own."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _read(path: Path) -> Mapping[str, Json]:
    try:
        with open(ownership.open_regular(path), "rb") as file:  # a child's may be anything
            found = strict_json.decode(file.read(RECORD_LIMIT_BYTES + 1), path.name, RECORD_LIMIT_BYTES)
    except (OSError, JsonError):
        return {}
    return found if isinstance(found, dict) else {}


def _version(folder: Path) -> str:
    return str(_read(folder / VERSION).get("engine", ""))[:200]


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
