"""Files of a detector for NVIDIA DeepStream's Gst-nvinfer, whose own parser reads the boxes.

    model.onnx         the variant in float32 with Q/DQ pairs, and the boxes decoded (deepstream_graph)
    config_infer.txt   Gst-nvinfer's configuration, from the card
    labels.txt         names of the classes
    calibration.txt    int8 only: nvinfer takes int8 only with such a file, and TensorRT ignores it for Q/DQ

https://docs.nvidia.com/metropolis/deepstream/dev-guide/text/DS_plugin_gst-nvinfer.html; the sources of
DeepStream 6.3 where that is silent. Nothing here was run on DeepStream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgekit.compiler.lowering.opset_downgrade import with_opset
from edgekit.compiler.model.onnx_file import open_bytes, save_model, signature
from edgekit.diagnostics import cannot_run, errors
from edgekit.errors import UsageError
from edgekit.processing import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Json
from edgekit_tensorrt.compile import OPSETS
from edgekit_tensorrt.deepstream_graph import DECODERS, OUTPUTS, with_parser_outputs
from edgekit_tensorrt.rules import broken_rules
from edgekit_tensorrt.run import MODEL_FILE

CONFIG_FILE, LABELS_FILE, CALIBRATION_FILE = "config_infer.txt", "labels.txt", "calibration.txt"
MODES: Mapping[str, int] = {"fp32": 0, "int8": 1, "fp16": 2}
"""Precision -> ``network-mode``. With int8, the rest computes in float32."""
COLOURS: Mapping[str, int] = {"RGB": 0, "BGR": 1, "GREY": 2}
CALIBRATION = b"TRT-8601-EntropyCalibration2\n"
LIBRARY = "/opt/nvidia/deepstream/deepstream/lib/libnvds_infercustomparser.so"
NMS, NO_NMS = 2, 4
"""``cluster-mode``."""
SERVE = "edgekit.Session or edgekit export -o run it outside of nvinfer"


def deepstream_files(
    files: Mapping[str, bytes], options: Mapping[str, Json], card: Card, title: str
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files by name, and notes for people.

    Args:
        title: Model and variant, for a comment.

    Raises:
        UsageError: nvinfer can't do what the card says, or TensorRT can't build the graph.
        ModelError: the variant's file is not a model.
    """
    precision = str(options["precision"])
    if precision not in MODES:
        raise UsageError(f"nvinfer has no mode for {precision}; export an fp32, fp16 or int8 variant")
    image = _expressible(card)
    model = open_bytes(files[MODEL_FILE], MODEL_FILE)
    inputs, outputs = signature(model)
    fed = {spec.name: spec for spec in inputs if spec.name not in card.constants()}
    if list(fed) != [image.name] or fed[image.name].shape != image.shape:
        shapes = ", ".join(f"{name} {list(spec.shape)}" for name, spec in fed.items())
        raise UsageError(
            f"the variant's inputs are {shapes}, but nvinfer feeds {list(image.shape)}, as the card says; "
            "export a variant of that one size (edgekit build --shape)"
        )
    assert card.task is not None
    ranks = {spec.name: len(spec.shape) for spec in outputs}
    lacking = [name for name in card.task.outputs.values() if ranks.get(name, 0) < 3]
    if lacking:
        raise UsageError(f"the model has no output {lacking[0]} of 3 dimensions, which the card decodes")
    with_parser_outputs(model, card, image)
    model = open_bytes(save_model(model), MODEL_FILE)  # infers the shapes, and checks them
    older = next((older for opset in OPSETS if (older := with_opset(model, opset)) is not None), None)
    found = errors(broken_rules(older or model, "deepstream"))
    if found:
        raise cannot_run("deepstream", found)
    if older is None:
        raise UsageError(f"{title} has a node that no opset of {OPSETS} has; {SERVE}")
    names = [" ".join(label.replace(";", ",").split()) for label in card.task.labels]
    written = {
        MODEL_FILE: save_model(older),
        CONFIG_FILE: _config(card, image, precision, title).encode("ascii"),
        # nvinfer skips empty lines, which would give the others another number
        LABELS_FILE: "".join(f"{name or f'class {n}'}\n" for n, name in enumerate(names)).encode(),
    }
    if precision == "int8":
        written[CALIBRATION_FILE] = CALIBRATION
    return written, list(_notes(image))


def _expressible(card: Card) -> ImageInput:
    """Return the card's image if nvinfer can prepare it and decode the outputs.

    Raises:
        UsageError: it can't.
    """
    task, sources = card.task, card.fed_inputs()
    if task is None or task.kind != "detect" or task.decode not in DECODERS:
        found = "no task" if task is None else f"{task.kind}, decoded as {task.decode}"
        raise UsageError(
            f"DeepStream's parser reads boxes, decoded here from {', '.join(DECODERS)}; the card has {found}"
            f": {SERVE}"
        )
    if len(sources) != 1 or not isinstance(image := sources[0], ImageInput) or card.states:
        raise UsageError(f"nvinfer feeds one image, but the card has other inputs too: {SERVE}")
    if not task.labels:
        raise UsageError("the card has no labels, of which nvinfer needs the number; add task.labels")
    if getattr(task.options, "class_agnostic", False):
        raise UsageError("nvinfer's NMS is by class; build with class_agnostic = false, and evaluate it")
    if image.resize not in ("stretch", "letterbox"):
        raise UsageError(
            f"nvinfer scales whole frames, but the card's resize is {image.resize!r}; build with 'stretch' "
            "or 'letterbox', and evaluate it"
        )
    if image.dtype != "float32":
        raise UsageError(f"nvinfer feeds float32, but the input is {image.dtype}; export a float32 model")
    return image


def _notes(image: ImageInput) -> Iterator[str]:
    if image.resize == "letterbox" and image.pad:
        yield f"nvinfer pads with black instead of {image.pad}; evaluate a build with pad = 0 in the card"
    if image.antialias or image.interpolation != "linear":
        yield "nvinfer scales by bilinear interpolation, without the card's antialias or cubic filter"


def _config(card: Card, image: ImageInput, precision: str, title: str) -> str:
    """Return the configuration; paths are relative to its folder."""
    assert card.task is not None
    options = card.task.options
    iou = getattr(options, "iou", None)
    factor = 1 / image.std[0] if len(set(image.std)) == 1 else 1  # else the graph divides
    notes = "".join(f"\n# {note}" for note in _notes(image))
    calibration = f"\nint8-calib-file={CALIBRATION_FILE}" if precision == "int8" else ""
    # Without crop-objects, boxes that reach over the frame's lower edge, into the padding, are dropped.
    return f"""\
# Gst-nvinfer for {title}, written by EdgeKit; not run on DeepStream.{notes}
[property]
gie-unique-id=1
process-mode=1
network-type=0
onnx-file={MODEL_FILE}
model-engine-file={MODEL_FILE}_b1_gpu0_{precision}.engine
network-mode={MODES[precision]}{calibration}
batch-size=1
infer-dims={image.channels};{image.height};{image.width}
model-color-format={COLOURS[image.colour]}
net-scale-factor={factor!r}
offsets={";".join(map(repr, image.mean))}
maintain-aspect-ratio={int(image.resize == "letterbox")}
symmetric-padding={int(image.place == "center")}
scaling-filter=1
labelfile-path={LABELS_FILE}
num-detected-classes={len(card.task.labels)}
output-blob-names={";".join(OUTPUTS)}
parse-bbox-func-name=NvDsInferParseCustomTfSSD
custom-lib-path={LIBRARY}
cluster-mode={NO_NMS if iou is None else NMS}
crop-objects-to-roi-boundary=1

[class-attrs-all]
pre-cluster-threshold={options.score}
nms-iou-threshold={1 if iou is None else iou}
topk={options.top}
"""
