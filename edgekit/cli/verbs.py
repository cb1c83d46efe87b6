"""The command line: each verb parses, calls one public function and prints."""

from __future__ import annotations

from edgekit.cli import (
    bench_verb,
    bundle_verbs,
    catalogue_verbs,
    defer_verb,
    device_verbs,
    distil_verb,
    fleet_verb,
    generate_verb,
    machine_verbs,
    model_verbs,
    publish_verb,
    serve_verb,
    shrink_verb,
    store_verbs,
    tracker_verb,
    trust_verbs,
    update_verb,
)
from edgekit.cli.command_group import VERBS, main

__all__ = [
    "VERBS",
    "bench_verb",
    "bundle_verbs",
    "catalogue_verbs",
    "defer_verb",
    "device_verbs",
    "distil_verb",
    "fleet_verb",
    "generate_verb",
    "machine_verbs",
    "main",
    "model_verbs",
    "publish_verb",
    "serve_verb",
    "shrink_verb",
    "store_verbs",
    "tracker_verb",
    "trust_verbs",
    "update_verb",
]
