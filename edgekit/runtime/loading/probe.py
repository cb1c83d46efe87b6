"""The first load of a variant, in a child process: a crash of the engine ends the child, not the app.

    probe_once(bundle, variant, threads).reason   # "" if the variant loaded and reproduced the golden vectors

The child is confined (child_limits.py): time and memory limits, no new privileges, killed with its parent.
Only its exit code and a small result file are used. The result is cached by the variant's files and the
engine's version, so a variant is probed once; a folder that others may write to is not used as a cache.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.runtime import background
from edgekit.runtime.loading import golden_check, unpacked_files
from edgekit.system import breadcrumbs, cache_folder, cpu, json_records, timings
from edgekit.system.formats import strict_json
from edgekit.system.formats.npy import npy_bytes
from edgekit.system.interrupts import pass_on
from edgekit.target import registry
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    import subprocess

PROBE_SECONDS = 60.0
"""Timeout of the child. Loading takes a second here, and ten on a small board with a slow card."""
ACCELERATOR_PROBE_SECONDS = 300.0
"""Timeout on an accelerator, in the background: a GPU's driver compiles a program for each layer."""
ACCELERATOR_PROBES = 3
"""Attempts on an accelerator whose engine raises: LiteRT's GPU failed on a busy machine, and ran the same
file rightly in the next process."""
MEMORY_MB = 4096
"""Address space of the child beyond ten times the variant's files; engines reserve far more than they use."""
RECORDS_LIMIT, RECORD_LIMIT_BYTES = 2000, 16_384
TRIALS = {"decoder": "edgekit.generate.device.decoder_registry"}
"""Option of a variant that does not run on arrays -> module with its ``trial`` and the data for it."""
RESULT, REQUEST, VERSION, STAGE = "result.json", "request.json", "engine", "stage"
CRASHES = frozenset({"SIGSEGV", "SIGFPE", "SIGILL", "SIGBUS", "SIGABRT", "SIGSYS", "SIGTRAP"})
"""Signals caused by the variant or the engine itself, which will recur. After any other signal, a timeout or
an error the variant is probed again at the next load."""


class ProbeResult(NamedTuple):
    """The result of a probe.

    Attributes:
        reason: Reason of the failure; empty on success.
        engine: Name and version of the engine; empty if the child did not get that far.
        cacheable: Whether the next probe would give the same result.
        blame: The cause, as in ``EdgeKitError.blame``.
        note: Why it cannot be cached; empty if it can.
        transient: Whether the engine raised something that another attempt may not.
    """

    reason: str
    engine: str = ""
    cacheable: bool = True
    blame: str = ""
    note: str = ""
    transient: bool = False


def probe_once(bundle: Bundle, variant: Variant, threads: int) -> ProbeResult:
    """Return the probe result of a variant, from the cache if possible.

    A missing engine is not a failure: loading reports it better. A target that prepares its variants on the
    device, in a child process of its own, is not probed; only the target can say so, never a bundle.
    """
    copy = registry.ACCELERATOR in variant.options
    if copy and not _is_python():
        return ProbeResult("it can't be verified: this program can't start a Python process", blame="machine")
    if background.prepares_on_device(variant.target) or not _is_python():
        return ProbeResult("")
    folder, key = cache_folder.cache_folder() / "probes", _key(bundle, variant)
    cached = json_records.recall(folder, key, RECORD_LIMIT_BYTES)
    if isinstance(cached, dict):
        try:
            version = registry.version_of(variant.target, variant.options)
        except Exception as problem:  # loading will raise it too
            pass_on(problem)
            return ProbeResult("")
        if version == cached.get("engine"):
            reason = str(cached.get("why", ""))
            return ProbeResult(reason, version, blame=("machine" if copy else "bundle") if reason else "")
    result = probe(bundle, variant, threads)
    for _ in range(ACCELERATOR_PROBES - 1 if copy else 0):
        if not result.transient:
            break
        result = probe(bundle, variant, threads)
    if copy and result.reason:
        result = result._replace(blame="machine")
    if result.cacheable:
        json_records.record(folder, key, {"engine": result.engine, "why": result.reason}, RECORDS_LIMIT)
    unused = json_records.why_unused(folder)
    return result._replace(note=f"{unused}; probe results are not cached" if unused else "")


def forget(bundle: Bundle, variant: Variant) -> None:
    """Remove the cached result of a variant, so that it is probed again before it is loaded again."""
    json_records.remove(cache_folder.cache_folder() / "probes", _key(bundle, variant))


def probe(bundle: Bundle, variant: Variant, threads: int, seconds: float | None = None) -> ProbeResult:
    """Load a variant in a child process and run it on the golden vectors.

    Raises:
        BundleError: an entry is damaged.
        EngineError: the variant can be unpacked nowhere.
    """
    import subprocess  # here: takes 9 ms, and a cached probe does not need it

    with started_child(bundle, variant, threads, seconds) as (child, folder, limit_s):
        try:
            code: int | None = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        return read_result(folder, code, limit_s)


@contextmanager
def started_child(
    bundle: Bundle, variant: Variant, threads: int, seconds: float | None = None, serving: Sequence[int] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], Path, float]]:
    """Start the child, and keep the folder with its golden vectors and its result until the context ends.

    Args:
        serving: File descriptors of the socket and the memory by which it runs requests afterwards; none of
            them for a probe.

    Yields:
        The child, its folder, and the time in seconds in which it must have loaded the variant.
    """
    import subprocess
    import tempfile

    if seconds is None:
        copy = registry.ACCELERATOR in variant.options
        seconds = ACCELERATOR_PROBE_SECONDS if copy else PROBE_SECONDS
    paths = unpacked_files.unpack(bundle, variant)
    with tempfile.TemporaryDirectory(prefix="edgekit-probe-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        request = {**_request(bundle, variant, paths, threads, seconds), "serving": list(serving)}
        (folder / REQUEST).write_bytes(strict_json.encode(request))
        (folder / STAGE).write_bytes(bytes(breadcrumbs.SIZE_BYTES))
        for number, pair in enumerate(bundle.golden_of(variant)):
            for kind, arrays in zip("xy", pair, strict=True):
                for index, array in enumerate(arrays.values()):
                    (folder / f"{number}.{kind}{index}.npy").write_bytes(npy_bytes(array))
        command = [sys.executable, "-m", "edgekit.runtime.loading.probe_child", name]
        with open(folder / "log", "wb") as log:
            inherited: dict[str, Any] = {"pass_fds": serving} if serving else {}
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **inherited)
        yield child, folder, seconds


def read_result(folder: Path, code: int | None, seconds: float) -> ProbeResult:
    """Interpret what a child left in its folder; the other arguments are those of :func:`judge_exit`."""
    result = json_records.read_object(folder / RESULT, RECORD_LIMIT_BYTES)
    _, stage, _ = breadcrumbs.read((folder / STAGE).read_bytes())
    return judge_exit(code, result, _version(folder), seconds, stage)


def judge_exit(
    code: int | None, result: Mapping[str, Json], engine: str, seconds: float, stage: str = ""
) -> ProbeResult:
    """Interpret the end of a probe's child.

    Args:
        code: Its exit code, negative for a signal. None means it was killed after the timeout.
        result: Its result file; empty if missing or unreadable.
        stage: Its last breadcrumb; a second line is the usual cause of a crash there.

    >>> judge_exit(-8, {}, "ONNX Runtime 1.31.1", 60)[:2]
    ('it crashed the probe process (SIGFPE)', 'ONNX Runtime 1.31.1')
    >>> judge_exit(-11, {}, "LiteRT 2.3.0", 60, "Prepare\\nit is too old").reason
    'it crashed the probe process (SIGSEGV) in Prepare; it is too old'
    """
    step, _, usual = stage.partition("\n")
    place = f" in {step}" if step else ""
    if code is None:
        return ProbeResult(f"it did not load within {seconds:g} s in the probe process{place}", engine, False)
    if code < 0:
        name = signal_name(-code)
        cacheable = name in CRASHES and bool(engine)  # without a version, importing the engine crashed
        blame = "bundle" if cacheable else "machine" if name == "SIGKILL" or not engine else ""
        crash = f"it crashed the probe process ({name}){place}{f'; {usual}' if usual else ''}"
        return ProbeResult(crash, engine, cacheable, blame)
    reason = result.get("why")
    if code == 0 and reason == "":
        return ProbeResult("", engine)
    if code == 0 and result.get("missing"):
        return ProbeResult("")  # cached under no version: probed once the engine is installed
    message = str(reason or f"the probe process exited with code {code}")[:400]
    blame = str(result.get("blame", ""))
    culprit = blame if blame in ("bundle", "machine") else ""
    cacheable = result.get("same_again") is True and bool(engine)
    transient = code == 0 and bool(reason) and culprit != "bundle"
    return ProbeResult(message, engine, cacheable, culprit, transient=transient)


def _request(
    bundle: Bundle, variant: Variant, paths: Mapping[str, Path], threads: int, seconds: float
) -> dict[str, Json]:
    size_mb = sum(bundle.size_bytes(entry) for entry in variant.files.values()) >> 20
    return {
        "target": variant.target,
        "files": {name: str(path) for name, path in paths.items()},
        "shapes": [bundle.shapes[-1], *bundle.shapes[:-1]],
        "options": dict(variant.options),
        "threads": threads,
        "golden": [len(bundle.golden), len(bundle.golden_of(variant))],
        **_trial(bundle, variant),
        "limits_db": golden_check.limits_db(variant, [spec.name for spec in bundle.outputs]),
        # A GPU's driver reserves any amount of address space.
        "memory_mb": 0 if registry.ACCELERATOR in variant.options else MEMORY_MB + 10 * size_mb,
        "seconds": seconds,
    }


def _trial(bundle: Bundle, variant: Variant) -> dict[str, Json]:
    """Return the option whose module tries the variant, with what the trial needs of the bundle."""
    option = next((option for option in TRIALS if option in variant.options), None)
    if option is None:
        return {}
    return {"trial": option, "trial_data": import_module(TRIALS[option]).trial_data(bundle)}


def _key(bundle: Bundle, variant: Variant) -> str:
    digest = timings.digest_of({name: bundle.sha256(entry) for name, entry in variant.files.items()})
    facts = ["probe", digest, variant.target, dict(variant.options), cpu.identity(), __version__]
    return hashlib.sha256(strict_json.encode(facts)).hexdigest()


def _is_python() -> bool:
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _version(folder: Path) -> str:
    return str(json_records.read_object(folder / VERSION, RECORD_LIMIT_BYTES).get("engine", ""))[:200]


def signal_name(number: int) -> str:
    """Return e.g. ``SIGSEGV``."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
