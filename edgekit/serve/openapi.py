"""The server's HTTP interface as OpenAPI 3.1.

Source of the shapes: github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md.
"""

from __future__ import annotations

from typing import Any

from edgekit._version import __version__
from edgekit.runtime.remote.inference_protocol import DATATYPES

OBJECT: dict[str, Any] = {"type": "object"}
TEXT: dict[str, Any] = {"type": "string"}
FLAG: dict[str, Any] = {"type": "boolean"}
SHAPE: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": -1}}
DATATYPE: dict[str, Any] = {"type": "string", "enum": list(DATATYPES.values())}
DATA: dict[str, Any] = {"type": "array"}


def _fields(required: str, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return schema | ({"required": required.split()} if required else {})


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


SCHEMAS: dict[str, Any] = {
    "Error": _fields("error", error=TEXT),
    "Live": _fields("live", live=FLAG),
    "Ready": _fields("ready", ready=FLAG),
    "ModelReady": _fields("name ready", name=TEXT, ready=FLAG),
    "Server": _fields(
        "name version extensions", name=TEXT, version=TEXT, extensions={"type": "array", "items": TEXT}
    ),
    "Tensor": _fields("name datatype shape", name=TEXT, datatype=DATATYPE, shape=SHAPE),
    "Model": _fields(
        "name platform inputs outputs",
        name=TEXT, versions={"type": "array", "items": TEXT}, platform=TEXT, inputs=_list("Tensor"),
        outputs=_list("Tensor"), parameters=OBJECT,
    ),
    "Config": _fields(
        "name platform max_batch_size input output",
        name=TEXT, platform=TEXT, max_batch_size={"type": "integer"}, input={"type": "array"},
        output={"type": "array"},
    ),
    "Outcome": _fields("value", value={"type": ["number", "boolean"]}),
    "Outcomes": _fields("model current versions", model=TEXT, current=TEXT, versions={"type": "array"}),
    "Statistics": _fields("model_stats", model_stats={"type": "array"}),
    "RequestInput": _fields(
        "name shape datatype", name=TEXT, shape=SHAPE, datatype=DATATYPE, parameters=OBJECT, data=DATA
    ),
    "RequestOutput": _fields("name", name=TEXT, parameters=OBJECT),
    "InferenceRequest": _fields(
        "inputs", id=TEXT, parameters=OBJECT, inputs=_list("RequestInput"), outputs=_list("RequestOutput")
    ),
    "ResponseOutput": _fields(
        "name shape datatype", name=TEXT, shape=SHAPE, datatype=DATATYPE, parameters=OBJECT, data=DATA
    ),
    "InferenceResponse": _fields(
        "model_name outputs", model_name=TEXT, model_version=TEXT, id=TEXT, parameters=OBJECT,
        outputs=_list("ResponseOutput"),
    ),
    "Prediction": _fields(
        "model_name model_version prediction", model_name=TEXT, model_version=TEXT, prediction={}
    ),
    "Index": {
        "type": "array",
        "items": _fields("name version state reason", name=TEXT, version=TEXT, state=TEXT, reason=TEXT),
    },
    "Empty": OBJECT,
    "Small": _fields("", parameters=OBJECT, ready=FLAG),
}  # fmt: skip
ABOUT: dict[tuple[str, str], tuple[str, str | None, str]] = {
    ("GET", "/"): ("A page to try a model", None, "page"),
    ("GET", "/v2/health/live"): ("Whether the server runs", None, "Live"),
    ("GET", "/v2/health/ready"): ("Whether it answers", None, "Ready"),
    ("GET", "/v2"): ("The server", None, "Server"),
    ("GET", "/v2/openapi.json"): ("This document", None, "Empty"),
    ("POST", "/v2/repository/index"): ("All models that are known", "Small", "Index"),
    ("POST", "/v2/repository/models/{model}/load"): ("Load a version", "Small", "Empty"),
    ("POST", "/v2/repository/models/{model}/unload"): ("Unload a model", "Small", "Empty"),
    ("GET", "/v2/models/{model}"): ("A model", None, "Model"),
    ("GET", "/v2/models/{model}/ready"): ("Whether a model answers", None, "ModelReady"),
    ("GET", "/v2/models/{model}/config"): ("A model's configuration, as Triton's", None, "Config"),
    ("GET", "/v2/models/{model}/stats"): ("A model's counts and times, as Triton's", None, "Statistics"),
    ("GET", "/v2/models/stats"): ("The counts and times of all models", None, "Statistics"),
    ("POST", "/v2/models/{model}/infer"): ("Outputs for arrays", "InferenceRequest", "InferenceResponse"),
    ("POST", "/v2/models/{model}/predict"): ("The prediction for a picture", "picture", "Prediction"),
    ("POST", "/v2/models/{model}/outcomes"): ("Report how good a prediction was", "Outcome", "Empty"),
    ("GET", "/v2/models/{model}/outcomes"): ("Outcomes by version", None, "Outcomes"),
    ("GET", "/v2/models/{model}/events"): ("Predictions as they are made", None, "events"),
    ("GET", "/metrics"): ("Metrics for Prometheus", None, "text"),
}
"""Method and path -> what it is, the body, the answer. Paths of a model have a form with a version too."""


def document() -> dict[str, Any]:
    """Return the complete OpenAPI description."""
    paths: dict[str, Any] = {}
    for (method, path), (about, body, answer) in ABOUT.items():
        forms = [path]
        if path.startswith("/v2/models/{model}") and not path.endswith("/events"):
            forms.append(path.replace("{model}", "{model}/versions/{version}"))
        for form in forms:
            paths.setdefault(form, {})[method.lower()] = _operation(form, about, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {"title": "EdgeKit, Open Inference Protocol v2", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(path: str, about: str, body: str | None, answer: str) -> dict[str, Any]:
    texts = {"events": "text/event-stream", "page": "text/html", "text": "text/plain"}
    media = texts.get(answer, "application/json")
    schema = TEXT if answer in texts else _ref(answer)
    error = {"description": "What is wrong", "content": {"application/json": {"schema": _ref("Error")}}}
    operation: dict[str, Any] = {
        "summary": about,
        "responses": {
            "200": {"description": about, "content": {media: {"schema": schema}}},
            "default": error,
        },
    }
    if body == "picture":
        operation["requestBody"] = {"required": True, "content": {"image/*": {}}}
    elif body is not None:
        content = {"application/json": {"schema": _ref(body)}}
        if body == "InferenceRequest":
            content["application/octet-stream"] = {}
        operation["requestBody"] = {"required": body != "Small", "content": content}
    names = [name for name in ("model", "version") if f"{{{name}}}" in path]
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": TEXT} for name in names
        ]
    return operation
