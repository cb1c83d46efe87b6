"""Recognition of files that are not ONNX models, by their first bytes, with advice on getting the model."""

from __future__ import annotations

NO_ZIP = "none that PyTorch (torch.export.save, torch.jit.save, torch.save) or Keras 3 writes"
KINDS: tuple[tuple[int, bytes, str], ...] = (
    # offset, bytes there, what it is and what to do
    (0, b"EDGEKIT\0", "it is an EdgeKit bundle: edgekit inspect shows what is in it"),
    (0, b"GGUF", "it is a language model in GGUF: edgekit build takes it as it is"),
    (4, b"TFL3", "it is a TFLite model: edgekit build takes it, and edgekit model import makes ONNX of it"),
    (4, b"ORTM", "it is ONNX Runtime's own format: give the .onnx file that it was made from"),
    (0, b"PK\3\4", f"it is a zip archive, but {NO_ZIP}"),
    (0, b"\x80\2", "it is a Python pickle of something else than a model"),
    (0, b"\x89HDF", 'it is HDF5, as Keras 2 saved models: load it in Keras 3, model.save("model.keras")'),
    (
        8,
        b'{"',
        "it is safetensors, weights without a graph: give edgekit.build the module that they belong to, or of"
        " a language model the folder that it is in",
    ),
    (0, b"\x93NUMPY", "it is a numpy array: give the model, and this as --samples"),
    (0, b"version https://git-lfs", "it is a Git LFS pointer: git lfs pull fetches the model"),
    (0, b"<?xml", "it is XML, as OpenVINO writes models: give the .onnx file that it was made from"),
    (0, b"<", "it is a web page: download the file itself"),
)


def describe_format(content: bytes) -> str:
    """Return the format of a file that could not be read as ONNX, and what to do about it.

    >>> describe_format(b"version https://git-lfs.github.com/spec/v1")
    'it is a Git LFS pointer: git lfs pull fetches the model'
    """
    for offset, magic, what in KINDS:
        if content[offset : offset + len(magic)] == magic:
            return what
    return f"it is not protobuf, or it is cut short ({len(content)} bytes): export or download it again"
