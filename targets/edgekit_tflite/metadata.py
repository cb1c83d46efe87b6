"""TFLite Model Metadata as bytes: what Android Studio and MediaPipe show of a model, and prepare images by.

Schema: https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.tensor_spec import Array
from edgekit_tflite.records import Record, packed
from edgekit_tflite.schema import NUMBERS

NAME = "TFLITE_METADATA"
"""Of the model's metadata entry whose buffer holds it."""
IDENTIFIER = b"M001"
PARSER = "1.0.0"
"""The oldest reader that knows every field here."""

LABELS_OF_AXIS = 2  # AssociatedFileType
RGB, GREY = 1, 2  # ColorSpaceType


def associated_file(name: str, description: str, kind: int = 0) -> Record:
    """Return a record of a file in the zip that follows the model."""
    return Record("AssociatedFile", name=name, description=description, type=kind)


def image(colour: int, width: int, height: int) -> Record:
    """Return the content of an input that is an image, N, H, W, C."""
    size = Record("ImageSize", width=width, height=height)
    return _content(Record("ImageProperties", colorSpace=colour, defaultSize=size), "ImageProperties")


def feature() -> Record:
    """Return the content of any other input or output."""
    return _content(Record("FeatureProperties"), "FeatureProperties")


def _content(properties: Record, kind: str) -> Record:
    number = NUMBERS["ContentProperties"][kind]
    return Record("Content", contentPropertiesType=number, contentProperties=properties)


def normalization(mean: Array, std: Array) -> Record:
    """(x - mean) / std, by channel; what an integer input holds is quantized after it."""
    options = Record("NormalizationOptions", mean=mean, std=std)
    return Record(
        "ProcessUnit", optionsType=NUMBERS["ProcessUnitOptions"]["NormalizationOptions"], options=options
    )


def stats(lowest: Array, greatest: Array) -> Record:
    """Return the range of the values, by channel."""
    return Record("Stats", max=greatest, min=lowest)


def tensor(
    name: str,
    description: str,
    content: Record,
    steps: Sequence[Record] = (),
    values: Record | None = None,
    files: Sequence[Record] = (),
) -> Record:
    """Return the metadata of an input or output. ``steps`` come from ``normalization``, and ``values`` from
    ``stats``."""
    return Record(
        "TensorMetadata",
        name=name,
        description=description,
        content=content,
        processUnits=steps or None,
        stats=values,
        associatedFiles=files or None,
    )


def model(
    name: str,
    description: str,
    inputs: Sequence[Record],
    outputs: Sequence[Record],
    *,
    version: str = "",
    author: str = "",
    licence: str = "",
    files: Sequence[Record] = (),
) -> bytes:
    """Return the metadata of a file with one subgraph, with inputs and outputs in its order; "" stands for an
    unknown text."""
    root = Record(
        "ModelMetadata",
        name=name,
        description=description or None,
        version=version or None,
        subgraphMetadata=[
            Record("SubGraphMetadata", inputTensorMetadata=inputs, outputTensorMetadata=outputs)
        ],
        author=author or None,
        license=licence or None,
        associatedFiles=files or None,
        minParserVersion=PARSER,
    )
    return packed(root, IDENTIFIER)
