"""Bundle metadata in standard formats: its origin (SLSA) and its contents (CycloneDX), signed on request.

SLSA build provenance, version 1, is an in-toto statement about the bundle's file. The URI of the build type
leads to ``docs/provenance.md``, which describes each parameter. https://slsa.dev/spec/v1.0/provenance and
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md

The bill of materials is CycloneDX 1.6 (ECMA-424) with model cards, called ML-BOM. The bundle is a
``machine-learning-model`` made from the source model, and so is each of its variants, with its files, their
hashes and its figures. Rejected variants are not in the bundle, so they are a trade-off in words and not a
component. https://cyclonedx.org/docs/1.6/json/

A statement is its own payload: its signature file is a DSSE envelope around it. A bill is signed by its hash.
All data is from the manifest, without timestamps or machine names: the same bundle gives the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from edgekit.bundle import device_evidence
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import checked_evidence
from edgekit.bundle.variant import Variant
from edgekit.errors import SignatureError, UsageError
from edgekit.signing import SignedBy, TrustedKeys
from edgekit.signing.signature_file import (
    LIMIT_BYTES,
    SignatureFile,
    message_of,
    parse_signature_file,
    statement_of,
)
from edgekit.signing.signing_keys import PrivateKey
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Json, TensorSpec

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
_DOCUMENT = "https://github.com/edgekit/edgekit/blob/main/docs/provenance.md"
BUILD_TYPE = f"{_DOCUMENT}#build-type-v1"
BUILDER = f"{_DOCUMENT}#a-builder-without-a-name"
"""Default builder: ``edgekit build`` on some machine."""
SPEC_VERSION = "1.6"
MODEL = "machine-learning-model"
SPDX_IDS = (
    "Apache-2.0 MIT BSD-2-Clause BSD-3-Clause ISC MPL-2.0 CC0-1.0 CC-BY-4.0 CC-BY-SA-4.0 CC-BY-NC-4.0 "
    "GPL-2.0-only GPL-3.0-only GPL-3.0-or-later LGPL-3.0-only AGPL-3.0-only AGPL-3.0-or-later"
)
"""Licenses that a card may name by their SPDX id; others are listed by their name, unchanged."""
DOCUMENT_LIMIT_BYTES = 8 << 20


def describe(
    path: Path,
    statement: Path | None,
    bill: Path | None,
    *,
    builder: str | None = None,
    key: PrivateKey | None = None,
) -> list[Path]:
    """Write the documents of a bundle, every byte of which is checked first. Return the written files.

    Args:
        statement, bill: Files for SLSA provenance and for the bill of materials. None means not to write it.
        builder: URI of who built it. None means ``BUILDER``.
        key: Key to sign with. None means not to sign.

    Raises:
        BundleError: it is damaged, or its evidence is not what a build writes.
        UsageError: the builder is not a URI.
        OSError: a file can't be written.
    """
    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        digest = hashlib.sha256()
        for piece in bundle.pieces():  # hash the bytes that were checked
            digest.update(piece)
        sha256, contents = digest.hexdigest(), dict[Path, bytes]()
        if statement is not None:
            provenance = provenance_of(bundle, path.name, sha256, BUILDER if builder is None else builder)
            contents[statement] = strict_json.encode(provenance)
        if bill is not None:
            contents[bill] = strict_json.encode(bill_of_materials(bundle, path.name, sha256))
    if key is not None:
        signatures = {
            file: sign_statement(content, key) if file == statement else sign_bill(file.name, content, key)
            for file, content in contents.items()
        }
        contents |= {signature_path(file): content for file, content in signatures.items()}
    written: list[Path] = []
    with contextlib.ExitStack() as undo:
        for file, content in contents.items():
            write_atomically(file, [content])
            written.append(file)
            undo.callback(file.unlink, missing_ok=True)
        undo.pop_all()
    return written


def provenance_of(bundle: Bundle, name: str, sha256: str, builder: str = BUILDER) -> dict[str, Json]:
    """Return the SLSA provenance of a bundle, of a file of this name and hexadecimal SHA-256."""
    scheme, colon, rest = builder.partition(":")
    is_uri = colon and rest and scheme.isascii() and scheme.isalnum()
    if not is_uri or not builder.isprintable() or " " in builder:
        raise UsageError(f"--builder {builder!r} is not a URI; use one like https://ci.example.com/release")
    with checked_evidence(bundle.name):
        manifest = bundle.manifest
        return {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": sha256}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": {
                        "model": manifest["source"]["file"],
                        "samples": manifest["samples"].get("origin", ""),
                        "options": manifest["options"],
                    },
                    "internalParameters": {
                        "passes": manifest["passes"],
                        "profiles": sorted(manifest["profiles"]),
                    },
                    "resolvedDependencies": _dependencies(manifest),
                },
                "runDetails": {"builder": {"id": builder, "version": {"edgekit": manifest["edgekit"]}}},
            },
        }


def package_url(name: str, version: str) -> str:
    """Return the package URL (purl) of a Python package.

    >>> package_url("onnx-ir", "1.1.0"), package_url("Pillow", "12.0+local")
    ('pkg:pypi/onnx-ir@1.1.0', 'pkg:pypi/pillow@12.0%2Blocal')
    """
    return f"pkg:pypi/{quote(name.lower().replace('_', '-'), safe='.')}@{quote(version, safe='.')}"


def hexadecimal(digest: Json) -> str:
    """Return a sha256 that a bundle declares in its open parts. Raises ValueError if it is malformed."""
    if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"{digest!r} is not a sha256")
    return digest


def _dependencies(manifest: Mapping[str, Any]) -> list[dict[str, Json]]:
    source, samples = manifest["source"], manifest["samples"]
    more = {key: source[key] for key in ("opset", "nodes", "imported") if key in source}
    rows = [(source["file"], source["sha256"], {"role": "model", **more})]
    if "sha256" in samples:
        facts = {key: samples[key] for key in ("count", "origin", "ranges") if key in samples}
        rows.append(("samples", hexadecimal(samples["sha256"]), {"role": "samples", **facts}))
    rows += [(f"stage {name}", sha256, {"role": "stage"}) for name, _, sha256 in _stages(manifest)]
    descriptors: list[dict[str, Json]] = [
        {"name": name, "digest": {"sha256": sha256}, "annotations": notes} for name, sha256, notes in rows
    ]
    packages = {"edgekit-sdk": manifest["edgekit"], **manifest["tools"]}
    for name, version in packages.items():
        uri = package_url(name, version)
        descriptors.append({"name": name, "uri": uri, "annotations": {"role": "tool", "version": version}})
    return descriptors


def bill_of_materials(bundle: Bundle, name: str, sha256: str) -> dict[str, Json]:
    """Return the CycloneDX bill of materials of a bundle, of a file of this name and hexadecimal SHA-256."""
    with checked_evidence(bundle.name):
        manifest = bundle.manifest
        shipped = [(_ref("variant", v.name), v) for v in bundle.variants if v.files]
        components = [_variant(bundle, ref, variant) for ref, variant in shipped]
        for stage_name, stage, stage_sha256 in _stages(manifest):
            facts = _properties(entry=stage["entry"], manifest_sha256=stage["digest"])
            ref = _ref("stage", stage_name)
            components.append(_component(MODEL, ref, stage_name, stage_sha256, properties=facts))
        if "sha256" in manifest["samples"]:
            components.append(_samples(manifest["samples"]))
        edgekit = {"type": "application", **_package("edgekit-sdk", manifest["edgekit"])}
        tools = [edgekit, *({"type": "library", **_package(*tool)} for tool in manifest["tools"].items())]
        return {
            "bomFormat": "CycloneDX",
            "specVersion": SPEC_VERSION,
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'urn:sha256:{sha256}')}",
            "version": 1,
            "metadata": {"tools": {"components": tools}, "component": _model(bundle, name, sha256)},
            "components": components,
            "dependencies": [{"ref": "bundle", "dependsOn": [c["bom-ref"] for c in components]}],
        }


def _model(bundle: Bundle, name: str, sha256: str) -> dict[str, Json]:
    manifest = bundle.manifest
    card = manifest["card"] or {}
    about: Mapping[str, Any] = card.get("about") or {}
    source = manifest["source"]
    facts = _properties(opset=source["opset"], nodes=source["nodes"])
    ancestor = _component(MODEL, "source", source["file"], source["sha256"], properties=facts)
    notes = f"edgekit build, canonical form by: {', '.join(manifest['passes']) or 'no pass'}"
    component = _component(
        MODEL,
        "bundle",
        str(card.get("title") or source["file"]),
        sha256,
        modelCard={"modelParameters": _parameters(bundle), "considerations": _considerations(bundle)},
        pedigree={"ancestors": [ancestor], "notes": notes},
        properties=_properties(file=name, manifest_sha256=bundle.digest),
    )
    for key in ("version", "description"):
        if about.get(key):
            component[key] = str(about[key])
    if about.get("author"):
        component["authors"] = [{"name": str(about["author"])}]
    if about.get("license"):
        terms = str(about["license"])
        component["licenses"] = [{"license": {"id" if terms in SPDX_IDS.split() else "name": terms}}]
    return component


def _parameters(bundle: Bundle) -> dict[str, Json]:
    task = (bundle.manifest["card"] or {}).get("task") or {}
    parameters: dict[str, Json] = {"task": str(task["kind"])} if task.get("kind") else {}
    if "sha256" in bundle.manifest["samples"]:
        parameters["datasets"] = [{"ref": "samples"}]
    return {
        **parameters,
        "inputs": [{"format": _format(spec)} for spec in bundle.inputs],
        "outputs": [{"format": _format(spec)} for spec in bundle.outputs],
    }


def _considerations(bundle: Bundle) -> dict[str, Json]:
    rejected = [f"{v.name} is not in the bundle; {v.status}" for v in bundle.variants if v.rejected]
    unseen = [f"{v.name}: {v.status}" for v in bundle.variants if v.files and not v.verified]
    considerations = {"performanceTradeoffs": rejected, "technicalLimitations": unseen}
    return {key: lines for key, lines in considerations.items() if lines}


def _variant(bundle: Bundle, reference: str, variant: Variant) -> dict[str, Json]:
    engine = variant.evidence.get("engine")
    files = []
    for file, entry in sorted(variant.files.items()):
        facts = _properties(entry=entry, size_bytes=bundle.size_bytes(entry))
        ref = f"{reference}/{quote(file, safe='')}"
        files.append(_component("file", ref, file, bundle.sha256(entry), properties=facts))
    metrics = _metrics(variant.evidence, bundle.manifest, variant.name)
    described = {name: getattr(variant, name) for name in ("target", "profile", "precision", "status")}
    return _component(
        MODEL,
        reference,
        variant.name,
        modelCard={"quantitativeAnalysis": {"performanceMetrics": metrics}},
        components=files,
        properties=_properties(**described, **({"engine": engine} if engine else {})),
    )


def _metrics(evidence: Mapping[str, Any], manifest: Mapping[str, Any], variant: str) -> list[dict[str, Json]]:
    """Return the figures of a variant with the data or machine that they were measured on, and those of
    ``edgekit bench --device``. Figures that are not finite are left out."""
    metrics: list[dict[str, Json]] = []
    task, agreement = evidence.get("task"), evidence.get("agreement")
    if task:
        metrics.extend(_metric(_named(task), task["value"], "labelled samples"))
        metrics.extend(_metric(f"{_named(task)} of the float model", task["float"], "labelled samples"))
    if agreement:
        basis = f"against the float model, {agreement['samples']} samples"
        metrics.extend(_metric(_named(agreement), agreement["value"], basis))
    for output, error in (evidence.get("accuracy") or {}).items():
        basis = f"output {output}, against the source model"
        metrics.extend(_metric("SNR in dB", error["snr_db"], basis))
        metrics.extend(_metric("largest difference", error["max_abs"], basis))
    if timing := evidence.get("timing"):
        basis = f"{timing['cpu']}, {timing['threads']} threads, {timing['runs']} runs"
        for key, name in (("p50_ms", "latency p50"), ("min_ms", "latency minimum"), ("load_ms", "loading")):
            metrics.extend(_metric(f"{name} in ms", timing.get(key), basis))
    for record in device_evidence.device_records(manifest):
        for row in record.rows(variant) if variant in record.variants else ():
            basis = f"{record.title}, {row.get('threads')} threads"
            metrics.extend(_metric("latency p50 in ms", row["p50_ms"], basis))
    return metrics


def _named(figure: Mapping[str, Any]) -> str:
    return f"{figure['metric']} in {figure['unit']}" if figure["unit"] else str(figure["metric"])


def _metric(kind: str, value: float | None, location: str) -> list[dict[str, Json]]:
    return [] if value is None else [{"type": kind, "value": str(value), "slice": location}]


def _stages(manifest: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], str]]:
    entries = {entry["name"]: entry["sha256"] for entry in manifest["entries"]}
    stages = manifest.get("cascade", {}).get("bundles", {})
    return [(name, stage, entries[stage["entry"]]) for name, stage in stages.items()]


def _samples(samples: Mapping[str, Any]) -> dict[str, Json]:
    """Describe the samples. Their hash is that of the prepared arrays, not of the files."""
    data = [{"type": "dataset", "name": str(samples.get("origin", "samples"))}]
    facts = _properties(count=samples.get("count", 0), hashed="arrays after preparation")
    sha256 = hexadecimal(samples["sha256"])
    return _component("data", "samples", "samples", sha256, data=data, properties=facts)


def _component(kind: str, ref: str, name: str, sha256: str = "", **more: Any) -> dict[str, Json]:
    hashes = {"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {}
    return {"type": kind, "bom-ref": ref, "name": name, **hashes, **more}


def _package(name: str, version: str) -> dict[str, Json]:
    ref = _ref("tool", name)
    return {"bom-ref": ref, "name": name, "version": version, "purl": package_url(name, version)}


def _format(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _ref(kind: str, name: str) -> str:
    return f"{kind}/{quote(name, safe='')}"


def _properties(**values: object) -> list[dict[str, Json]]:
    return [{"name": f"edgekit:{key}", "value": str(value)} for key, value in values.items()]


def sign_statement(statement: bytes, key: PrivateKey) -> bytes:
    """Return the content of a statement's signature file.

    Raises:
        SignatureError: the statement is larger than what a check reads.
    """
    content = SignatureFile(statement, key.sign(message_of(statement)), key.public.hint).encode()
    try:
        parse_signature_file(content)
    except JsonError as problem:
        raise SignatureError(
            f"the statement cannot be signed, because verification would reject it: {problem}"
        ) from None
    return content


def sign_bill(name: str, bill: bytes, key: PrivateKey) -> bytes:
    """Return the content of the signature file of a bill of materials in a file of this name."""
    return sign_statement(statement_of(name, hashlib.sha256(bill).hexdigest()), key)


def check_document(document: Path, keys: TrustedKeys, bundle_sha256: str) -> SignedBy:
    """Check that a document is signed by one of the keys, in a file with ``.sig`` added to its name, and is
    about the bundle with this SHA-256.

    Raises:
        SignatureError: it is not signed by one of them, was changed, or is about another bundle.
        OSError: it can't be read.
    """
    content = read_plain(document, DOCUMENT_LIMIT_BYTES)
    signature_file = signature_path(document)
    try:
        signature = read_plain(signature_file, LIMIT_BYTES)
    except FileNotFoundError:
        raise SignatureError(f"{document} is not signed: {signature_file} does not exist") from None
    signed = keys.check_payload(content, signature, str(signature_file))
    if signed is None:
        signed = keys.check_content(document, signature, str(signature_file))
    if hashlib.sha256(content).hexdigest() != signed.sha256:
        raise SignatureError(f"{document} changed while it was checked")
    if _about(content, document) != bundle_sha256:
        raise SignatureError(f"{document} belongs to another bundle: its sha256 differs")
    return signed


def _about(content: bytes, document: Path) -> Json:
    try:
        table = strict_json.decode(content, str(document), DOCUMENT_LIMIT_BYTES)
        if table.get("predicateType") == PREDICATE_TYPE:
            return table["subject"][0]["digest"]["sha256"]
        return table["metadata"]["component"]["hashes"][0]["content"]
    except (JsonError, AttributeError, LookupError, TypeError):
        raise SignatureError(
            f"{document} is neither SLSA provenance nor a CycloneDX bill of materials"
        ) from None
