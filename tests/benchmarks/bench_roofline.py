"""Time of a bundle's variants by operator, beside what int8 units and memory need for it; one thread.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_roofline.py BUNDLE.edgekit [--variant ort-int8 ...]

Times are those of the engine's own profile, of the quickest of PROFILES. The peaks are measured in the same
process: multiplications, as the fastest of SHAPES, products of uint8 by int8 on ONNX Runtime, and memory, as
copies of arrays, read and written. A layer's bound is the larger of its multiplications over the first, and
of its inputs, weights and outputs, as bytes, over the rate of the next larger copy. Its gap is its time
beyond the bound. A depthwise layer sums nothing over channels, which the dot products of VNNI do: the peak is
not within its reach.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.compiler.model.node_checks import static_dims
from edgekit.runtime.loading import unpacked_files
from edgekit.target import registry
from edgekit.target.node_reports import NodeTime

RUNS, PROFILES, REPEATS = 80, 5, 15
SHAPES = ((256, 512, 512), (512, 1024, 512), (1024, 1024, 1024))
"""Rows, summed, columns of the products that the peak is measured with."""
COPIED_BYTES = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 28)
"""Sizes of what the copies read and write together, from the first cache's to far beyond the last one's."""
LARGEST_GAPS = 10


class Work(NamedTuple):
    """Work of a layer: multiplications, bytes of what it reads and writes as int8, and its kind."""

    macs: int
    moved_bytes: int
    kind: str


class Layer(NamedTuple):
    """Layer of a profile: its name, its work, and its time and bound in ms."""

    name: str
    work: Work
    ms: float
    bound_ms: float

    @property
    def gap_ms(self) -> float:
        return self.ms - self.bound_ms


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("bundle", type=Path)
    arguments.add_argument("--variant", action="append", default=[], help="default: int8 of ort and openvino")
    options = arguments.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    peak, memory = peak_multiplications(), memory_rates()
    rates = ", ".join(f"{size >> 10} KB {rate / 1e9:.0f}" for size, rate in memory.items())
    print(f"int8: {peak / 1e9:.0f} * 10^9 multiplications a second; copies in GB/s: {rates}")
    with Bundle.open(options.bundle) as bundle:
        for variant in bundle.variants:
            wanted = options.variant or ["ort-int8", "openvino-int8"]
            if variant.name in wanted and not variant.rejected:
                report(bundle, variant, peak, memory)


def report(bundle: Bundle, variant: Variant, peak: float, memory: Mapping[int, float]) -> None:
    """Print a variant's time by operator, and its layers with the largest gaps."""
    files = unpacked_files.unpack(bundle, variant)
    measure = registry.node_reports(variant.target).node_times
    assert measure is not None
    feeds = bundle.golden[0][0]
    profiles = [
        measure(files, bundle.inputs, bundle.outputs, variant.options, feeds, 1, RUNS)
        for _ in range(PROFILES)
    ]
    times = min(profiles, key=lambda profile: profile.run_ms)
    work = work_of_onnx(files["model.onnx"]) if variant.target == "ort" else work_of_ir(files["model.xml"])
    layers = []
    for node in times.nodes:
        layer = work_of(node, work)
        rate = memory[min(size for size in memory if size >= min(layer.moved_bytes, COPIED_BYTES[-1]))]
        bound_ms = 1000 * max(layer.macs / peak, layer.moved_bytes / rate)
        layers.append(Layer(node.node, layer, node.ms, bound_ms))
    total = sum(layer.work.macs for layer in layers)
    print(
        f"\n{variant.name}: {times.run_ms:.2f} ms, {total / 1e6:.0f} million multiplications, "
        f"{_share(total, times.run_ms, peak)} of the peak\n"
    )
    kinds: dict[str, list[Layer]] = defaultdict(list)
    for row in layers:
        kinds[row.work.kind].append(row)
    print("| operators | layers | ms | million multiplications | of the peak | bound, ms | gap, ms |")
    print("|---|---|---|---|---|---|---|")
    for kind, alike in sorted(kinds.items(), key=lambda item: -sum(row.ms for row in item[1])):
        ms, macs, bound_ms = (
            sum(figures)
            for figures in zip(*((row.ms, row.work.macs, row.bound_ms) for row in alike), strict=True)
        )
        print(
            f"| {kind} | {len(alike)} | {ms:.3f} | {macs / 1e6:.1f} | {_share(macs, ms, peak)} "
            f"| {bound_ms:.3f} | {ms - bound_ms:.3f} |"
        )
    for name, ms in times.parts:
        print(f"| {name} | - | {ms:.3f} | - | - | - | {ms:.3f} |")
    print("\nlargest gaps:")
    for row in sorted(layers, key=lambda row: -row.gap_ms)[:LARGEST_GAPS]:
        print(f"  {row.gap_ms:.3f} ms  {row.ms:.3f} for {row.bound_ms:.3f}  {row.work.kind}  {row.name}")


def _share(macs: float, ms: float, peak: float) -> str:
    return f"{100 * macs / (ms / 1000 * peak):.0f} %" if macs else "-"


def work_of(node: NodeTime, work: Mapping[str, Work]) -> Work:
    """Return the work of a timed node: that of the multiplying layer within it, else of its largest."""
    kind = node.op.split()[0]
    if node.op.startswith(("Reorder", "QuantizeLinear", "DequantizeLinear")):
        return Work(0, 0, kind)  # inserted: another layout or type of what a layer reads
    layers = [work[name] for name in dict.fromkeys((node.node, *node.nodes)) if name in work]
    best = max(layers, key=lambda layer: (layer.macs, layer.moved_bytes), default=Work(0, 0, kind))
    return best if best.macs else best._replace(kind=kind)


def work_of_onnx(path: Path) -> dict[str, Work]:
    """Return the work of each node of an ONNX file, by the names of the node and of its values."""
    work: dict[str, Work] = {}
    for node in ir.load(path).graph:
        outputs = [static_dims(value) or () for value in node.outputs]
        inputs = [static_dims(value) or () for value in node.inputs if value is not None]
        weights = inputs[1] if node.op_type in ("Conv", "Gemm", "MatMul", "QGemm") and len(inputs) > 1 else ()
        layer = _work(
            node.op_type, inputs[:1], weights, outputs[0], channels_at=0 if node.op_type == "Conv" else -1
        )
        work.update({str(name): layer for name in (node.name, *(v.name for v in node.outputs))})
    return work


def work_of_ir(path: Path) -> dict[str, Work]:
    """Return the work of each layer of an OpenVINO file, by its name."""
    import openvino

    work: dict[str, Work] = {}
    for layer in openvino.Core().read_model(path).get_ordered_ops():
        kind = layer.get_type_name()
        inputs = [tuple(port.get_shape()) for port in layer.inputs()]
        outputs = [tuple(port.get_shape()) for port in layer.outputs()]
        if kind not in ("Constant", "Parameter", "Result"):
            weights: tuple[int, ...] = (
                inputs[1] if kind in ("Convolution", "GroupConvolution", "MatMul") else ()
            )
            if kind == "GroupConvolution":  # groups, outputs of a group, inputs of a group, rows, columns
                weights = (weights[0] * weights[1], *weights[2:])
            work[layer.get_friendly_name()] = _work(
                kind, inputs[:1], weights, outputs[0], channels_at=-1 if kind == "MatMul" else 0
            )
    return work


def _work(
    op: str, data: Sequence[Sequence[int]], weights: Sequence[int], output: Sequence[int], channels_at: int
) -> Work:
    """Return the work of a layer; its weights have their output channels at that axis."""
    made = math.prod(output)
    moved = sum(map(math.prod, data)) + math.prod(weights or (0,)) + made
    if not weights:
        return Work(0, moved, op)
    macs = made * math.prod(weights) // weights[channels_at]
    if len(weights) < 4:
        return Work(macs, moved, "fully connected")
    window = "x".join(map(str, weights[2:]))
    kind = "depthwise" if weights[1] == 1 and data[0][1] > 1 else "convolution"
    return Work(macs, moved, f"{kind} {window}")


def peak_multiplications() -> float:
    """Return multiplications a second of the fastest of SHAPES as QLinearMatMul."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    best = 0.0
    for rows, summed, columns in SHAPES:
        a, b = _bytes(rows, summed), _bytes(summed, columns).view(np.int8)
        constants = {"b": b, "s": np.float32(0.01), "z": np.uint8(128), "zw": np.int8(0)}
        helper = onnx.helper
        graph = helper.make_graph(
            [helper.make_node("QLinearMatMul", ["a", "s", "z", "b", "s", "zw", "s", "z"], ["y"])],
            "peak",
            [helper.make_tensor_value_info("a", onnx.TensorProto.UINT8, [rows, summed])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [rows, columns])],
            [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        seconds = _fastest(lambda s=session, x=a: s.run(None, {"a": x}))
        best = max(best, rows * summed * columns / seconds)
    return best


def memory_rates() -> dict[int, float]:
    """Map array sizes in bytes to the bytes a second of a copy of as much, read and written."""
    rates = {}
    for size in COPIED_BYTES:
        source = np.ones(size // 16, np.float64)
        target = np.empty_like(source)
        copies = max(1, COPIED_BYTES[-1] // size // 16)

        def copy(source: Any = source, target: Any = target, copies: int = copies) -> None:
            for _ in range(copies):
                np.copyto(target, source)

        rates[size] = copies * size / _fastest(copy)
    return rates


def _bytes(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)


def _fastest(work: Any) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
