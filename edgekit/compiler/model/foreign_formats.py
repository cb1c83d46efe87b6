"""Recognition of files that are not ONNX models, by their first bytes, with advice on getting the model."""

from __future__ import annotations

NO_ZIP = "not one written by PyTorch (torch.export.save, torch.jit.save, torch.save) or Keras 3"
KINDS: tuple[tuple[int, bytes, str], ...] = (
    # offset, bytes there, what it is and what to do
    (0, b"EDGEKIT\0", "it is an EdgeKit bundle: edgekit inspect shows what is in it"),
    (0, b"GGUF", "it is a language model in GGUF: pass it to edgekit build as it is"),
    (
        4,
        b"TFL3",
        ("it is a TFLite model: pass it to edgekit build, or convert it to ONNX with edgekit model import"),
    ),
    (4, b"ORTM", "it is in ONNX Runtime's own format (.ort): pass the .onnx file it was made from"),
    (0, b"PK\3\4", f"it is a zip archive, but {NO_ZIP}"),
    (0, b"\x80\2", "it is a Python pickle that does not contain a model"),
    (
        0,
        b"\x89HDF",
        'it is HDF5, the format of Keras 2: load it in Keras 3 and call model.save("model.keras")',
    ),
    (
        8,
        b'{"',
        "it is safetensors, which has weights but no graph: pass the module to edgekit.build, or the "
        "model's folder if it is a language model",
    ),
    (0, b"\x93NUMPY", "it is a NumPy array: pass the model here, and this file as --samples"),
    (0, b"version https://git-lfs", "it is a Git LFS pointer: run git lfs pull to fetch the model"),
    (0, b"<?xml", "it is XML, probably an OpenVINO model: pass the .onnx file it was made from"),
    (0, b"<", "it is a web page: download the model file itself"),
)
TEXT = frozenset(b"\t\n\r") | frozenset(range(32, 127))
TEXT_BYTES = 4096
"""Bytes at the start of a file by which text is recognized."""


def describe_format(content: bytes) -> str:
    """Return the format of a file that could not be read as ONNX, and what to do about it.

    >>> describe_format(b"version https://git-lfs.github.com/spec/v1")
    'it is a Git LFS pointer: run git lfs pull to fetch the model'
    """
    for offset, magic, what in KINDS:
        if content[offset : offset + len(magic)] == magic:
            return what
    if content and all(byte in TEXT for byte in content[:TEXT_BYTES]):
        return "it is a text file: pass the file of the model"
    return f"it is not valid protobuf, or it is truncated ({len(content)} bytes): export or download it again"
