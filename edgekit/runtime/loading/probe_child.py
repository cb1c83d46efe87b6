"""The child process of a probe: loads one variant, runs the golden vectors and reports the result. That of a
worker (worker.py) serves requests then.

python -m edgekit.runtime.loading.probe_child FOLDER
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from edgekit.errors import MissingDependency, ProfileError, blame_of, reason_of
from edgekit.runtime.device_builds import child_limits
from edgekit.runtime.loading import golden_check, worker
from edgekit.runtime.loading.checked_runner import CheckedRunner, checked
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.runtime.loading.probe import REQUEST, RESULT, STAGE, TRIALS, VERSION
from edgekit.system import breadcrumbs
from edgekit.system.formats import strict_json
from edgekit.system.formats.npy import parse_npy
from edgekit.target import registry
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec, specs_of, thinned_specs

REQUEST_LIMIT_BYTES = 16 << 20
LEAST_LIMIT_S, HANG_RUNS = 2.0, 50
"""A worker's run hangs if it takes longer than both this time and this many runs on accelerator and CPU."""


def main(folder: Path) -> None:
    """Write ``result.json``: ``why``, empty on success; on failure also ``blame``, and ``same_again`` if the
    next run would give the same result."""
    request = strict_json.decode((folder / REQUEST).read_bytes(), REQUEST, REQUEST_LIMIT_BYTES)
    serving = request["serving"]
    child_limits.confine(request["memory_mb"], None if serving else request["seconds"])
    if serving:
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])  # ends it even if it holds every lock
    breadcrumbs.leave_in(folder / STAGE)
    result: dict[str, Json] = {"why": ""}
    try:
        _try(folder, request)
    except (MissingDependency, ProfileError) as missing:
        result = {"why": str(missing), "missing": True}
    except Exception as problem:  # an engine may throw anything
        result = {"why": reason_of(problem), "blame": blame_of(problem)}
        # An accelerator's outputs are wrong until its driver changes, which changes the engine's version.
        result["same_again"] = result["blame"] == "bundle" and registry.ACCELERATOR in request["options"]
    with contextlib.suppress(FileNotFoundError):  # a worker's folder is removed once it serves
        (folder / RESULT).write_bytes(strict_json.encode(result))


def _try(folder: Path, request: Mapping[str, Json]) -> None:
    largest, *further = (Signature(*map(specs_of, pair)) for pair in request["shapes"])
    inputs, outputs = largest
    count, all_ = request["golden"]
    thin = [Signature(pair.inputs, thinned_specs(pair.outputs)) for pair in further]
    golden = [
        (_arrays(folder, f"{number}.x", pair.inputs), _arrays(folder, f"{number}.y", pair.outputs))
        for number, pair in zip(range(all_), [*[largest] * count, *thin], strict=False)
    ]
    engine = registry.engine(request["target"])
    version = registry.version_of(request["target"], request["options"])
    (folder / VERSION).write_bytes(strict_json.encode({"engine": version}))
    files = {name: Path(path) for name, path in request["files"].items()}
    options, threads = request["options"], request["threads"]
    if "trial" in request:
        trial = import_module(TRIALS[request["trial"]])
        trial.try_variant(request["target"], files, options, threads, request["trial_data"])
        return
    open_runner = partial(registry.open_runner, engine, files, inputs, outputs, threads=threads)
    runner = open_runner(options=options)
    try:
        feeds = {spec.name: spec.zeros() for spec in inputs}
        if not golden:
            runner.run(feeds)
        checks = OutputChecks(outputs, golden, [*further, largest])
        if not registry.isolation_of(request["target"], options):
            golden_check.check_golden(runner, golden, checks, request["limits_db"])
            return
        runner = checked(runner, open_runner, options, golden, checks, request["limits_db"])
        if request["serving"]:
            _serve(runner, largest, *request["serving"])
    finally:
        runner.close()


def _serve(runner: CheckedRunner, signature: Signature, channel: int, memory: int) -> None:
    """Report what is loaded, and run requests until the app closes the channel."""
    inputs, outputs = signature
    arrays = worker.arrays_in(mmap.mmap(memory, 0), (*inputs, *outputs))
    feeds = {spec.name: array for spec, array in zip(inputs, arrays, strict=False)}
    into = {spec.name: array for spec, array in zip(outputs, arrays[len(inputs) :], strict=True)}
    limit_s = max(LEAST_LIMIT_S, HANG_RUNS * sum(runner.times_ms) / 1000)
    ready = {"device": runner.device, "precision": runner.precision, "limit_s": limit_s}
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # nobody would read what an engine logs about each run
        os.dup2(silent, stream)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the app's
    with socket.socket(fileno=channel) as requests:
        requests.send(strict_json.encode({**ready, "facts": runner.facts()}))
        signal.setitimer(signal.ITIMER_REAL, 0)
        while number := requests.recv(worker.NUMBER.size):
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            try:
                for name, output in runner.run(feeds).items():
                    into[name][...] = output
                reply = number
            except Exception as problem:  # an engine may throw anything
                reply = number + reason_of(problem).encode()
            signal.setitimer(signal.ITIMER_REAL, 0)
            requests.send(reply)
        signal.setitimer(signal.ITIMER_REAL, worker.CLOSE_S)


def _arrays(folder: Path, prefix: str, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    return {
        spec.name: parse_npy(memoryview((folder / f"{prefix}{index}.npy").read_bytes()), spec)
        for index, spec in enumerate(specs)
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
