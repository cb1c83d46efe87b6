"""What an update costs after a fine-tune: the difference between two bundles, against the whole file.

python tests/benchmarks/bench_deltas.py [MODEL ...]

The fine-tune is imitated: each weight of the named layers moves by a normal number of ``change`` times the
standard deviation of its tensor. The whole file packed by zstd is shown too, as a server might send it.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import zstandard
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import edgekit
from edgekit.release.updates.delta import apply_delta, make_delta

CHANGES = (("last", 0.03), ("last", 0.3), ("all", 0.0001), ("all", 0.001), ("all", 0.01), ("all", 0.03))
"""Layers that change, and by how much."""


def fine_tuned(path: Path, layers: str, change: float, out: Path) -> Path:
    """The model with moved weights of all layers, or of the last two tensors of weights."""
    model = onnx.load(path)
    order = [name for node in model.graph.node for name in node.input]
    weights = [
        t for t in model.graph.initializer if len(t.dims) > 1 and t.data_type == onnx.TensorProto.FLOAT
    ]
    weights.sort(key=lambda tensor: order.index(tensor.name))
    draw = np.random.default_rng(0)
    for tensor in weights if layers == "all" else weights[-2:]:
        old = numpy_helper.to_array(tensor)
        moved = old + change * old.std() * draw.standard_normal(old.shape)
        tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), tensor.name))
    onnx.save(model, out)
    return out


def built(model: Path, precision: str, out: Path) -> Path:
    """Its bundle for ONNX Runtime; of int8 (whatever its accuracy on random samples) that variant alone."""
    draw = np.random.default_rng(1)
    spec = onnx.load(model).graph.input[0]
    shape = [d.dim_value or 1 for d in spec.type.tensor_type.shape.dim]
    samples = [{spec.name: draw.random(shape, np.float32)} for _ in range(8)]
    more = {} if precision == "fp32" else {"samples": samples, "force": True}
    bundle = edgekit.build(model, targets=["ort"], precision=precision, trusted=True, **more)  # type: ignore[arg-type]
    if precision == "fp32":
        return bundle.save(out)
    kept = [v for v in bundle.manifest["variants"] if v["precision"].startswith("int8") and v["files"]]
    entries = {entry: bytes(bundle.read(entry)) for v in kept for entry in v["files"].values()}
    manifest = {key: bundle.manifest[key] for key in ("source", "inputs", "outputs", "tools")}
    return edgekit.Bundle.create({**manifest, "variants": kept}, entries).save(out)


def main() -> None:
    shared = Path(__file__).resolve().parents[3] / "shared" / "models"
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        default=[shared / "resnet8_cifar10_fp32.onnx", shared / "yolox_nano.onnx"],
    )
    print(
        f"{'model':<22}{'precision':<10}{'layers':<7}{'change':>7}{'file':>10}{'zstd':>10}{'delta':>10} share"
    )
    for model in parser.parse_args().models:
        for precision in ("fp32", "int8"):
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                old = built(model, precision, place / "old.edgekit")
                for layers, change in CHANGES:
                    new = built(
                        fine_tuned(model, layers, change, place / model.name),
                        precision,
                        place / "new.edgekit",
                    )
                    began = time.perf_counter()
                    with open(place / "delta", "wb") as out:
                        make_delta(old, new, out)
                    made_s = time.perf_counter() - began
                    result = io.BytesIO()
                    began = time.perf_counter()
                    apply_delta(old, place / "delta", result)
                    applied_s = time.perf_counter() - began
                    assert result.getvalue() == new.read_bytes()
                    whole, size = new.stat().st_size, (place / "delta").stat().st_size
                    packed = len(zstandard.ZstdCompressor(level=19).compress(new.read_bytes()))
                    print(
                        f"{model.stem[:20]:<22}{precision:<10}{layers:<7}{change:>7.3f}{whole:>10}{packed:>10}"
                        f"{size:>10}{size / whole:8.1%}   made {made_s:.1f} s, applied {applied_s:.2f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
