"""Calibration: split the samples, and observe every value of the canonical float graph on them in one
pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit._version import __version__
from edgekit.compiler.evaluate.proof import SPLIT_SAMPLES, TEST_SHARE
from edgekit.compiler.evaluate.samples import Sample, sample_digests, sample_name, subset
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.observe import observation_cache
from edgekit.compiler.quantize.observe.observers import Observation, Observer, channel_axis
from edgekit.errors import ModelError, SampleError
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array

PASS_BYTES = 288 * 2**20
"""Bytes of values observed in one pass over the samples; a larger model takes several passes. The engine's
heap grows to nearly three times as much."""

_FLOATS = {ir.DataType.FLOAT: 4, ir.DataType.FLOAT16: 2, ir.DataType.DOUBLE: 8}


@dataclass(frozen=True, eq=False)
class Split:
    """Calibration, validation and test sets. With too few samples, sets overlap: see ``shared``.

    Attributes:
        calibration: For ranges, weights and biases.
        validation: To compare candidates.
        test: Held out; reported accuracy is measured on these.
        shared: Manifest names (``choose``, ``prove``) of the sets that were not held out: both of a single
            sample, ``choose`` of fewer than four.
    """

    calibration: Sequence[Sample]
    validation: Sequence[Sample]
    test: Sequence[Sample]
    shared: tuple[str, ...]


def refuse_without_samples(samples: Sequence[Sample] | None) -> None:
    if samples is None or not len(samples):
        raise SampleError(
            "int8 needs calibration samples: add --samples (samples= in Python) with 64 to 128 typical inputs"
        )


def split(samples: Sequence[Sample]) -> Split:
    """Split samples by their content, so that neither their order nor their names matter.

    In the order of their digests every third sample goes to the test set; of the others every third goes to
    the validation set, the rest to the calibration set: 64 samples give 29, 14 and 21 for calibration,
    validation and test. Samples beyond SPLIT_SAMPLES all go to the test set. Duplicates count once. Samples
    in files are not loaded.
    """
    refuse_without_samples(samples)
    order = list(_by_digest(samples).values())
    order, further = order[:SPLIT_SAMPLES], order[SPLIT_SAMPLES:]
    test = order[1::TEST_SHARE]
    others = [index for index in order if index not in set(test)]
    validation = others[2::3]
    calibration = [index for index in others if index not in set(validation)]
    shared = tuple(name for name, part in (("choose", validation), ("prove", test)) if not part)
    return Split(
        subset(samples, calibration),
        subset(samples, validation or calibration),
        subset(samples, [*test, *further] or calibration),
        shared,
    )


def observe(
    model: ir.Model, samples: Sequence[Sample], progress: Callable[[int, int], None] | None = None
) -> dict[str, Observation]:
    """Observe every float value of a model, its inputs included, on samples in any order.

    Memory holds one sample, its values, and the observation of each value. If the values take more than
    PASS_BYTES, the model is run once for each group of them. The result is cached on disk for the same model
    and samples.

    Skipped are values that are not float, that have no elements, or that are infinite on a sample (a mask of
    -inf): they cannot be quantized.

    Args:
        model: The canonical float graph; static shapes.
        samples: Inputs by name. Duplicates count once.
        progress: Called with (done, total) after each run; not called if the result was cached.

    Returns:
        Value -> observation, inputs first, then in the order of the nodes.

    Raises:
        SampleError: there are no samples, or one holds a number that is not finite.
        ModelError: a value is not a number on some sample, or an output is infinite.
        MissingDependency: ONNX Runtime is not installed.
        EngineError: ONNX Runtime refuses the model, or a sample does not fit it.
    """
    refuse_without_samples(samples)
    order = _by_digest(samples)
    key = _key(model, list(order))
    observations = observation_cache.recall(key)
    if observations is None:
        observations = _observe(model, samples, order, progress or (lambda done, total: None))
        observation_cache.record(key, observations)
    return observations


def graph_digest(model: ir.Model) -> str:
    """sha256 (hexadecimal) of the model as it would be saved: nodes, names and weights."""
    return hashlib.sha256(save_model(model)).hexdigest()


def structure_digest(model: ir.Model) -> str:
    """sha256 (hexadecimal) of the nodes, names, types and shapes: equal after training with other data."""
    weights = [f"{name} {value.type} {value.shape}" for name, value in model.graph.initializers.items()]
    digest = hashlib.sha256("\n".join(weights).encode())
    for node in model.graph:
        digest.update(ir.serde.serialize_node(node).SerializeToString(deterministic=True))
    return digest.hexdigest()


def _observe(
    model: ir.Model,
    samples: Sequence[Sample],
    order: dict[str, int],
    progress: Callable[[int, int], None],
) -> dict[str, Observation]:
    values = {str(v.name): v for v in _float_values(model)}
    inputs = {str(v.name) for v in model.graph.inputs}
    groups = _groups(values)
    done, total = 0, len(groups) * len(order)
    observations: dict[str, Observation] = {}
    for group in groups:
        outputs = {str(v.name) for v in model.graph.outputs}
        reference = Reference(model, intermediate=[n for n in group if n not in inputs | outputs])
        observers = {name: Observer(name, channel_axis(values[name]), len(order)) for name in group}
        for digest, index in order.items():
            feeds = samples[index]
            arrays: dict[str, Array] = {**feeds, **reference.run(feeds)}
            for name in group:
                if name in observers:
                    observers[name].update(arrays.pop(name), digest)
                    if observers[name].finite is not True:
                        _refuse_if_wrong(
                            values[name], observers.pop(name).finite, sample_name(samples, index)
                        )
            done += 1
            progress(done, total)
        observations.update({name: observer.observation() for name, observer in observers.items()})
    return observations


def _float_values(model: ir.Model) -> list[ir.Value]:
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    return [v for v in values if v.name and v.dtype in _FLOATS and 0 not in (static_dims(v) or ())]


def _groups(values: dict[str, ir.Value]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    size = 0
    for name, value in values.items():
        assert value.dtype is not None
        nbytes = int(np.prod(static_dims(value) or (), dtype=np.int64)) * _FLOATS[value.dtype]
        if groups[-1] and size + nbytes > PASS_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += nbytes
    return groups


def _refuse_if_wrong(value: ir.Value, finite: bool | None, sample: str) -> None:
    """Raise an error for a value that is not finite, unless it is an infinity within the model."""
    problem = "is infinite" if finite is False else "is not a number"
    if value.is_graph_input():
        raise SampleError(f"{sample}: input {value.name} {problem} in places; leave such samples out")
    node = value.producer()
    if node is not None and (finite is None or value.is_graph_output()):
        raise ModelError(
            f"value {value.name} of node {node.name} ({node.op_type}) {problem} on {sample}: such a model "
            "cannot be calibrated; fix the model, or leave the sample out"
        )


def _by_digest(samples: Sequence[Sample]) -> dict[str, int]:
    """Map each digest to the index of a sample that has it, in the order of the digests."""
    return dict(sorted({d: i for i, d in reversed(list(enumerate(sample_digests(samples))))}.items()))


def _key(model: ir.Model, digests: Sequence[str]) -> str:
    facts = [
        str(observation_cache.FORMAT),
        __version__,
        str(onnxruntime().__version__),
        graph_digest(model),
        *digests,
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()
