"""One camera app in six steps: latency, CPU time and page faults of a frame, each step beside the one before.

python samples/latency/steps.py yolox_nano.onnx detector.edgekit film.mp4
python samples/latency/steps.py model.onnx bundle.edgekit photos/ --sizes 1280x720 --frames 100 --rounds 5

A frame is a JPEG of quality 90, as a USB camera gives it: decode, prepare, infer, boxes. Every step runs in a
process of its own, in turns, so that neither its memory nor its threads are those of another one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from edgekit.processing import processing
from edgekit.runtime import Bundle, Session
from edgekit.runtime.session_card import card_of
from edgekit.system import onnx_runtime
from edgekit.system.energy import joules_between, read_energy

STEPS = {
    "script": "OpenCV, InferenceSession with its defaults, NMS in Python",
    "one thread": "intra_op_num_threads = 1",
    "kept memory": "glibc told to keep freed memory: the script without page faults",
    "edgekit, fp32": "predict: the same model on the same engine, one thread",
    "edgekit": "predict: the bundle's default variant, one thread",
    "stream": "session.stream: all cores",
}
WARM = 8
SURE = 0.5
Boxes = list[tuple[int, float, list[float]]]
"""Class, score, and x1, y1, x2, y2 of each object."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="the .onnx file that the bundle was built from")
    parser.add_argument("bundle", type=Path, help="the bundle, with a card that detects")
    parser.add_argument("source", type=Path, help="a video, or a folder of photographs")
    parser.add_argument("--sizes", default="640x272,1280x720,1920x1080", help="sizes of the frames")
    parser.add_argument("--frames", type=int, default=100, help="frames in a round")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds in turns; the least of each figure counts"
    )
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)  # in the child process
    options = parser.parse_args(arguments)
    if options.step:
        jpegs = [path.read_bytes() for path in sorted(options.source.iterdir())]
        print(json.dumps(measure(options.step, options.model, options.bundle, jpegs)))
        return
    figures: dict[str, Any] = {}
    for size in options.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            width, _, height = size.partition("x")
            write_frames(options.source, Path(folder), int(width), int(height), options.frames)
            figures[size] = in_turns(options, folder)
        print(table(size, figures[size]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def write_frames(source: Path, folder: Path, width: int, height: int, count: int) -> None:
    """Write ``count`` frames of the source as JPEGs."""
    written = 0
    for frame in source_frames(source):
        scaled = cv2.resize(frame, (width, height), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"{written:05}.jpg"), scaled, [cv2.IMWRITE_JPEG_QUALITY, 90])
        written += 1
        if written == count:
            break
    if not written:
        sys.exit(f"error: {source} has no frame that OpenCV reads")


def source_frames(source: Path) -> Iterator[np.ndarray]:
    if source.is_dir():
        read = (cv2.imread(str(path)) for path in sorted(source.iterdir()))
        yield from (frame for frame in read if frame is not None)
        return
    video = cv2.VideoCapture(str(source))
    while (frame := video.read()[1]) is not None:
        yield frame


def in_turns(options: argparse.Namespace, folder: str) -> dict[str, dict[str, Any]]:
    """Run every step in each round; return the least of each figure."""
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(options.rounds):
        for step in STEPS:
            command = [
                sys.executable,
                __file__,
                str(options.model),
                str(options.bundle),
                folder,
                "--step",
                step,
            ]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                sys.exit(f"error: the step {step!r} failed")
            row = json.loads(done.stdout)
            best = rows.setdefault(step, row)
            for name, value in row.items():
                if isinstance(value, float):
                    best[name] = max(best[name], value) if name == "fps" else min(best[name], value)
    for row in rows.values():
        row["sure"], row["same"] = same_boxes(rows["script"]["boxes"], row["boxes"])
    for row in rows.values():
        del row["boxes"]
    return rows


def same_boxes(expected: list[Boxes], found: list[Boxes]) -> tuple[int, int]:
    """Return the sure objects of a step, and how many of them another one finds: same class, IoU over .5."""
    sure = same = 0
    for ours, theirs in zip(expected, found, strict=True):
        for label, score, box in ours:
            if score >= SURE:
                sure += 1
                same += any(label == other and iou(box, place) > 0.5 for other, _, place in theirs)
    return sure, same


def iou(a: list[float], b: list[float]) -> float:
    wide, high = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return wide * high / max(areas - wide * high, 1e-9)


# --- in the child process: one step ---------------------------------------------------------------------


def measure(step: str, model: Path, bundle: Path, jpegs: list[bytes]) -> dict[str, Any]:
    """Return p50, p95, p99 and CPU of a frame in ms, page faults, frames a second, joules and boxes."""
    if step == "kept memory":
        import ctypes

        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
    if step in ("script", "one thread", "kept memory"):
        return timed(script(model, bundle, None if step == "script" else 1), jpegs)
    if step == "stream":
        with Session(bundle) as session:
            return streamed(session, jpegs)
    variant = next(v.name for v in Bundle.open(bundle).variants if v.name.startswith("ort-fp32"))
    with Session(bundle, variant=variant if step == "edgekit, fp32" else None, threads=1) as session:
        row = timed(lambda jpeg: boxes_of(session.predict(jpeg)), jpegs)
        return {**row, "variant": session.active.variant}


def script(model: Path, bundle: Path, threads: int | None) -> Callable[[bytes], Boxes]:
    """Return what people write: decode and resize by OpenCV, ONNX Runtime, boxes in numpy."""
    onnxruntime = onnx_runtime.onnxruntime()
    settings = onnxruntime.SessionOptions()
    if threads is not None:
        settings.intra_op_num_threads = threads
        cv2.setNumThreads(threads)
    session = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    with Bundle.open(bundle) as opened:
        card = card_of(opened)
    image, task = card.image_input(), card.task
    assert task is not None
    if image.resize != "letterbox" or image.layout != "NCHW" or image.place == "center":
        sys.exit("error: the script's preparation is a letterbox at the top left; write yours into script()")
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (image.mean, image.std))
    side = (image.width, image.height)

    def run(jpeg: bytes) -> Boxes:
        frame: Any = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
        ratio = min(image.height / frame.shape[0], image.width / frame.shape[1])
        small = cv2.resize(frame, (int(frame.shape[1] * ratio), int(frame.shape[0] * ratio)))
        padded = np.full((image.height, image.width, 3), image.pad, np.uint8)
        padded[: small.shape[0], : small.shape[1]] = small
        if image.colour == "RGB":
            padded = cv2.cvtColor(padded, cv2.COLOR_BGR2RGB)
        planes = padded.transpose(2, 0, 1).astype(np.float32)
        if not image.plain:
            planes = (planes - mean) / std
        outputs = session.run(None, {image.name: np.ascontiguousarray(planes[None])})
        if task.decode == "yolox":
            return yolox_boxes(outputs[0][0], ratio, side, frame.shape, task.options)
        named = {value.name: array for value, array in zip(session.get_outputs(), outputs, strict=True)}
        placed = processing.placement(card, frame.shape[1], frame.shape[0])
        return boxes_of(processing.decode(card, named, placed))

    return run


def yolox_boxes(
    output: np.ndarray, ratio: float, side: tuple[int, int], frame: tuple[int, ...], options: Any
) -> Boxes:
    """Decode YOLOX's grids as its demo does: a class at a time, with OpenCV's NMS."""
    grids, strides = [], []
    for stride in options.strides:
        y, x = np.mgrid[0 : side[1] // stride, 0 : side[0] // stride]
        grids.append(np.stack([x.ravel(), y.ravel()], 1))
        strides.append(np.full((x.size, 1), stride))
    grid, stride = np.concatenate(grids), np.concatenate(strides)
    centre, size = (output[:, :2] + grid) * stride, np.exp(output[:, 2:4]) * stride
    scores = output[:, 4:5] * output[:, 5:]
    classes, best = scores.argmax(1), scores.max(1)
    corners = np.concatenate([centre - size / 2, centre + size / 2], 1) / ratio
    edge = [frame[1], frame[0]] * 2
    result: Boxes = []
    for label in range(scores.shape[1]):
        mask = (classes == label) & (best > options.score)
        if mask.any():
            boxes, kept = corners[mask], best[mask].tolist()
            sized = [[b[0], b[1], b[2] - b[0], b[3] - b[1]] for b in boxes.tolist()]
            for index in np.array(cv2.dnn.NMSBoxes(sized, kept, options.score, options.iou)).reshape(-1):
                result.append((label, kept[index], np.clip(boxes[index], 0, edge).tolist()))
    return result


def boxes_of(found: Any) -> Boxes:
    return list(zip(found.classes.tolist(), found.scores.tolist(), found.boxes.tolist(), strict=True))


def timed(run: Callable[[bytes], Boxes], jpegs: list[bytes]) -> dict[str, Any]:
    for jpeg in jpegs[:WARM]:
        run(jpeg)
    wall, cpu, faults, boxes = [], [], [], []
    energy = read_energy()
    for jpeg in jpegs:
        before, mapped = time.process_time_ns(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        began = time.perf_counter()
        boxes.append(run(jpeg))
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append((time.process_time_ns() - before) / 1e6)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - mapped)
    used = joules_between(energy, read_energy())
    return row(
        wall, float(np.median(cpu)), float(np.median(faults)), 1000 * len(wall) / sum(wall), used, boxes
    )


def streamed(session: Session, jpegs: list[bytes]) -> dict[str, Any]:
    """Latency of a stream is from reading a frame to its result. Its start, which loads a model for each
    worker, is over before the frames that count."""
    wall, faults, boxes = [], [], []
    first = jpegs[:WARM]
    results = session.stream([*first, *jpegs])
    for _ in islice(results, len(first)):
        pass
    energy, before = read_energy(), time.process_time_ns()
    mapped, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    for result in results:
        wall.append(1000 * sum(result.seconds.values()))
        boxes.append(boxes_of(result.answer))
        now = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        faults.append(now - mapped)
        mapped = now
    seconds, count = time.perf_counter() - began, len(wall)
    cpu = (time.process_time_ns() - before) / 1e6 / count
    used = joules_between(energy, read_energy())
    figures = row(wall, cpu, float(np.median(faults)), count / seconds, used, boxes)
    return {**figures, "variant": session.active.variant}


def row(
    wall: list[float], cpu: float, faults: float, fps: float, joules: float | None, boxes: list[Boxes]
) -> dict[str, Any]:
    p50, p95, p99 = (float(value) for value in np.quantile(wall, [0.5, 0.95, 0.99]))
    energy = None if joules is None else joules / len(wall)
    return {
        "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "cpu_ms": cpu, "faults": faults, "fps": fps,
        "joules": energy, "boxes": boxes, "variant": "",
    }  # fmt: skip


def table(size: str, rows: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"  {size.replace('x', ' x ')}",
        "  step           p50 ms   p95 ms   p99 ms   CPU ms   faults   frames/s   joules   sure boxes",
    ]
    for step, r in rows.items():
        joules = "-" if r["joules"] is None else f"{r['joules']:.3f}"
        lines.append(
            f"  {step:<13}  {r['p50_ms']:6.1f}   {r['p95_ms']:6.1f}   {r['p99_ms']:6.1f}   "
            f"{r['cpu_ms']:6.1f}   {r['faults']:6.0f}   {r['fps']:8.1f}   {joules:>6}   "
            f"{r['same']} of {r['sure']}  {r['variant']}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
