"""The command line: each verb parses, calls one public function and prints."""

from __future__ import annotations

from edgekit.cli import (
    batch_group,
    bench_verb,
    build_verbs,
    bundle_group,
    bundle_verbs,
    device_verbs,
    evaluate_verb,
    export_verb,
    fleet_verb,
    generate_verb,
    machine_verbs,
    model_group,
    publish_verb,
    release_group,
    serve_verb,
    store_group,
)
from edgekit.cli.command_group import main

__all__ = [
    "batch_group",
    "bench_verb",
    "build_verbs",
    "bundle_group",
    "bundle_verbs",
    "device_verbs",
    "evaluate_verb",
    "export_verb",
    "fleet_verb",
    "generate_verb",
    "machine_verbs",
    "main",
    "model_group",
    "publish_verb",
    "release_group",
    "serve_verb",
    "store_group",
]
