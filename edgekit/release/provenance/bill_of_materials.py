"""A bundle's bill of materials: CycloneDX 1.6 (ECMA-424) with model cards, called ML-BOM.

The bundle is a ``machine-learning-model`` made from the source model. Each variant in it is one too, with its
files, their hashes, and what the build measured of it. What the build rejected is not in the bundle, and so a
trade-off in words and no component. https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from edgekit.bundle import device_evidence
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import checked_evidence
from edgekit.bundle.variant import Variant
from edgekit.release.provenance.slsa import hexadecimal, package_url
from edgekit.tensor_spec import Json, TensorSpec

SPEC_VERSION = "1.6"
SPDX_IDS = frozenset(
    (
        *("Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "CC0-1.0", "CC-BY-4.0"),
        *("CC-BY-SA-4.0", "CC-BY-NC-4.0", "GPL-2.0-only", "GPL-3.0-only", "GPL-3.0-or-later"),
        *("LGPL-3.0-only", "AGPL-3.0-only", "AGPL-3.0-or-later"),
    )
)
"""Licenses that a card may name by their SPDX id; others are listed by their name, unchanged."""


def bill_of_materials(bundle: Bundle, name: str, sha256: str) -> dict[str, Json]:
    """Return the bill of materials of a bundle, as JSON.

    Args:
        bundle: It.
        name: Name of its file.
        sha256: SHA-256 of its file, as hexadecimal digits.

    Raises:
        BundleError: its evidence is not what a build writes.
    """
    with checked_evidence(bundle.name):
        manifest = bundle.manifest
        shipped = [(_ref("variant", v.name), v) for v in bundle.variants if v.files]
        components = [_variant(bundle, ref, variant) for ref, variant in shipped]
        components += _stages(manifest)
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
    """Describe the bundle as a whole."""
    manifest = bundle.manifest
    card = manifest["card"] or {}
    about: Mapping[str, Any] = card.get("about") or {}
    source = manifest["source"]
    component: dict[str, Json] = {
        "type": "machine-learning-model",
        "bom-ref": "bundle",
        "name": str(card.get("title") or source["file"]),
        "hashes": _sha256(sha256),
        "modelCard": {"modelParameters": _parameters(bundle), "considerations": _considerations(bundle)},
        "pedigree": {
            "ancestors": [
                {
                    "type": "machine-learning-model",
                    "bom-ref": "source",
                    "name": source["file"],
                    "hashes": _sha256(source["sha256"]),
                    "properties": _properties(opset=source["opset"], nodes=source["nodes"]),
                }
            ],
            "notes": f"edgekit build, canonical form by: {', '.join(manifest['passes']) or 'no pass'}",
        },
        "properties": _properties(file=name, manifest_sha256=bundle.digest),
    }
    for key in ("version", "description"):
        if about.get(key):
            component[key] = str(about[key])
    if about.get("author"):
        component["authors"] = [{"name": str(about["author"])}]
    if about.get("license"):
        terms = str(about["license"])
        component["licenses"] = [{"license": {"id" if terms in SPDX_IDS else "name": terms}}]
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
    files = [
        {
            "type": "file",
            "bom-ref": f"{reference}/{quote(file, safe='')}",
            "name": file,
            "hashes": _sha256(bundle.sha256(entry)),
            "properties": _properties(entry=entry, size_bytes=bundle.size_bytes(entry)),
        }
        for file, entry in sorted(variant.files.items())
    ]
    metrics = [*_metrics(variant.evidence), *_on_devices(bundle.manifest, variant.name)]
    facts = {"target": variant.target, "profile": variant.profile, "precision": variant.precision}
    return {
        "type": "machine-learning-model",
        "bom-ref": reference,
        "name": variant.name,
        "modelCard": {"quantitativeAnalysis": {"performanceMetrics": metrics}},
        "components": files,
        "properties": _properties(**facts, status=variant.status, **({"engine": engine} if engine else {})),
    }


def _metrics(evidence: Mapping[str, Any]) -> list[dict[str, Json]]:
    """Return figures with the data or machine that they were measured on. Figures that are not finite are
    left out."""
    metrics = []
    task, agreement = evidence.get("task"), evidence.get("agreement")
    if task:
        metrics.append(_metric(_named(task), task["value"], "labelled samples"))
        metrics.append(_metric(f"{_named(task)} of the float model", task["float"], "labelled samples"))
    if agreement:
        basis = f"against the float model, {agreement['samples']} samples"
        metrics.append(_metric(_named(agreement), agreement["value"], basis))
    for output, error in (evidence.get("accuracy") or {}).items():
        basis = f"output {output}, against the source model"
        metrics.append(_metric("SNR in dB", error["snr_db"], basis))
        metrics.append(_metric("largest difference", error["max_abs"], basis))
    timing = evidence.get("timing")
    if timing:
        basis = f"{timing['cpu']}, {timing['threads']} threads, {timing['runs']} runs"
        for key, name in (("p50_ms", "latency p50"), ("min_ms", "latency minimum"), ("load_ms", "loading")):
            metrics.append(_metric(f"{name} in ms", timing.get(key), basis))
    return [metric for metric in metrics if metric is not None]


def _on_devices(manifest: Mapping[str, Any], variant: str) -> list[dict[str, Json]]:
    """Return the figures of ``edgekit bench --device`` that were merged into the bundle after the build."""
    metrics = []
    for record in device_evidence.device_records(manifest):
        for row in record.rows(variant) if variant in record.variants else ():
            basis = f"{record.title}, {row.get('threads')} threads"
            metrics.append(_metric("latency p50 in ms", row["p50_ms"], basis))
    return [metric for metric in metrics if metric is not None]


def _named(figure: Mapping[str, Any]) -> str:
    return f"{figure['metric']} in {figure['unit']}" if figure["unit"] else str(figure["metric"])


def _metric(kind: str, value: float | None, location: str) -> dict[str, Json] | None:
    return None if value is None else {"type": kind, "value": str(value), "slice": location}


def _stages(manifest: Mapping[str, Any]) -> list[dict[str, Json]]:
    entries = {entry["name"]: entry["sha256"] for entry in manifest["entries"]}
    return [
        {
            "type": "machine-learning-model",
            "bom-ref": _ref("stage", name),
            "name": name,
            "hashes": _sha256(entries[stage["entry"]]),
            "properties": _properties(entry=stage["entry"], manifest_sha256=stage["digest"]),
        }
        for name, stage in manifest.get("cascade", {}).get("bundles", {}).items()
    ]


def _samples(samples: Mapping[str, Any]) -> dict[str, Json]:
    """Describe the samples. Their hash is that of the prepared arrays, not of the files."""
    return {
        "type": "data",
        "bom-ref": "samples",
        "name": "samples",
        "hashes": _sha256(hexadecimal(samples["sha256"])),
        "data": [{"type": "dataset", "name": str(samples.get("origin", "samples"))}],
        "properties": _properties(count=samples.get("count", 0), hashed="arrays after preparation"),
    }


def _package(name: str, version: str) -> dict[str, Json]:
    ref = _ref("tool", name)
    return {"bom-ref": ref, "name": name, "version": version, "purl": package_url(name, version)}


def _format(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _ref(kind: str, name: str) -> str:
    return f"{kind}/{quote(name, safe='')}"


def _sha256(content: str) -> list[dict[str, Json]]:
    return [{"alg": "SHA-256", "content": content}]


def _properties(**values: object) -> list[dict[str, Json]]:
    return [{"name": f"edgekit:{key}", "value": str(value)} for key, value in values.items()]
