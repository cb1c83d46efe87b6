"""Where float16 loses a network: what rounding costs up to each value, and what a target's simulator has.

    python tests/benchmarks/bench_float16_loss.py yolox_nano.onnx photographs.npz VALUE ... [-t rk3588]

The .npz holds one array for each input. For each VALUE, a name of the model, the network up to it runs in
float32; with weights and what is stored (outputs of Mul, Add, Concat) rounded to float16, sums in float32;
with biases rounded too; with every value rounded; and on the target.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.passes import run_passes
from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.target import registry
from edgekit.target.installed_profiles import find_profile, profile_names
from edgekit.tensor_spec import Array

STORED = ("Mul", "Add", "Concat")
EVERY = (*STORED, "Conv", "Sigmoid", "MaxPool", "Resize")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("sample", type=Path)
    parser.add_argument("values", nargs="+")
    parser.add_argument("-t", "--target")
    given = parser.parse_args()
    model = open_model(given.model, {})
    run_passes(model)
    with np.load(given.sample) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    print("| up to | biases in float32 | in float16 | every value | target |\n|---|---|---|---|---|")
    for name in given.values:
        part = _up_to(model, name)
        wanted = _last(Reference(part).run(feeds))
        forms = [
            _rounded(part, False, STORED),
            _rounded(part, True, STORED),
            _rounded(part, True, EVERY),
        ]
        found = [_last(Reference(form).run(feeds)) for form in forms]
        cells = [f"{_snr(wanted, each):.1f}" for each in found]
        if given.target:
            cells.append(f"{_snr(wanted, _on_target(part, given.target, feeds)):.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _up_to(model: ir.Model, name: str) -> ir.Model:
    part = model.clone()
    value = next(value for node in part.graph for value in node.outputs if value.name == name)
    part.graph.outputs[:] = [value]
    remove_dead_code(part)
    return part


def _rounded(model: ir.Model, biases: bool, ops: Collection[str]) -> ir.Model:
    """A copy whose weights, and biases, are numbers of float16, and so are the outputs of these operators."""
    copy = model.clone()
    for value in copy.graph.initializers.values():
        array = array_of(value)
        if array is not None and array.dtype == np.float32 and (array.ndim > 1 or biases):
            value.const_value = ir.tensor(array.astype(np.float16).astype(np.float32))
    for node in list(copy.graph):
        if node.op_type not in ops or node.outputs[0].is_graph_output():
            continue
        value = node.outputs[0]
        half = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16}, name=f"{value.name}/half")
        wide = ir.node("Cast", [half.outputs[0]], {"to": ir.DataType.FLOAT}, name=f"{value.name}/wide")
        half.outputs[0].type, wide.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16), value.type
        half.outputs[0].shape = wide.outputs[0].shape = value.shape
        half.outputs[0].name, wide.outputs[0].name = str(half.name), str(wide.name)
        value.replace_all_uses_with(wide.outputs[0])
        half.replace_input_with(0, value)
        copy.graph.insert_after(node, [half, wide])
    return copy


def _on_target(model: ir.Model, target: str, feeds: dict[str, Array]) -> Array:
    profile = find_profile(target)
    compiler = registry.compiler(profile_names()[target])
    artifact = compiler.compile_model(model, profile, "fp32")
    engine = compiler.TARGET.reference_executor or registry.engine(profile_names()[target])
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(artifact, Path(folder))
        runner = engine.open_runner(files, *signature(model), artifact.options, 1)
        try:
            return _last(runner.run(feeds))
        finally:
            runner.close()


def _last(outputs: dict[str, Array]) -> Array:
    return next(iter(outputs.values())).astype(np.float64)


def _snr(wanted: Array, got: Array) -> float:
    return float(20 * np.log10(np.linalg.norm(wanted) / np.linalg.norm(wanted - got)))


if __name__ == "__main__":
    main()
