"""An update killed or failed at every system call on the device's files. Goal: always a bundle, never a rest.

python tests/benchmarks/bench_update_faults.py [--effect EFFECT]... [--call NAME]...

EFFECT is strace's: ``signal=KILL`` (the default), ``error=ENOSPC``, ``error=EIO``. Needs strace. After each
run the store must open a whole bundle, and the next update must end with the new one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.release.updates.conftest import World
from tests.release.updates.file_server import serving
from tests.release.updates.update_faults import CALLS, at_every_call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--effect", action="append", default=[])
    parser.add_argument("--call", action="append", default=[])
    asked = parser.parse_args()
    for effect in asked.effect or ["signal=KILL"]:
        for call in asked.call or CALLS:
            began = time.perf_counter()
            with tempfile.TemporaryDirectory() as place:
                site = Path(place, "site")
                site.mkdir()
                with serving(site) as server:
                    world = World(Path(place), server)
                    world.repository.create(["stable"])
                    ended = dict(at_every_call(world, effect, [call]))
            print(f"{effect} {call}: {ended}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
