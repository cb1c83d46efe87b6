"""Two classifiers as one variant: its bundle, and a session that runs it and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle.advice import advice
from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.deferral_threshold import Threshold
from edgekit.compiler.evaluate.verify_bundle import verify_bundle
from edgekit.compiler.pipeline.defer import Deferral
from edgekit.errors import EngineError, MissingDependency, NoVariantError, SampleError, UsageError
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from edgekit.runtime.metrics import prometheus
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.target import registry
from edgekit.target.deferral import DeferralRunner, top_and_margin
from tests.fixtures.classifiers import CARD, TASK, classifiers, vectors

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("defer")
    classifiers(folder)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Deferral:
    found = edgekit.defer(
        folder / "small.edgekit", folder / "large.edgekit", samples=vectors(200), disagreement="5%"
    )
    assert found.bundle is not None, found.refusal
    found.bundle.save(folder / "both.edgekit")
    return found


@pytest.fixture
def both(folder: Path, found: Deferral) -> Path:
    return folder / "both.edgekit"


def runner_of(session: Session) -> Any:
    assert isinstance(session.runner, DeferralRunner)
    return session.runner


def fails(feeds: object) -> None:
    raise RuntimeError("the kernel died")


def test_the_large_one_answers_where_the_small_one_is_unsure(
    folder: Path, both: Path, found: Deferral
) -> None:
    deferred = differing = 0
    with (
        Session(both) as session,
        Session(folder / "small.edgekit") as small,
        Session(folder / "large.edgekit") as large,
    ):
        assert session.active == ("ort-deferral", "EdgeKit deferral", "CPU", "fp32")
        assert session.fallbacks == ()
        for feeds in vectors(200):
            own, other = small.run(feeds)["scores"], large.run(feeds)["scores"]
            top, margin = top_and_margin(own, "logits")
            unsure = margin <= found.threshold.threshold
            assert np.array_equal(session.run(feeds)["scores"], other if unsure else own)
            deferred += unsure
            differing += not unsure and top != int(other.argmax())
    assert deferred / 200 == pytest.approx(found.threshold.deferred)
    assert differing == found.threshold.differing
    assert found.threshold.bound <= 0.05
    assert 0 < deferred < 200


def test_metrics_count_deferrals_across_runners(both: Path) -> None:
    with Session(both) as session:
        metrics = Metrics(session)
        assert "deferrals" not in metrics.snapshot()
        for feeds in vectors(30):
            metrics.run(feeds)
        first = runner_of(session).deferred
        session._chain.drop_runner()  # and it is loaded again
        for feeds in vectors(30):
            metrics.run(feeds)
        snapshot = metrics.snapshot()
        assert snapshot["deferrals"] == {"answers": 60, "deferred": 2 * first}
        assert f'version="{snapshot["version"]}"}} {2 * first}\n' in prometheus.text(
            prometheus.families(snapshot)
        )
        assert "edgekit_deferred_total{" in prometheus.text(prometheus.families(snapshot))


@pytest.mark.parametrize("part", ["_small", "_large"])
def test_either_engine_may_fail(both: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """The large one alone; the small one alone where that fails too."""
    with Session(both) as session:
        name = {"_small": "small-ort-fp32", "_large": "ort-fp32"}[part]
        monkeypatch.setattr(getattr(runner_of(session), part), "run", fails)
        for feeds in vectors(40):
            session.run(feeds)
        assert session.active.variant == "ort-fp32"
        (fallback,) = session.fallbacks
        assert fallback.from_ == "ort-deferral"
        assert fallback.reason == f"{name}: RuntimeError: the kernel died"
        monkeypatch.setattr(session.runner, "run", fails)
        session.run(vectors(1)[0])
        assert session.active.variant == "small-ort-fp32"


def test_scores_that_are_not_finite_are_no_answer(both: Path) -> None:
    nan = {"x": np.full((1, 3, 1, 2), np.nan, np.float32)}
    with Session(both) as session:
        with pytest.raises(NoVariantError, match="small-ort-fp32: its scores are not finite"):
            session.run(nan)
        session.run(vectors(1)[0])
        assert session.active.variant == "ort-deferral"


def test_strict_allows_no_fallback(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(both, strict=True) as session:
        monkeypatch.setattr(runner_of(session)._small, "run", fails)
        with pytest.raises(EngineError, match="small-ort-fp32: RuntimeError: the kernel died"):
            session.run(vectors(1)[0])


def test_an_engine_that_is_not_here(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told as such: the deferral falls back, and verify says that it did not run."""
    engine = registry.engine("ort")
    opened = engine.open_runner

    def missing(files: Any, *rest: Any) -> Any:
        if rest[2].get("precision") == "none":
            raise MissingDependency("onnxruntime", "running a .onnx file", extra="ort")
        return opened(files, *rest)

    monkeypatch.setattr(engine, "open_runner", missing)
    manifest = dict(Bundle.open(both).manifest)
    manifest["variants"][0]["options"]["small"]["options"] = {"precision": "none"}
    entries = {e["name"]: bytes(Bundle.open(both).read(e["name"])) for e in manifest["entries"]}
    bundle = Bundle.create({k: v for k, v in manifest.items() if k != "entries"}, entries)
    with Session(bundle) as session:
        assert session.active.variant == "ort-fp32"
        assert "onnxruntime is not installed" in session.fallbacks[0].reason
    deferral, large, small = verify_bundle(bundle)
    assert deferral.status.startswith("not run: small-ort-fp32: onnxruntime is not installed")
    assert (large.failed, small.failed) == (False, False)


@pytest.mark.parametrize(
    ("key", "value"),
    [("threshold", "x"), ("decode", "magic"), ("scores", "nothing"), ("small", 3), ("small", {})],
)
def test_malformed_options_are_an_error_of_the_variant(both: Path, key: str, value: Any) -> None:
    bundle = Bundle.open(both)
    manifest = {k: v for k, v in bundle.manifest.items() if k != "entries"}
    manifest["variants"][0]["options"][key] = value
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    with Session(Bundle.create(manifest, entries)) as session:
        assert session.active.variant in ("ort-fp32", "small-ort-fp32")
        assert "the options of a deferral" in session.fallbacks[0].reason


def test_the_bundle_says_what_it_is(both: Path, found: Deferral) -> None:
    bundle = Bundle.open(both)
    deferral, large, _ = bundle.variants
    assert [v.name for v in bundle.variants] == ["ort-deferral", "ort-fp32", "small-ort-fp32"]
    assert all(v.verified for v in bundle.variants)
    assert deferral.evidence["timing"]["p50_ms"] == pytest.approx(found.expected_ms, rel=1e-3)
    assert set(deferral.files) == {"small/model.onnx", "large/model.onnx"}
    assert deferral.files["large/model.onnx"] == large.files["model.onnx"]  # stored once
    note = "small-ort-fp32 answers, ort-fp32 where it is unsure"
    assert note in bundle.report
    assert "another, smaller model: it answers alone only where nothing else does" in bundle.report
    assert "use ort-deferral" in advice(bundle.manifest, bundle.variants)[0]
    assert not [check for check in verify_bundle(bundle) if check.failed]
    with Session(bundle, engine="ort") as session:
        assert session.active.variant == "ort-fp32"
    with Session(bundle) as session:
        frame = np.zeros((4, 8, 3), np.uint8)
        frame[:, :4, 1] = 255
        assert len(session.predict(frame)) == 1


def test_two_variants_of_one_bundle(folder: Path) -> None:
    """Without a second bundle: nothing is brought, and what is no gain is said."""
    source = folder / "small.onnx"
    made = edgekit.build(source, targets=["ort", "openvino"], card=parse_card(CARD), trusted=True)
    path = made.save(folder / "two.edgekit")
    names = {v.name for v in Bundle.open(path).variants if v.verified}
    if not {"ort-fp32", "openvino-fp32"} <= names:
        pytest.skip("openvino is not installed")
    found = edgekit.defer(
        path, samples=vectors(60), disagreement=0.05, small_variant="openvino-fp32", large_variant="ort-fp32"
    )
    assert (found.small, found.large) == ("openvino-fp32", "ort-fp32")
    assert found.bundle is None
    assert found.refusal == "openvino-fp32 alone is within the bound: use it without a deferral"


def test_no_gain_in_time() -> None:
    figures = Threshold(0.99, 0.01, 0.95, 400, 0, 0.0075, 0.95)
    slow = Deferral("a", "b", figures, 1.0, 10.0)
    assert slow.refusal == "b alone is as fast: use a smaller model, or allow more disagreement"
    assert "rejected" in slow.text()


def test_what_can_not_be_joined(folder: Path, both: Path) -> None:
    small, large = folder / "small.edgekit", folder / "large.edgekit"

    def refused(kind: type[Exception], *bundles: Any, **options: Any) -> str:
        given = {"samples": vectors(60), "disagreement": "5%", **options}
        with pytest.raises(kind) as error:
            edgekit.defer(*bundles, **given)
        return str(error.value)

    assert "ort-fp32 would be both the small and the large variant" in refused(UsageError, small)
    assert "already has a deferral" in refused(UsageError, small, both)
    assert "no verified variant 'x' for --small; available: ort-fp32" in refused(
        UsageError, small, large, small_variant="x"
    )
    assert refused(SampleError, small, large, disagreement="1%") == (
        "60 samples given are too few to prove a bound of 1 % with 95 % confidence\n"
        "  use 299 or more, or allow more disagreement"
    )
    assert "--disagreement is '0'; it must be above 0" in refused(UsageError, small, large, disagreement="0")
    assert "--confidence is 'x'" in refused(UsageError, small, large, confidence="x")
    bare = edgekit.build(folder / "small.onnx", targets=["ort"], trusted=True)
    assert "has no card" in refused(UsageError, bare, large)
    other = edgekit.build(
        folder / "small.onnx",
        targets=["ort"],
        card=parse_card({**CARD, "task": {**TASK, "top": 2}}),
        trusted=True,
    )
    assert "have different cards" in refused(UsageError, other, large)
