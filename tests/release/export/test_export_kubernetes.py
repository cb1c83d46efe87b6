"""Manifests, held to the published schemas where they are: KServe's and Knative's definitions of resources.

EDGEKIT_CRDS is a folder with ``serving.kserve.io_inferenceservices.yaml`` (kserve/kserve, config/crd/full)
and ``service.yaml`` (knative/serving, config/core/300-resources).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle.bundle import Bundle
from edgekit.release.export.export_kubernetes import manifests, requests_at_once, service_name
from tests.fixtures.bundles import small_bundle, variant

SCHEMAS = {
    "InferenceService": "serving.kserve.io_inferenceservices.yaml",
    "Service": "service.yaml",
}


def bundle(p50_ms: float | None, file: str = "My_Detector.v2.onnx") -> Bundle:
    made = small_bundle([variant("ort-fp32", "ort", p50_ms=p50_ms)])
    entries = {entry["name"]: bytes(made.read(entry["name"])) for entry in made.manifest["entries"]}
    return Bundle.create({**made.manifest, "source": {**made.manifest["source"], "file": file}}, entries)


def documents(text: str) -> list[Any]:
    return [json.loads(part) for part in text.split("---\n")[1:]]


def test_both_serve_the_bundle_with_a_token() -> None:
    text = manifests(bundle(10.0), "s3://models/d.edgekit", "example/edgekit:1")
    assert "# kubectl create secret generic my-detector-token --from-file=token" in text
    kserve, knative = documents(text)
    predictor = kserve["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["scaleTarget"]) == (0, 50)
    (container,) = predictor["containers"]
    assert container["command"] + container["args"] == [
        "edgekit", "serve", "my-detector=/mnt/models/d.edgekit", "--listen", "0.0.0.0:8080", "--token-file",
        "/var/run/edgekit/token", "--deadline-ms", "1000",
    ]  # fmt: skip
    assert container["env"] == [{"name": "STORAGE_URI", "value": "s3://models/d.edgekit"}]
    template = knative["spec"]["template"]
    assert template["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"] == "0"
    assert template["metadata"]["annotations"]["autoscaling.knative.dev/target"] == "50"
    (container,) = template["spec"]["containers"]
    assert container["args"][1:4] == ["sh", "s3://models/d.edgekit", "/tmp/my-detector.edgekit"]


@pytest.mark.parametrize(("p50_ms", "target"), [(0.1, 64), (100.0, 5), (2000.0, 1), (None, 1)])
def test_a_replica_gets_what_it_answers_in_half_of_the_deadline(p50_ms: float | None, target: int) -> None:
    assert requests_at_once(bundle(p50_ms)) == target


@pytest.mark.parametrize(
    ("file", "name"), [("a/B c.onnx", "b-c"), ("___.onnx", "model"), ("x" * 80 + ".onnx", "x" * 52)]
)
def test_a_name_is_one_of_rfc_1123(file: str, name: str) -> None:
    assert service_name(bundle(1.0, file)) == name


@pytest.mark.parametrize("number", [0, 1])
def test_the_published_schema_takes_it(number: int) -> None:
    crds = os.environ.get("EDGEKIT_CRDS")
    if crds is None:
        pytest.skip("no definitions of KServe's and Knative's resources (set EDGEKIT_CRDS)")
    yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
    found = documents(manifests(bundle(10.0), "s3://models/d.edgekit", "example/edgekit:1"))[number]
    definition = yaml.safe_load(Path(crds, SCHEMAS[found["kind"]]).read_text("utf-8"))
    version = found["apiVersion"].rpartition("/")[2]
    (schema,) = (
        each["schema"]["openAPIV3Schema"]
        for each in definition["spec"]["versions"]
        if each["name"] == version
    )
    jsonschema.validate(found, closed(schema))


def closed(schema: Any) -> Any:
    """A schema that refuses unknown fields, which a cluster would drop."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {key: closed(value) for key, value in schema.items() if key != "pattern"}
    fields = schema.get("properties")
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and isinstance(fields, dict) and not open_ended:
        found["additionalProperties"] = False
    return found
