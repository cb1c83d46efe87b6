"""Build models with two checkouts and list every difference between the bundles.

    python tests/benchmarks/same_bundles.py OLD NEW MODELS --photos PHOTOS --precision fp32 int8 --only vww

For a change of the code that must change no answer. OLD and NEW are checkouts with a ``.venv`` each.
Entries are compared byte for byte, and the manifest field by field but for IGNORED fields and the times in
sentences. An int8 build measures one candidate for each target (``--time-budget 0``), because a longer
search ends by the clock. It is calibrated on eight photographs where the model's card takes images, else on
seeded random inputs of the shapes that the fp32 build fixed. Exit code: 0 no difference, 1 differences,
2 a build failed in both trees alike.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TARGETS = ("ort", "openvino", "tflite", "coreml", "tensorrt")
CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
IGNORED = frozenset(
    {
        "edgekit",  # the version
        "timing",  # of a variant
        "ratio",  # of a candidate's time and its float parent's
        "offset",  # of an entry: follows from the sizes of those before it, which are compared
    }
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("old", type=Path)
    arguments.add_argument("new", type=Path)
    arguments.add_argument("models", type=Path)
    arguments.add_argument("--photos", type=Path, required=True)
    arguments.add_argument("--precision", nargs="*", default=["fp32", "int8"])
    arguments.add_argument("--only", nargs="*", default=[""], help="beginnings of the models' names")
    options = arguments.parse_args()
    models = [path for path in sorted(options.models.iterdir()) if path.suffix in (".onnx", ".tflite")]
    trees, worst = (options.old.resolve(), options.new.resolve()), 0
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder, "photos")
        photos.mkdir()
        for photo in sorted(options.photos.glob("*.jpg"))[:8]:
            (photos / photo.name).symlink_to(photo.resolve())
        for precision in options.precision:
            for model in (model for model in models if model.name.startswith(tuple(options.only))):
                old, new = (_build(tree, model.resolve(), precision, photos, Path(folder)) for tree in trees)
                found = list(_differences(old, new))
                entries = len(new.get("entries", {}))
                print(f"{precision} {model.name}: {entries} entries, {len(found)} differences", flush=True)
                for line in found:
                    print(f"    {line}", flush=True)
                worst = max(worst, 1 if found else 2 if "error" in old else 0)
    return worst


def _build(tree: Path, model: Path, precision: str, photos: Path, folder: Path) -> dict[str, Any]:
    """Return the manifest of a new bundle, with its entries by name as bytes; or the build's error."""
    bundle = folder / "built.edgekit"
    card = CARDS / f"{model.stem}.toml"
    command = [str(tree / ".venv/bin/edgekit"), "build", str(model), "-o", str(bundle), "--quiet"]
    command += [word for target in TARGETS for word in ("-t", target)]
    if card.is_file():
        command += ["--card", str(card)]
    if precision != "fp32":
        pictures = card.is_file() and 'kind = "image"' in card.read_text("utf-8")
        samples = photos if pictures else _random_samples(tree, model, photos, folder)
        command += ["--samples", str(samples), "--precision", precision, "--force", "--time-budget", "0"]
    environment = {**os.environ, "EDGEKIT_CACHE": str(folder / f"cache-{tree.name}")}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        return {"error": f"exit code {done.returncode}: {done.stderr.strip()}"}
    content = bundle.read_bytes()
    bundle.unlink()
    size = struct.unpack("<Q", content[16:24])[0]
    manifest: dict[str, Any] = json.loads(content[64 : 64 + size])
    start = -(-(64 + size) // 64) * 64
    manifest["entries"] = {
        entry["name"]: content[start + entry["offset"] : start + entry["offset"] + entry["size"]]
        for entry in manifest["entries"]
    }
    manifest["variants"] = {variant["name"]: variant for variant in manifest["variants"]}
    return manifest


def _random_samples(tree: Path, model: Path, photos: Path, folder: Path) -> Path:
    samples = folder / f"samples-{model.name}"
    if not samples.is_dir():
        inputs = _build(tree, model, "fp32", photos, folder)["inputs"]
        samples.mkdir()
        random = np.random.default_rng(1)
        for number in range(8):
            arrays = {each["name"]: _values(random, each["shape"], each["dtype"]) for each in inputs}
            np.savez(samples / f"{number}.npz", **arrays)
    return samples


def _values(random: np.random.Generator, shape: list[int], dtype: str) -> Any:
    if dtype.startswith("float"):
        return random.normal(0, 1, shape).astype(dtype)
    if dtype in ("int8", "uint8"):
        return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape).astype(dtype)
    return np.full(shape, 16_000, dtype)  # the sample rate of silero_vad, the only other integer


def _differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    if where == "" and ("error" in old) != ("error" in new):
        tree, failed = ("old", old) if "error" in old else ("new", new)
        yield f"only the {tree} checkout's build failed: {failed['error']}"
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new} - IGNORED):
            path = f"{where}/{key}"
            if key not in old or key not in new:
                tree, value = ("old", old[key]) if key in old else ("new", new[key])
                yield f"{path}: only in the {tree} bundle: {_brief(value)}"
            else:
                yield from _differences(old[key], new[key], path)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(*pair, f"{where}/{number}")
    elif _without_times(old) != _without_times(new):
        yield f"{where}: {_brief(old)} -> {_brief(new)}"


def _without_times(value: Any) -> Any:
    return re.sub(r"\d+\.\d\dx the time", "N x the time", value) if isinstance(value, str) else value


def _brief(value: Any) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else json.dumps(value)[:300]


if __name__ == "__main__":
    sys.exit(main())
