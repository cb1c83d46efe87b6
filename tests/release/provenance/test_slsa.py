"""The statement against in-toto's own protocol buffers, which refuse unknown fields and missing ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BundleError, UsageError
from edgekit.release.provenance import BUILDER, provenance_of
from tests.fixtures.bundles import small_bundle
from tests.release.provenance.described import described_bundle


@pytest.fixture
def statement(tmp_path: Path) -> dict[str, Any]:
    path = described_bundle(tmp_path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return json.loads(json.dumps(provenance_of(Bundle.open(path), path.name, sha256)))  # type: ignore[no-any-return]


def test_what_it_says(statement: dict[str, Any]) -> None:
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {
        "model": "m.onnx",
        "samples": "8 files of photos",
        "options": {"precision": "auto", "targets": ["ort"]},
    }
    by_name = {each["name"]: each for each in definition["resolvedDependencies"]}
    assert by_name["m.onnx"]["digest"] == {"sha256": "0" * 64}
    assert by_name["samples"]["digest"] == {"sha256": "ab" * 32}
    assert by_name["numpy"]["uri"] == "pkg:pypi/numpy@2"
    assert statement["predicate"]["runDetails"]["builder"]["id"] == BUILDER


def test_in_toto_takes_it(statement: dict[str, Any]) -> None:
    attestation = pytest.importorskip("in_toto_attestation.v1.statement")
    provenance = pytest.importorskip("in_toto_attestation.predicates.provenance.v1.provenance_pb2")
    messages = pytest.importorskip("in_toto_attestation.v1.statement_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    message = json_format.ParseDict(statement, messages.Statement())
    attestation.Statement.copy_from_pb(message).validate()
    predicate = json_format.ParseDict(statement["predicate"], provenance.Provenance())
    assert json_format.MessageToDict(predicate) == statement["predicate"]


def test_required_fields_of_the_specification(statement: dict[str, Any]) -> None:
    """SLSA v1.0: buildType, externalParameters and builder.id are there, the first and the last as URIs; a
    descriptor has a digest, a URI or its content."""
    definition = statement["predicate"]["buildDefinition"]
    builder = statement["predicate"]["runDetails"]["builder"]
    assert definition["externalParameters"]
    assert all(uri.startswith("https://") for uri in (definition["buildType"], builder["id"]))
    assert all({"uri", "digest", "content"} & each.keys() for each in definition["resolvedDependencies"])


def test_the_same_bundle_gives_the_same_statement(tmp_path: Path) -> None:
    bundle = Bundle.open(described_bundle(tmp_path))
    assert provenance_of(bundle, "a", "0" * 64) == provenance_of(bundle, "a", "0" * 64)


@pytest.mark.parametrize("builder", ["", "ci", "https://ci example", ":x", "https:", "https://x\x1b[2J"])
def test_a_builder_that_is_no_uri(builder: str) -> None:
    with pytest.raises(UsageError, match="is not a URI"):
        provenance_of(small_bundle(), "a", "0" * 64, builder)


def test_evidence_that_no_build_writes() -> None:
    bundle = small_bundle()
    bundle.manifest["samples"] = {"sha256": 3}
    with pytest.raises(BundleError, match="invalid evidence: ValueError: 3 is not a sha256"):
        provenance_of(bundle, "a", "0" * 64)
    bundle.manifest["options"] = bundle.manifest["samples"] = {}
    bundle.manifest.pop("tools")
    with pytest.raises(BundleError, match="invalid evidence: KeyError"):
        provenance_of(bundle, "a", "0" * 64)
