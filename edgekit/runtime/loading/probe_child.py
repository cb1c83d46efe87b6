"""The child process of a probe: loads one variant, runs the golden vectors and reports the result. That of a
worker (worker.py) serves requests then.

python -m edgekit.runtime.loading.probe_child FOLDER
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from edgekit.errors import MissingDependency, ProfileError, blame_of, reason_of
from edgekit.runtime.device_builds import child_limits
from edgekit.runtime.loading import golden_check, worker
from edgekit.runtime.loading.checked_runner import checked
from edgekit.runtime.loading.output_checks import OutputChecks
from edgekit.runtime.loading.probe import REQUEST, RESULT, STAGE, TRIALS, VERSION
from edgekit.system import breadcrumbs
from edgekit.system.formats import strict_json
from edgekit.system.formats.npy import parse_npy
from edgekit.target import registry
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec, specs_of, thinned_specs

REQUEST_LIMIT_BYTES = 16 << 20


def main(folder: Path) -> None:
    """Write ``result.json``: ``why``, empty on success; on failure also ``blame``, and ``same_again`` if the
    next run would give the same result."""
    request = strict_json.decode((folder / REQUEST).read_bytes(), REQUEST, REQUEST_LIMIT_BYTES)
    serving = request["serving"]
    child_limits.confine(request["memory_mb"], None if serving else request["seconds"])
    if serving:
        worker.end_after(request["seconds"])
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
            worker.serve(runner, largest, *request["serving"])
    finally:
        runner.close()


def _arrays(folder: Path, prefix: str, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    return {
        spec.name: parse_npy(memoryview((folder / f"{prefix}{index}.npy").read_bytes()), spec)
        for index, spec in enumerate(specs)
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
