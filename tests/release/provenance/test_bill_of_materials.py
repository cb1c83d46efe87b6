"""The bill of materials against CycloneDX's published schema, and what it says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.release.provenance import bill_of_materials
from tests.fixtures.bundles import small_bundle
from tests.release.provenance.described import described_bundle


def described(path: Path) -> dict[str, Any]:
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    with Bundle.open(path) as bundle:
        return json.loads(json.dumps(bill_of_materials(bundle, path.name, sha256)))  # type: ignore[no-any-return]


@pytest.fixture
def bill(tmp_path: Path) -> dict[str, Any]:
    return described(described_bundle(tmp_path))


def need_valid(bill: dict[str, Any]) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    pytest.importorskip("jsonschema")
    from cyclonedx.schema import SchemaVersion

    for version in (SchemaVersion.V1_6, SchemaVersion.V1_7):
        text = json.dumps({**bill, "specVersion": version.to_version()})
        assert validation.JsonStrictValidator(version).validate_str(text) is None


def test_the_published_schemas_take_it(bill: dict[str, Any]) -> None:
    need_valid(bill)
    need_valid(json.loads(json.dumps(bill_of_materials(small_bundle(), "a", "0" * 64))))


def test_the_official_library_reads_it(bill: dict[str, Any]) -> None:
    """It links what depends on what, and refuses a reference that is there twice."""
    model = pytest.importorskip("cyclonedx.model.bom")
    found = model.Bom.from_json(bill)  # it has no model cards, and drops them
    found.validate()
    names = {component.name for component in found.components}
    assert names == {"ort-fp32", "far", "samples"}


def test_what_it_says_of_the_bundle(bill: dict[str, Any], tmp_path: Path) -> None:
    model = bill["metadata"]["component"]
    content = (tmp_path / "doubles.edgekit").read_bytes()
    assert model["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]
    assert (model["name"], model["version"], model["authors"]) == ("Doubles", "3", [{"name": "Example Lab"}])
    assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert model["modelCard"] == {
        "modelParameters": {
            "task": "embed",
            "datasets": [{"ref": "samples"}],
            "inputs": [{"format": "x: float32[1, 6]"}],
            "outputs": [{"format": "y: float32[1, 6]"}],
        },
        "considerations": {
            "performanceTradeoffs": ["ort-int8 is not in the bundle; rejected: slower than its parent"],
            "technicalLimitations": ["far: not run: its engine is not here"],
        },
    }


def test_what_it_says_of_a_variant(bill: dict[str, Any], tmp_path: Path) -> None:
    found = bill["components"][0]
    with Bundle.open(tmp_path / "doubles.edgekit") as bundle:
        digest = hashlib.sha256(bundle.read("v/model.onnx")).hexdigest()
    assert [(file["name"], file["hashes"][0]["content"]) for file in found["components"]] == [
        ("model.onnx", digest)
    ]
    told = {(m["type"], m["value"]) for m in found["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]}
    assert told == {
        ("mAP", "0.25"),
        ("mAP of the float model", "0.5"),
        ("SNR in dB", "40.5"),
        ("largest difference", "0.5"),
        ("latency p50 in ms", "1.25"),
        ("latency minimum in ms", "1.0"),
        ("loading in ms", "3.0"),
    }


def test_figures_from_devices_are_in_it(tmp_path: Path) -> None:
    device = {
        "cpu": "Cortex-A76",
        "isa": ["asimd"],
        "machine": "aarch64",
        "system": "Linux 6.6",
        "by": "edgekit",
    }
    rows = [{"threads": 4, "p50_ms": 12.5}, {"threads": 1, "p50_ms": "no number"}]
    with Bundle.open(described_bundle(tmp_path)) as bundle:
        bundle.manifest["extensions"] = {"devices": [{**device, "variants": {"ort-fp32": {"bench": rows}}}]}
        found = json.loads(json.dumps(bill_of_materials(bundle, "a", "0" * 64)))
    need_valid(found)
    metrics = found["components"][0]["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    where = "Cortex-A76 (aarch64, Linux 6.6), 4 threads"
    assert metrics[-1] == {"type": "latency p50 in ms", "value": "12.5", "slice": where}
    assert len([metric for metric in metrics if "Cortex-A76 (" in metric["slice"]]) == 1


def test_the_stages_of_a_cascade_are_in_it() -> None:
    bundle = small_bundle(entries={"stages/crop.edgekit": b"crop"})
    stage = {"entry": "stages/crop.edgekit", "digest": "cd" * 32}
    bundle.manifest["cascade"] = {"stages": [{"name": "crop"}], "bundles": {"crop": stage}}
    found = json.loads(json.dumps(bill_of_materials(bundle, "a", "0" * 64)))
    need_valid(found)
    (crop,) = (part for part in found["components"] if part["name"] == "crop")
    assert crop["hashes"][0]["content"] == hashlib.sha256(b"crop").hexdigest()


def test_a_license_of_another_name_is_told_as_it_is(tmp_path: Path) -> None:
    with Bundle.open(described_bundle(tmp_path)) as bundle:
        bundle.manifest["card"]["about"]["license"] = "Example Lab's own"
        found = bill_of_materials(bundle, "a", "0" * 64)
    assert found["metadata"]["component"]["licenses"] == [{"license": {"name": "Example Lab's own"}}]
    need_valid(json.loads(json.dumps(found)))


@pytest.mark.parametrize(("key", "value"), [("task", 3), ("timing", [1]), ("accuracy", {"y": 2})])
def test_evidence_that_no_build_writes(key: str, value: object) -> None:
    bundle = small_bundle()
    bundle.variants[0].evidence[key] = value  # type: ignore[index]
    with pytest.raises(BundleError, match="invalid evidence"):
        bill_of_materials(bundle, "a", "0" * 64)
