"""A child process that runs a session on frames, so that an engine's crash or hang is not the server's.

python -m edgekit.serve.frigate.worker_process SOCKET MEMORY OPTIONS
"""

from __future__ import annotations

import json
import mmap
import resource
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime import Session
from edgekit.serve.frigate.messages import DTYPES, ZEROS, image_of, rows_of
from edgekit.system.confinement import die_with_parent

REQUEST = struct.Struct("<QBB4I")
"""Number of the frame, dtype, whether to read it in the other colour order, and shape."""
RESPONSE = struct.Struct("<QBf")
"""Number of the frame, whether it was computed, seconds. ROWS_BYTES follow."""
READY_BYTES = 8192
"""Maximum size of the first message: the active variant, or an error, in JSON."""
OTHER_ORDER = {"rgb": "bgr", "bgr": "rgb"}


def main(channel: socket.socket, frames: mmap.mmap, options: Mapping[str, Any]) -> None:
    """Open a session, report its variant, and compute frames until the server closes the channel."""
    try:
        session = _opened(options)
    except EdgeKitError as problem:
        failure = {"error": str(problem)[:2000], "is_misused": isinstance(problem, UsageError)}
        channel.send(json.dumps(failure).encode())
        return
    with session:
        classes = {int(number): mapped for number, mapped in options["classes"].items()}
        for order in OTHER_ORDER:  # the first prediction loads the card's code
            session.predict(np.zeros((*options["size"], 3), np.uint8), order)
        channel.send(json.dumps({"active": session.active, "target": _target_of(session)}).encode())
        while request := channel.recv(REQUEST.size):
            number, dtype, is_other, *shape = REQUEST.unpack(request)
            start_s = time.monotonic()
            image = image_of(np.ndarray(shape, DTYPES[dtype], frames))
            order = OTHER_ORDER[options["order"]] if is_other else options["order"]
            rows, is_computed = ZEROS, False
            try:
                detections: Detections = session.predict(image, order)
                rows = rows_of(detections, image.shape[1], image.shape[0], classes)
                is_computed = True
            except EdgeKitError as problem:
                print(f"{session.active.variant}: {reason_of(problem)}", file=sys.stderr, flush=True)
            channel.send(RESPONSE.pack(number, is_computed, time.monotonic() - start_s) + rows)


def _opened(options: Mapping[str, Any]) -> Session[Any]:
    """Open the session; the reserve's prefers a variant of another target than the first worker's."""
    given = {name: options[name] for name in ("engine", "threads", "device")}
    with Bundle.open(options["bundle"]) as bundle:
        others = [v.name for v in bundle.variants if v.usable and v.target != options["avoid"]]
    if options["avoid"] and others:
        given["variant"] = others[0]
    return Session(options["bundle"], warm=True, **given)


def _target_of(session: Session[Any]) -> str:
    name = session.active.variant.partition("@")[0]
    return next((v.target for v in session.bundle.variants if v.name == name), "")


if __name__ == "__main__":
    die_with_parent()
    # The server's own limit is not for engines.
    resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)
    with socket.socket(fileno=int(sys.argv[1])) as opened, mmap.mmap(int(sys.argv[2]), 0) as memory:
        main(opened, memory, json.loads(sys.argv[3]))
