"""Check that the package for apps gives the outputs of the original package, with the reference executor."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.verify import compare
from edgekit.errors import UsageError
from edgekit.processing import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_coreml.interpreter.execute import Executor
from edgekit_coreml.interpreter.program import find_in_package, read_package
from edgekit_coreml.package import MANIFEST

LABEL = "classLabel"


LEAST_DB = 40.0
"""SNR between the two: pixels less the mean are rounded to float16 at other points than prepared ones."""
RUNS = 2
"""So often both run: the second time a state is not zero."""


def opened(files: Mapping[str, bytes]) -> Executor:
    """Open a package in memory, ready to run."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return Executor(read_package(*find_in_package(Path(folder) / MANIFEST)))


def refuse_other_outputs(
    plain: Mapping[str, bytes],
    edited: Mapping[str, bytes],
    options: Mapping[str, Json],
    card: Card,
    scores: str,
    outputs: Sequence[TensorSpec],
) -> None:
    """Run both on an image, or on arrays in the range of the card, and compare every output.

    Raises:
        UsageError: an output is below LEAST_DB, or the labels differ.
    """
    before, after = opened(plain), opened(edited)
    rng = np.random.default_rng(0)
    mil = {entry["name"]: entry for key in ("inputs", "outputs") for entry in options[key]}
    states: dict[str, Array] = {}
    for _ in range(RUNS):
        theirs, ours = {}, {}
        for entry in options["inputs"]:
            declared = card.inputs.get(entry["name"])
            if isinstance(declared, ImageInput):
                shape = (1, declared.channels, declared.height, declared.width)
                pixels = rng.integers(0, 256, shape).astype(np.float32)
                ours[entry["mil"]] = pixels
                array = _prepared(pixels, declared)
            elif entry["name"] in card.states:
                array = states.get(entry["name"], np.zeros(entry["shape"], np.float32))
            else:
                low, high = getattr(declared, "range", None) or (-1.0, 1.0)
                array = rng.uniform(low, high, entry["shape"])
                ours[entry["mil"]] = array.astype(after.program.inputs[entry["mil"]].dtype)
            theirs[entry["mil"]] = array.astype(entry["dtype"])
        expected, actual = before.run(theirs), after.run(ours)
        states = {name: expected[mil[output]["mil"]] for name, output in card.states.items()}
        for spec in outputs:
            if spec.name in card.states.values():
                continue
            name = mil[spec.name]["mil"]
            if spec.name == scores:
                _same_label(expected[name], actual, card)
                continue
            error = compare([expected[name]], [actual[name].reshape(expected[name].shape)], LEAST_DB)
            if not error.within_limit:
                raise UsageError(f"the package for apps differs: output {spec.name}: {error}")


def _prepared(pixels: Array, image: ImageInput) -> Array:
    """Prepare pixels, [1, C, H, W], like a session does."""
    by_channel = (1, -1, 1, 1)
    mean, std = (np.asarray(v, np.float32).reshape(by_channel) for v in (image.mean, image.std))
    result: Array = (pixels - mean) / std
    if np.dtype(image.dtype).kind in "iu":
        info = np.iinfo(image.dtype)
        result = np.clip(np.rint(result), info.min, info.max)
    return result.transpose(0, 2, 3, 1) if image.layout == "NHWC" else result


def _same_label(scores: Array, outputs: Mapping[str, Array], card: Card) -> None:
    """Check that the label has the greatest score, or one that equals it up to float16's rounding."""

    assert card.task is not None
    names = class_names(card.task.labels)
    flat = scores.ravel().astype(np.float64)
    picked = flat[names.index(str(outputs[LABEL].item()))]
    if flat.max() - picked > 0.01 * max(float(np.ptp(flat)), 1e-6):
        raise UsageError(
            f"the package for apps differs: {outputs[LABEL].item()} instead of {names[int(flat.argmax())]}"
        )


def class_names(labels: Sequence[str]) -> list[str]:
    """Make labels unique, as dictionary keys: a duplicate or empty label gets its class number.

    >>> class_names(["crane", "", "crane"])
    ['crane', '1', 'crane 2']
    """
    used: set[str] = set()
    names = []
    for number, label in enumerate(labels):
        name = f"{label} {number}".strip() if not label or label in used else label
        used.add(name)
        names.append(name)
    return names
