"""Frames of Frigate's own class while workers of the server are killed and hang, for as long as wished.

    EDGEKIT_FRIGATE=CHECKOUT python -m tests.benchmarks.bench_frigate DETECTOR.edgekit PHOTOS \
        [--seconds 3600] [--frames-per-second 8] [--fault-every 50] [--nice -15] [--json DONE.json]

Faults take turns: the first worker is killed, hangs for 5 s, hangs until it is replaced; the reserve is
killed, and hangs for 5 s. Each result must have the rows of ``Session.predict`` on one of both engines. The
bundle needs variants for ort and tflite. `--nice` needs root; a shell starts it by `setsid -f`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from edgekit.runtime import Session
from edgekit.serve.frigate.messages import classes_of, rows_of
from edgekit.tensor_spec import Array
from tests.fixtures.frigate import frigates_client

IMAGES = 16
HANG_S, LONG_HANG_S = 5.0, 15.0
FAULTS = (
    ("first", signal.SIGKILL, 0.0),
    ("first", signal.SIGSTOP, HANG_S),
    ("first", signal.SIGSTOP, LONG_HANG_S),
    ("reserve", signal.SIGKILL, 0.0),
    ("reserve", signal.SIGSTOP, HANG_S),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--frames-per-second", type=float, default=8)
    parser.add_argument("--fault-every", type=float, default=50)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    frames, expected = inputs_of(options.bundle, options.photos)
    if options.nice:
        raise_priority(options.nice)
    with tempfile.TemporaryDirectory() as name:
        endpoint = f"ipc://{name}/socket"
        command = [sys.executable, "-m", "edgekit", "serve", str(options.bundle), "--frigate", endpoint]
        command += ["--pixel-format", "rgb", "--threads", "1"]
        with open(f"{name}/log", "w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
            try:
                until(lambda: len(workers_of(server.pid)) == 2 and os.path.exists(f"{name}/socket"))
                time.sleep(5)
                client = frigates_client(endpoint, Path(name))
                if client is None:
                    raise SystemExit("Frigate's source is absent (EDGEKIT_FRIGATE)")
                row = drive(client, server.pid, frames, expected, options)
            finally:
                server.terminate()
                server.wait(60)
                log.seek(0)
                lines = log.read().splitlines()
    row["last_line_of_the_server"] = lines[-1] if lines else ""
    print("\n".join(lines[-20:]), json.dumps(row, indent=1), sep="\n")
    if options.json:
        options.json.write_text(json.dumps({**row, "log": lines}, indent=1))


def raise_priority(nice: int) -> None:
    """Set the priority of this process and of its session, as ``Nice=`` and ``CPUWeight=`` of a unit do: with
    autogroups (sched(7)), ``nice`` alone has no effect on processes of other sessions."""
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    if os.getpgid(0) != os.getpid():
        os.setsid()
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(nice))


def inputs_of(bundle: Path, photos: Path) -> tuple[list[Array], list[set[bytes]]]:
    """Return frames with objects, uint8 [1, 416, 416, 3], and the right rows of each, by engine."""
    frames: list[Array] = []
    expected: list[set[bytes]] = []
    with Session[Any](bundle, engine="ort") as first, Session[Any](bundle, engine="tflite") as reserve:
        source, task = first.card.image_input(), first.card.task
        assert task is not None
        height, width = source.height, source.width
        classes = classes_of(task.labels, None)
        for path in sorted(photos.glob("*.jpg")):
            image = Image.open(path).convert("RGB").resize((width, height))
            rows = {rows_of(s.predict(np.asarray(image)), width, height, classes) for s in (first, reserve)}
            if all(np.frombuffer(row, np.float32).any() for row in rows):
                frames.append(np.asarray(image)[None])
                expected.append(rows)
            if len(frames) == IMAGES:
                break
    return frames, expected


def workers_of(server: int) -> dict[str, int]:
    """Return the process of each worker; the reserve is the one that avoids the first one's engine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            words = (path / "cmdline").read_text().split("\0")
        except (OSError, ValueError):
            continue
        if parent == server and "edgekit.serve.frigate.worker_process" in words:
            avoids = json.loads(next(word for word in words if word.startswith("{")))["avoid"]
            found["reserve" if avoids else "first"] = int(path.name)
    return found


def until(is_true: Any, seconds: float = 60) -> None:
    deadline_s = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline_s:
            raise SystemExit("the server did not start")
        time.sleep(0.1)


def drive(client: Any, server: int, frames: list[Array], expected: list[set[bytes]], options: Any) -> Any:
    times_ms: list[float] = []
    loads: list[float] = []
    counts: Counter[str] = Counter()
    memory_mb = [resident_mb(server)]
    faults, resumed = cycle(FAULTS), (float("inf"), 0)
    last, zeros_after = "start", []
    begun_s = last_s = time.monotonic()
    next_fault_s, due_s = begun_s + options.fault_every, begun_s
    while time.monotonic() < begun_s + options.seconds:
        index = len(times_ms) % len(frames)
        sent_s = time.monotonic()
        rows = client.detect_raw(frames[index])
        times_ms.append(1000 * (time.monotonic() - sent_s))
        if not rows.any():
            counts["zeros"] += 1
            zeros_after.append([last, round(sent_s - last_s, 2)])
        counts["wrong"] += bool(rows.any()) and rows.tobytes() not in expected[index]
        counts["over 200 ms"] += times_ms[-1] > 200
        now_s = time.monotonic()
        if now_s > resumed[0]:
            send(resumed[1], signal.SIGCONT)
            resumed = float("inf"), 0
        if now_s > next_fault_s:
            next_fault_s += options.fault_every
            name, number, hang_s = next(faults)
            pid = workers_of(server).get(name, 0)
            last, last_s = f"{name} {number.name} {hang_s:g} s", now_s
            counts[last if send(pid, number) else "fault without worker"] += 1
            resumed = (now_s + hang_s, pid) if hang_s else resumed
            loads.append(os.getloadavg()[0])
            memory_mb.append(resident_mb(server))
        due_s += 1 / options.frames_per_second
        time.sleep(max(0.0, due_s - time.monotonic()))
    quantiles = dict(
        zip(
            ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"),
            np.quantile(times_ms, [0.5, 0.95, 0.99, 0.999, 1.0]).round(1).tolist(),
            strict=True,
        )
    )
    return {
        "sent": len(times_ms), "answered": len(times_ms) - counts["zeros"], **counts, **quantiles,
        "seconds": round(time.monotonic() - begun_s), "zeros_after": zeros_after,
        "slowest_ms": np.sort(times_ms)[-10:].round(1).tolist(),
        "load_mean": round(float(np.mean(loads or [0])), 1), "load_max": max(loads, default=0),
        "server_mb_first_last_max": [memory_mb[0], memory_mb[-1], max(memory_mb)],
    }  # fmt: skip


def send(pid: int, number: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # the server has replaced it
        return False
    return True


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1000, 1)


if __name__ == "__main__":
    main()
