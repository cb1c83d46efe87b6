"""What serving costs: requests to `edgekit serve` on loopback beside runs of a session, in turns.

    python tests/benchmarks/bench_serve.py MODEL.edgekit [--threads 1] [--seconds 20]

One connection, one request at a time, arrays in the binary form and in JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from edgekit.runtime import Session
from edgekit.runtime.http_connection import HttpConnection
from edgekit.runtime.remote.inference_protocol import Client
from tests.benchmarks.interleaved import interleaved


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("bundle", type=Path)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--seconds", type=float, default=20)
    given = arguments.parse_args()
    command = [sys.executable, "-c", "from edgekit.cli.verbs import main; main()", "serve"]
    options = [f"m={given.bundle}", "--listen", ":0", "--threads", str(given.threads), "--json"]
    with (
        subprocess.Popen([*command, *options], stdout=subprocess.PIPE) as process,
        Session(given.bundle, threads=given.threads) as session,
    ):
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        client = Client(HttpConnection(url), "m", session.bundle.shapes)
        feeds = session.bundle.golden[0][0]

        def ask(binary: bool) -> None:
            client.infer(feeds, time.monotonic() + 60, binary)

        calls = {
            "session": lambda: session.run(feeds),
            "binary": lambda: ask(True),
            "json": lambda: ask(False),
        }
        found = interleaved(calls, seconds=given.seconds)
        for name, timing in found.items():
            over_ms = 1000 * timing.over_s(found["session"])
            ratio = timing.ratio_to(found["session"])
            print(f"{name:8} min {1000 * timing.min_s:.3f} ms, {ratio:.2f}x, +{over_ms:.3f} ms")
        client.close()
        process.terminate()


if __name__ == "__main__":
    main()
