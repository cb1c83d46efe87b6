"""``edgekit build --shrink -70% --distil``: pruned, distilled and trained in int8, in one command."""

from __future__ import annotations

import signal

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline import distilled, select_variants
from edgekit.compiler.pipeline.build_bundle import build_bundle
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.report.facts import facts_of
from edgekit.runtime import Session
from edgekit.system.progress import Stage
from tests.train.conftest import Digits
from tests.train.distillation import accuracy

pytest.importorskip("torch")
pytestmark = pytest.mark.needs_ort
STEPS = ["channels removed", "distilled", "int8", "int8, trained"]


def test_digits_in_one_command(digits_pair: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    # Times of so small a network say nothing.
    monkeypatch.setattr(select_variants, "ratio_to_parent", lambda *_: 0.5)
    bundle = build_bundle(BuildRequest(
        digits_pair.teacher, targets=["ort", "tflite"], precision="int8", samples=digits_pair.samples,
        card=digits_pair.card, shrink="-70%", distil="16epochs", force=True,
    ))  # fmt: skip
    whole = accuracy(Reference(edgekit.open_model(digits_pair.teacher)).run)
    for target in ("ort", "tflite"):
        smaller = [v for v in bundle.variants if v.profile == target and v.shrunk is not None]
        assert [v.precision[:4] for v in smaller] == ["fp32", "int8"], bundle.report
        assert smaller[1].usable, [v.status for v in smaller]
        path = smaller[1].evidence["shrunk"]["path"]
        assert [step["step"] for step in path] == STEPS
        pruned, distilled, _, trained = (step["agreement"]["value"] for step in path)
        assert pruned + 0.04 < distilled, bundle.report
        assert trained > distilled - 0.06, bundle.report
        assert smaller[0].evidence["shrunk"]["path"] == path[:2]
        assert smaller[1].evidence["agreement"]["value"] == trained
        assert smaller[1].evidence["agreement"]["samples"] == 192
        with Session(bundle, variant=smaller[1].name) as session:
            assert accuracy(session.run) > 0.8 * whole
    _is_told(bundle)
    assert {check.outcome for check in verify_bundle(bundle)} == {CheckOutcome.VERIFIED}


def _is_told(bundle: Bundle) -> None:
    assert bundle.manifest["options"]["distil"] == "16epochs"
    assert "  path to tflite-shrunk70-int8" in bundle.report
    paths = facts_of(bundle).paths
    assert [path.name[:17] for path in paths] == ["ort-shrunk70-int8", "tflite-shrunk70-i"]
    assert [row[0] for row in paths[0].rows] == ["the whole model", *STEPS]
    assert [row[1] for row in paths[0].rows] == ["100 %", *[paths[0].rows[1][1]] * 4]


def test_a_training_that_diverges_costs_the_smaller_model_alone(
    digits_pair: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distilled, "LEARNING_RATE", float("inf"))
    bundle = build_bundle(BuildRequest(
        digits_pair.teacher, targets=["ort"], samples=digits_pair.samples[:128], card=digits_pair.card,
        shrink="-70%", distil="8epochs",
    ))  # fmt: skip
    # No third of infinity is low enough.
    whole, smaller = bundle.variants
    assert whole.usable
    assert smaller.status.startswith("rejected: the training diverged at step ")


def test_a_training_that_is_stopped_stops_the_build(
    digits_pair: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(found: Stage) -> None:
        if "epoch" in found.detail and found.name == "shrunk":
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        build_bundle(BuildRequest(
            digits_pair.teacher, targets=["ort"], samples=digits_pair.samples[:128], card=digits_pair.card,
            shrink="-70%", distil="2epochs", progress=stop,
        ))  # fmt: skip
