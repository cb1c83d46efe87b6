"""SLSA build provenance, version 1, as an in-toto statement (v1) about a bundle's file.

Fields: https://slsa.dev/spec/v1.0/provenance and
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. The URI of the build type leads to
``docs/provenance.md``, which says what each parameter is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import checked_evidence
from edgekit.errors import UsageError
from edgekit.tensor_spec import Json

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
_DOCUMENT = "https://github.com/edgekit/edgekit/blob/main/docs/provenance.md"
BUILD_TYPE = f"{_DOCUMENT}#build-type-v1"
BUILDER = f"{_DOCUMENT}#a-builder-without-a-name"
"""Where nobody says who built it: ``edgekit build`` on some machine."""


def provenance_of(bundle: Bundle, name: str, sha256: str, builder: str = BUILDER) -> dict[str, Json]:
    """Return the provenance statement of a bundle.

    Args:
        bundle: It.
        name: Name of its file.
        sha256: SHA-256 of its file, as hexadecimal digits.
        builder: URI of who built it, e.g. of a CI's workflow.

    Raises:
        UsageError: the builder is not a URI.
        BundleError: its provenance is not what a build writes.
    """
    scheme, colon, rest = builder.partition(":")
    if (
        not (colon and rest and scheme.isascii() and scheme.isalnum() and builder.isprintable())
        or " " in builder
    ):
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
    """Return the model, the samples, a cascade's stages and the tools, as resource descriptors of in-toto."""
    source, samples = manifest["source"], manifest["samples"]
    more = {key: source[key] for key in ("opset", "nodes", "imported") if key in source}
    descriptors: list[dict[str, Json]] = [
        {
            "name": source["file"],
            "digest": {"sha256": source["sha256"]},
            "annotations": {"role": "model", **more},
        }
    ]
    if "sha256" in samples:
        facts = {key: samples[key] for key in ("count", "origin", "ranges") if key in samples}
        digest = {"sha256": hexadecimal(samples["sha256"])}
        descriptors.append({"name": "samples", "digest": digest, "annotations": {"role": "samples", **facts}})
    entries = {entry["name"]: entry["sha256"] for entry in manifest["entries"]}
    for name, stage in manifest.get("cascade", {}).get("bundles", {}).items():
        digest = {"sha256": entries[stage["entry"]]}
        descriptors.append({"name": f"stage {name}", "digest": digest, "annotations": {"role": "stage"}})
    packages = {"edgekit-sdk": manifest["edgekit"], **manifest["tools"]}
    for name, version in packages.items():
        uri = package_url(name, version)
        descriptors.append({"name": name, "uri": uri, "annotations": {"role": "tool", "version": version}})
    return descriptors
