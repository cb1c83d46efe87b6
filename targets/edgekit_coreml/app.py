"""Package for apps that do not use our runtime: the contents of the card become part of the package.

    image input   an image (CVPixelBuffer) instead of an array; mean and std are operators, std is folded
                  into the first convolution if that alone reads the input
    labels        a classifier: classLabel and classLabel_probs
    state         the state of a recurrent model stays in Core ML between runs (iOS 18)
    arrays        float16 if the program computes in float16 (iOS 16), without casts
    metadata      author, license, version, description; how Vision must fit the image

The finished package is read back, edited with coremltools' builder and written again. Its outputs
are then compared with those of the original package, by the reference executor.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_coreml.app_check import LABEL, class_names, refuse_other_outputs
from edgekit_coreml.package import FORMAT_OF_IOS, SPECIFICATION, WEIGHTS, package_files
from edgekit_coreml.program import exclusive_program
from edgekit_coreml.rounding import rounded_kernels
from edgekit_coreml.shared_weights import main_function
from edgekit_coreml.vendor import coremltools

HALF_ARRAYS_IOS, STATE_IOS = 16, 18
"""The first with float16 arrays at the interface, and with states."""
FITS: Mapping[str, str] = {"stretch": ".scaleFill", "center-crop": ".centerCrop", "letterbox": ".scaleFit"}
"""A card's resize -> VNImageCropAndScaleOption of Apple's Vision."""


def app_files(
    files: Mapping[str, bytes], options: Mapping[str, Json], card: Card, outputs: Sequence[TensorSpec]
) -> dict[str, bytes]:
    """Return the files of the package with the card's contents in it.

    Raises:
        UsageError: the card needs a feature that this iOS lacks, or the outputs of the result differ.
        MissingDependency: coremltools is not installed.
    """
    with exclusive_program():
        program, spec = _loaded(files)
        ios = {version: n for n, version in FORMAT_OF_IOS.items()}[spec.specificationVersion]
        function = program.functions["main"]
        ins, outs = ({entry["name"]: entry for entry in options[key]} for key in ("inputs", "outputs"))
        fp16 = options["precision"] != "fp32" and ios >= HALF_ARRAYS_IOS
        scores = _scores(card)
        with function:
            _edit(function, card, ins, outs, scores, fp16, ios)
        _clean(program)
        edited = package_files(
            program,
            spec.specificationVersion,
            dict(spec.description.metadata.userDefined),
            classifier=_classifier(card, outs[scores]["mil"]) if scores else None,
            describe=lambda written: _describe(written, card, ins),
        )
    refuse_other_outputs(files, edited, options, card, scores, outputs)
    return edited


def _edit(
    function: Any,
    card: Card,
    inputs: Mapping[str, Json],
    outputs: Mapping[str, Json],
    scores: str,
    fp16: bool,
    ios: int,
) -> None:
    by_mil = {entry["mil"]: name for name, entry in outputs.items()}
    variables = {by_mil[str(var.name)]: var for var in function.outputs}
    for name, entry in inputs.items():
        declared = card.inputs.get(name)
        if name in card.states:
            _as_state(function, entry["mil"], variables.pop(card.states[name]), ios)
        elif isinstance(declared, ImageInput):
            _as_image(function, entry["mil"], declared)
        elif fp16:
            _fp16_input(function, entry["mil"])
    ready = {name: _inner(var) if fp16 and name != scores else var for name, var in variables.items()}
    if scores:
        ready[scores] = _probabilities(_inner(variables[scores]), card)
    _set_outputs(function, {outputs[name]["mil"]: var for name, var in ready.items()})


def _loaded(files: Mapping[str, bytes]) -> tuple[Any, Any]:
    tools = coremltools()
    from coremltools.converters.mil.frontend.milproto.load import load

    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        (Path(folder) / "weight.bin").write_bytes(files.get(WEIGHTS, b""))
        spec = tools.proto.Model_pb2.Model()
        spec.ParseFromString(files[SPECIFICATION])
        main_function(spec)
        return load(spec, spec.specificationVersion, folder), spec


def _put(function: Any, name: str, placeholder: Any) -> Any:
    placeholder.set_name(name)
    function.placeholder_inputs[name] = placeholder
    function.inputs[name] = placeholder.outputs[0]
    return placeholder.outputs[0]


def _read(var: Any) -> tuple[list[Any], bool]:
    """Return what is read of an input, and whether all readers are casts to float16 (then their outputs)."""
    from coremltools.converters.mil.mil import types

    casts = [op for op in var.child_ops if op.op_type == "cast" and op.outputs[0].dtype == types.fp16]
    whole = bool(casts) and len(casts) == len(var.child_ops)
    return ([op.outputs[0] for op in casts], True) if whole else ([var], False)


def _replace(function: Any, old: Sequence[Any], new: Any) -> None:
    for var in old:
        function.replace_uses_of_var_after_op(anchor_op=None, old_var=var, new_var=new)


def _inner(var: Any) -> Any:
    """Return the float16 value that is cast to float32 for the interface, or the value itself."""
    from coremltools.converters.mil.mil import types

    if var.op is not None and var.op.op_type == "cast" and var.op.x.dtype == types.fp16 and var.op.x.op:
        return var.op.x
    return var


def _as_image(function: Any, name: str, image: ImageInput) -> None:
    """Turn the input into an image of 0 to 255; operators do the steps of ``prepare`` after resizing."""
    tools = coremltools()
    from coremltools.converters.mil.mil import Builder, types

    old = function.inputs[name]
    inner, fp16 = _read(old)
    size = (1, image.channels, image.height, image.width)
    dtype = np.float16 if fp16 else np.float32
    folded = _fold_std(function, inner, image)
    var = _put(function, name, Builder.placeholder(size, dtype=types.fp32))
    by_channel = (1, -1, 1, 1)
    with Builder.set_before_op(function.operations[0]):
        if fp16:
            var = Builder.cast(x=var, dtype="fp16", name=f"{name}__half")
        if any(image.mean):
            mean = np.asarray(image.mean, dtype).reshape(by_channel)
            var = Builder.sub(x=var, y=mean, name=f"{name}__less_mean")
        if not folded and any(std != 1 for std in image.std):
            factor = (1 / np.asarray(image.std, np.float64)).astype(dtype).reshape(by_channel)
            var = Builder.mul(x=var, y=factor, name=f"{name}__by_std")
        if old.dtype == types.int32:
            info = np.iinfo(image.dtype)
            var = Builder.round(x=var, name=f"{name}__whole")
            var = Builder.clip(x=var, alpha=float(info.min), beta=float(info.max), name=f"{name}__within")
            var = Builder.cast(x=var, dtype="int32", name=f"{name}__int")
        if image.layout == "NHWC":
            var = Builder.transpose(x=var, perm=[0, 2, 3, 1], name=f"{name}__last")
    _replace(function, inner, var)
    colours = {"RGB": "RGB", "BGR": "BGR", "GREY": "GRAYSCALE"}
    layout = getattr(tools.colorlayout, colours[image.colour])
    function.input_types = [tools.ImageType(name=name, shape=size, color_layout=layout, channel_first=True)]


def _fold_std(function: Any, inner: Sequence[Any], image: ImageInput) -> bool:
    """Divide the first convolution's weights by std instead of the image, which saves one operator."""
    from coremltools.converters.mil.mil import Builder

    readers = [op for var in inner for op in var.child_ops]
    if image.layout != "NCHW" or all(std == 1 for std in image.std) or not readers:
        return False
    for op in readers:
        plain = op.op_type == "conv" and op.weight.op.op_type == "const" and len(op.weight.child_ops) == 1
        if not plain or op.groups.val != 1:
            return False
    for op in readers:
        weight = op.weight.val
        exact = weight.astype(np.float32) / np.asarray(image.std, np.float32).reshape(1, -1, 1, 1)
        scaled: Array = rounded_kernels(exact) if weight.dtype == np.float16 else exact
        with Builder.set_before_op(op):
            const = Builder.const(val=scaled, name=f"{op.weight.name}__by_std")
        _replace(function, [op.weight], const)
    return True


def _as_state(function: Any, name: str, result: Any, ios: int) -> None:
    from coremltools.converters.mil.mil import Builder, types

    if ios < STATE_IOS:
        raise UsageError(f"state {name} needs iOS {STATE_IOS}, but the package is for iOS {ios}")
    old = function.inputs[name]
    if old.dtype != types.fp32:
        raise UsageError(f"state {name} is not a float array, and Core ML supports float16 states only")
    inner, fp16 = _read(old)
    state = _put(function, name, Builder.state_tensor_placeholder(old.shape, dtype=types.fp16))
    with Builder.set_before_op(function.operations[0]):
        var = Builder.read_state(input=state, name=f"{name}__read")
        var = var if fp16 else Builder.cast(x=var, dtype="fp32", name=f"{name}__wide")
    _replace(function, inner, var)
    value = _inner(result)
    if value.dtype != types.fp16:
        value = Builder.cast(x=value, dtype="fp16", name=f"{name}__narrow")
    Builder.coreml_update_state(state=state, value=value, name=f"{name}__written")


def _fp16_input(function: Any, name: str) -> None:
    from coremltools.converters.mil.mil import Builder, types

    inner, fp16 = _read(function.inputs[name])
    if fp16:
        shape = function.inputs[name].shape
        _replace(function, inner, _put(function, name, Builder.placeholder(shape, dtype=types.fp16)))


def _set_outputs(function: Any, named: Mapping[str, Any]) -> None:
    from coremltools.converters.mil.mil import Builder

    for name, var in named.items():
        for other in [*function.outputs, *(o for op in function.operations for o in op.outputs)]:
            if other.name == name and other is not var:
                other.name = f"{name}__inner"
    outputs: list[Any] = []
    for name, var in named.items():
        output = Builder.identity(x=var, name=f"{name}__out") if any(var is k for k in outputs) else var
        output.name = name
        outputs.append(output)
    function.set_outputs(outputs)


def _scores(card: Card) -> str:
    task = card.task
    return task.outputs["scores"] if task and task.kind == "classify" and task.labels else ""


def _probabilities(scores: Any, card: Card) -> Any:
    from coremltools.converters.mil.mil import Builder, types

    assert card.task is not None
    decode = card.task.options
    if scores.dtype == types.int32:
        scores = Builder.cast(x=scores, dtype="fp32", name=f"{LABEL}__real")
    if decode.zero_point:
        scores = Builder.sub(x=scores, y=_like(scores, decode.zero_point), name=f"{LABEL}__less_zero")
    if decode.scale != 1:
        scores = Builder.mul(x=scores, y=_like(scores, decode.scale), name=f"{LABEL}__by_scale")
    if card.task.decode == "logits":
        scores = Builder.softmax(x=scores, axis=-1, name=f"{LABEL}__softmax")
    return scores


def _like(var: Any, number: float) -> Any:
    from coremltools.converters.mil.mil import types

    return np.asarray(number, np.float16 if var.dtype == types.fp16 else np.float32)[()]


def _classifier(card: Card, mil: str) -> Any:
    assert card.task is not None
    names = class_names(card.task.labels)
    return coremltools().ClassifierConfig(
        names, predicted_feature_name=LABEL, predicted_probabilities_output=mil
    )


def _describe(spec: Any, card: Card, inputs: Mapping[str, Json]) -> None:
    about = spec.description.metadata
    about.shortDescription = card.about.get("description", card.title)
    about.author, about.license = card.about.get("author", ""), card.about.get("license", "")
    about.versionString = card.about.get("version", "")
    declared = {inputs[name]["mil"]: entry for name, entry in card.inputs.items()}
    for feature in spec.description.input:
        entry = declared.get(feature.name)
        if isinstance(entry, ImageInput):
            feature.shortDescription = _fitting_text(entry)


def _fitting_text(image: ImageInput) -> str:
    size = f"{image.width} x {image.height} pixels"
    exact = image.resize == "stretch" or (image.resize == "center-crop" and image.crop == 1)
    if exact or (image.resize == "letterbox" and image.place == "center" and image.pad == 0):
        return f"{size}; with Vision: imageCropAndScaleOption = {FITS[image.resize]}"
    if image.resize == "center-crop":
        return f"{size}; the middle, {image.crop:g} of the largest part of these proportions"
    if image.resize == "resize-crop":
        return f"{size}; the middle of the picture scaled to a shorter side of {image.shorter_side} pixels"
    return f"{size}; the whole picture, at its proportions, {image.place}; the rest is {image.pad}"


def _clean(program: Any) -> None:
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    for name in ("common::cast_optimization", "common::dead_code_elimination"):
        PASS_REGISTRY[name](program)
