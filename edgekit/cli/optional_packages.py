"""Optional packages of the extras: a verb that needs a missing one ends with its pip line and exit code 3.

Most places that import one say so themselves, with what needs it (``errors.need_package``). This is for all
others: an import that fails anywhere below a verb.
"""

from __future__ import annotations

from edgekit.errors import MissingDependency

EXTRAS = {
    "build": "flatbuffers onnx onnx_ir onnxruntime PIL tomli",
    "native": "ziglang",
    "labels": "globox pycocotools",
    "mqtt": "paho",
    "report": "vl_convert",
    "text": "jinja2 llguidance tokenizers",
    "devices": "packaging pip",
    "browser": "segno",
    "mlflow": "alembic mlflow sqlalchemy",
    "wandb": "wandb",
    "train": "onnxscript torch",
    "catalogue": "fsspec",
    "hub": "huggingface_hub",
    "dask": "distributed",
    "ray": "ray",
    "serve": "google grpc httptools orjson starlette uvicorn uvloop websockets",
    "traces": "opentelemetry",
    "trust": "cryptography",
    "update": "securesystemslib tuf zstandard",
    "samples": "aiohttp cv2",
}
"""Extra -> modules of its packages, without the engines', which their targets import and name."""
PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "grpc": "grpcio",
    "mlflow": "mlflow-skinny",
    "opentelemetry": "opentelemetry-sdk",
    "paho": "paho-mqtt",
    "vl_convert": "vl-convert-python",
}
"""Module -> its package, if the package has another name."""


def missing_package(problem: ImportError, verb: str) -> MissingDependency | None:
    """Return the error of a failed import; None if the module is not one of an optional package.

    Args:
        verb: Words of the command that needs it, e.g. ``edgekit serve``.
    """
    module = (problem.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules.split()), None)
    if extra is None:
        return None
    package = PACKAGES.get(module, module.replace("_", "-"))
    return MissingDependency(package, verb, extra=extra)
