"""Calibration: samples are split by their content; the canonical float graph is observed in one pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit._version import __version__
from edgekit.errors import ModelError, SampleError
from edgekit.evaluate.samples import Sample, sample_digests, sample_name, subset
from edgekit.model.node_checks import static_dims
from edgekit.model.onnx_file import save_model
from edgekit.model.reference import Reference
from edgekit.quantize.observe import observation_cache
from edgekit.quantize.observe.observers import Observation, Observer, channel_axis
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensors import Array

PASS_BYTES = 512 * 2**20
"""Values of so many bytes in all are observed in one pass over the samples; a larger model takes several."""

_FLOATS = {ir.DataType.FLOAT: 4, ir.DataType.FLOAT16: 2, ir.DataType.DOUBLE: 8}


@dataclass(frozen=True, eq=False)
class Split:
    """Samples by what they may decide. Where there are too few, a part is another one's: see ``shared``.

    Attributes:
        fit: Ranges, weights and biases are fitted to these.
        choose: Decide between candidates that were fitted.
        prove: What the user is told is measured on these: no choice was made on them.
        shared: Names of the parts that were not held out: ``choose`` and ``prove`` of a single sample,
            ``choose`` of fewer than four.
    """

    fit: Sequence[Sample]
    choose: Sequence[Sample]
    prove: Sequence[Sample]
    shared: tuple[str, ...]


def refuse_without_samples(samples: Sequence[Sample] | None) -> None:
    """Quantizing needs samples of what the model will see.

    Raises:
        SampleError: there are none.
    """
    if samples is None or not len(samples):
        raise SampleError(
            "int8 is calibrated on samples, and there are none: give --samples (samples= in Python),"
            " 64 to 128 inputs like those that the model will see"
        )


def split(samples: Sequence[Sample]) -> Split:
    """Split samples by their content, so that neither their order nor their names matter.

    In the order of their digests every third sample is ``prove``; of the others every third is ``choose``,
    the rest ``fit``: of 64 samples 29 fit, 14 choose and 21 prove. A sample that is given twice counts once.
    What is in files stays there.

    Raises:
        SampleError: there are no samples.
    """
    refuse_without_samples(samples)
    order = list(_by_digest(samples).values())
    prove = order[1::3]
    others = [index for index in order if index not in set(prove)]
    choose = others[2::3]
    fit = [index for index in others if index not in set(choose)]
    shared = tuple(name for name, part in (("choose", choose), ("prove", prove)) if not part)
    return Split(subset(samples, fit), subset(samples, choose or fit), subset(samples, prove or fit), shared)


def observe(
    model: ir.Model, samples: Sequence[Sample], progress: Callable[[int, int], None] | None = None
) -> dict[str, Observation]:
    """Observe every float value of a model, its inputs included, on samples. The order of these is no matter.

    Held in memory at a time: one sample, its values, and what is remembered of each. A model whose values
    take more than PASS_BYTES is run once for each group of them. The result is remembered on the disk for
    the same model and samples.

    Left out are values that are not float, that have no elements, and those that are infinite on a sample
    (a mask of -inf): they can't be stored as integers.

    Args:
        model: The canonical float graph; static shapes.
        samples: Inputs by name. One that is given twice counts once.
        progress: Called with (done, total) after each run; never where the result was remembered.

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
    found = observation_cache.recall(key)
    if found is None:
        found = _observe(model, samples, order, progress or (lambda done, total: None))
        observation_cache.record(key, found)
    return found


def graph_digest(model: ir.Model) -> str:
    """sha256 (hexadecimal) of the model as it would be saved: nodes, names and weights."""
    return hashlib.sha256(save_model(model)).hexdigest()


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
    found: dict[str, Observation] = {}
    for group in groups:
        outputs = {str(v.name) for v in model.graph.outputs}
        reference = Reference(model, intermediate=[n for n in group if n not in inputs | outputs])
        observers = {name: Observer(name, channel_axis(values[name]), len(order)) for name in group}
        for digest, index in order.items():
            feeds = samples[index]
            arrays: dict[str, Array] = {**feeds, **reference.run(feeds)}
            for name in group:
                if name in observers:
                    observers[name].show(arrays.pop(name), digest)
                    if observers[name].finite is not True:
                        _refuse_if_wrong(
                            values[name], observers.pop(name).finite, sample_name(samples, index)
                        )
            done += 1
            progress(done, total)
        found.update({name: observer.observation() for name, observer in observers.items()})
    return found


def _float_values(model: ir.Model) -> list[ir.Value]:
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    return [v for v in values if v.name and v.dtype in _FLOATS and 0 not in (static_dims(v) or ())]


def _groups(values: dict[str, ir.Value]) -> list[list[str]]:
    """The values in order, in as few groups as PASS_BYTES allows."""
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
    """A value that is not finite: an error, unless it is an infinity inside of the model."""
    what = "is infinite" if finite is False else "is not a number"
    if value.is_graph_input():
        raise SampleError(f"{sample}: input {value.name} {what} in places; leave such samples out")
    node = value.producer()
    if node is not None and (finite is None or value.is_graph_output()):
        raise ModelError(
            f"value {value.name} of node {node.name} ({node.op_type}) {what} on {sample}: such a model"
            " can't be calibrated; run it on that sample, and mend it or leave the sample out"
        )


def _by_digest(samples: Sequence[Sample]) -> dict[str, int]:
    """Digest -> index of a sample that has it, in the order of the digests."""
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
