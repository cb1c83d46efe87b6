"""`edgekit serve` under requests that come by chance, against what the simulation says of the same load.

    PYTHONPATH=. python tests/benchmarks/bench_capacity.py MODEL.edgekit [--load .25 .5 .7] [--seconds 20]

One worker of one thread. The time of a run is what single requests take from end to end, one after the other;
the load is the share of that which is asked for. This process, which asks, needs a core of its own. Needs
aiohttp (extra samples).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import numpy as np

from edgekit.release.fleet.capacity import simulate
from edgekit.runtime import Session
from edgekit.runtime.remote.inference_protocol import request_of

DEADLINE_S = 1.0
SINGLE = 300


async def measure(url: str, body: bytes, headers: dict[str, str], loads: list[float], seconds: float) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def ask(at_s: float = 0.0) -> tuple[float, int]:
            await asyncio.sleep(max(0.0, at_s - time.perf_counter()))
            began = time.perf_counter()
            async with client.post(f"{url}/v2/models/m/infer", data=body, headers=headers) as answer:
                await answer.read()
                return time.perf_counter() - began, answer.status

        single = np.array([(await ask())[0] for _ in range(SINGLE)][SINGLE // 3 :])
        print(
            f"single requests  mean {1000 * single.mean():.2f} ms, "
            f"p99 {1000 * np.quantile(single, 0.99):.2f} ms"
        )
        rng = np.random.default_rng(0)
        for load in loads:
            rate = load / float(single.mean())
            times = np.sort(rng.uniform(0, seconds, rng.poisson(rate * seconds))) + time.perf_counter() + 0.5
            answers = await asyncio.gather(*(ask(at_s) for at_s in times))
            took = np.array([each for each, status in answers if status == 200])
            expected = simulate(rate, single, 1, seconds=10 * seconds, deadline_s=DEADLINE_S)
            print(
                f"load {load:.0%}, {rate:.0f} a second: p50 {1000 * np.median(took):.2f} ms, p99 "
                f"{1000 * np.quantile(took, 0.99):.2f} ms, {len(answers) - len(took)} refused; simulated p50 "
                f"{expected.quantile_ms(0.5):.2f} ms, p99 {expected.quantile_ms(0.99):.2f} ms"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--load", type=float, nargs="*", default=[0.25, 0.5, 0.7])
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    command = [sys.executable, "-c", "from edgekit.cli.verbs import main; main()", "serve"]
    options = [f"m={given.bundle}", "--listen", ":0", "--threads", "1", "--json"]
    with (
        subprocess.Popen([*command, *options], stdout=subprocess.PIPE) as process,
        Session(given.bundle, threads=1) as session,
    ):
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"].removesuffix("/v2")
        pieces, headers = request_of(session.bundle.golden[0][0], session.inputs, session.outputs, True)
        try:
            asyncio.run(measure(url, b"".join(pieces), headers, given.load, given.seconds))
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
