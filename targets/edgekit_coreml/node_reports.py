"""Node reports of ``model.mlpackage``: values as the reference executor computes them. Host side.

Its times do not apply to Apple hardware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from edgekit.target.node_reports import NodeReports, NodeValue
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_coreml.interpreter.execute import Executor
from edgekit_coreml.interpreter.program import Name, Op, find_in_package, read_package
from edgekit_coreml.package import MANIFEST
from edgekit_coreml.run import CoreMlRunner, value_bindings


def node_values(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    feeds: Mapping[str, Array],
) -> list[NodeValue]:
    """Return the outputs of each MIL operator; constants are left out.

    Raises:
        EngineError: the package is damaged, or its inputs and outputs do not match.
    """
    values: list[NodeValue] = []

    def keep(op: Op, name: str, array: Array) -> None:
        if array.dtype.kind == "f" and op.type != "const":
            operands = (operand for several in op.operands.values() for operand in several)
            read = tuple(operand.name for operand in operands if isinstance(operand, Name))
            values.append(NodeValue(op.outputs[0][0], op.type, name, read, array))

    executor = Executor(read_package(*find_in_package(files[MANIFEST])))
    input_map, out_of = (
        value_bindings(specs, options[key], key) for specs, key in ((inputs, "inputs"), (outputs, "outputs"))
    )
    run = partial(executor.run, trace=keep)
    CoreMlRunner(run, input_map, out_of, str(options["precision"]), "CPU", "Apple hardware", dict).run(feeds)
    return values


NODE_REPORTS = NodeReports(node_values=node_values)
