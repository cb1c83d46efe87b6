"""The child that builds an engine and holds it to the golden vector.

    python -m edgekit_tensorrt.device.build_engine REQUEST.json FOLDER

Started by run.py; edgekit/runtime/device_builds/build.py says what it writes.
"""

from __future__ import annotations

import errno
import hashlib
import sys
import time
from pathlib import Path

from edgekit.errors import EdgeKitError
from edgekit.runtime.device_builds.build import NO_ROOM, RESULT, STAGE
from edgekit.runtime.device_builds.child_limits import lower_priority
from edgekit.runtime.device_builds.engine_store import ENGINE
from edgekit.system.formats import strict_json
from edgekit.tensor_spec import Json, specs_of
from edgekit_tensorrt import run
from edgekit_tensorrt.device.cuda import Cuda
from edgekit_tensorrt.device.engine import build_engine, read_file
from edgekit_tensorrt.device.golden import golden_feeds

TIMED_RUNS = 5


def main(request_path: str, folder: str) -> None:
    lower_priority()
    draft = Path(folder)
    content = Path(request_path).read_bytes()
    request = strict_json.decode(content, "request", run.SETTINGS_LIMIT_BYTES)
    try:
        try:
            result = _build(request, draft)
        except EdgeKitError as problem:
            result = {"failed": str(problem)}
        (draft / RESULT).write_bytes(strict_json.encode(result))
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(NO_ROOM)


def _build(request: dict[str, Json], draft: Path) -> dict[str, Json]:
    files = {name: Path(path) for name, path in request["files"].items()}
    inputs, outputs = specs_of(request["inputs"]), specs_of(request["outputs"])
    trt, cuda = run.tensorrt(), Cuda()
    began = time.monotonic()
    (draft / STAGE).write_text("building", "ascii")
    settings = run.read_settings(files)
    extents = request["extents"]
    plan = build_engine(trt, read_file(files, run.MODEL_FILE), settings["workspace_mb"], extents)
    (draft / ENGINE).write_bytes(plan)
    seconds = time.monotonic() - began
    (draft / STAGE).write_text("verifying", "ascii")
    runner = run.load_engine(trt, cuda, plan, files, inputs, outputs, request["precision"], extents)
    feeds = golden_feeds(run.at_largest(inputs, extents), settings["golden_integers"])
    times = []
    for _ in range(TIMED_RUNS):
        started = time.perf_counter()
        runner.run(feeds)
        times.append(time.perf_counter() - started)
    facts = runner.facts()
    runner.close()
    return {
        "sha256": hashlib.sha256(plan).hexdigest(),
        "seconds": round(seconds, 1),
        "min_ms": round(1000 * min(times), 3),
        **facts,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
