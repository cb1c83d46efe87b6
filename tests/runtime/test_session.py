"""A session in fair weather: what it chooses, what it takes, what it answers, and how it ends."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BundleError, MissingDependency, NoVariantError, UsageError
from edgekit.runtime import Active, Session, local_timings
from edgekit.system.cpu import default_threads
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, change, doubled, throws
from tests.fixtures.threads import in_threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    variants = [variant("lite", "tflite", p50_ms=9.0), variant("onnx", "ort", p50_ms=7.0)]
    return small_bundle(variants).save(tmp_path / "b.edgekit")


def test_the_fastest_variant_runs(engines: Engines, path: Path) -> None:
    with Session(path) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert session.active == Active("onnx", "Ort Runtime 1.0", "CPU", "fp32")
        assert session.fallbacks == ()
        assert session.notes == ()
        assert [str(spec) for spec in session.inputs + session.outputs] == ["x float32 1x6", "y float32 1x6"]
        assert session.runner.run({"x": X})["y"] is not None
    assert engines["ort"].loaded == ["onnx"]
    assert engines["tflite"].loaded == []  # nor is any other engine touched
    assert engines["ort"].closed == 1


def test_the_engine_asked_for_runs(engines: Engines, path: Path) -> None:
    with Session(path, engine="tflite", strict=True) as session:
        assert session.active.variant == "lite"
        assert session.fallbacks == ()


@pytest.mark.parametrize("strict", [True, False])
def test_an_engine_that_the_bundle_does_not_know(engines: Engines, path: Path, strict: bool) -> None:
    with pytest.raises(UsageError) as error:
        Session(path, engine="onnxruntime", strict=strict)
    assert str(error.value) == f"{path} has no variant for engine 'onnxruntime'; it has ort, tflite"


@pytest.mark.parametrize("strict", [True, False])
def test_the_variant_asked_for_runs(engines: Engines, path: Path, strict: bool) -> None:
    with Session(path, variant="lite", strict=strict) as session:
        assert (session.active.variant, session.fallbacks) == ("lite", ())
    with Session(path, variant="onnx", engine="ort", strict=strict) as session:
        assert (session.active.variant, session.fallbacks) == ("onnx", ())


def test_of_an_engine_with_several_variants_the_named_one_runs(engines: Engines) -> None:
    bundle = small_bundle([variant(name, "ort", p50_ms=float(ms)) for ms, name in enumerate("abc", 1)])
    with Session(bundle, variant="c") as session:
        assert session.active.variant == "c"
        change(session, throws)
        session.run({"x": X})
        assert session.active.variant == "a"  # then the usual order
        assert [(f.from_, f.to, f.reason) for f in session.fallbacks] == [
            ("c", "a", "RuntimeError: kernel died")
        ]


@pytest.mark.parametrize("strict", [True, False])
def test_a_variant_that_the_bundle_does_not_have(engines: Engines, path: Path, strict: bool) -> None:
    with pytest.raises(UsageError) as error:
        Session(path, variant="lite16", strict=strict)
    assert str(error.value) == f"{path} has no variant 'lite16'; it has lite, onnx"


def test_a_variant_of_another_engine_than_the_one_asked_for(engines: Engines, path: Path) -> None:
    with pytest.raises(UsageError) as error:
        Session(path, variant="lite", engine="ort")
    assert str(error.value) == "variant lite is for engine tflite, not for ort; give one"


def test_a_rejected_variant_asked_for_by_name_says_why(engines: Engines) -> None:
    bundle = small_bundle([variant("fast", "ort", status="rejected: SNR 3 dB"), variant("lite", "tflite")])
    with Session(bundle, variant="fast") as session:
        assert [(f.from_, f.to, f.reason) for f in session.fallbacks] == [
            ("fast", "lite", "rejected: SNR 3 dB")
        ]
    with pytest.raises(NoVariantError) as error:
        Session(bundle, variant="fast", strict=True)
    assert str(error.value) == "variant fast was requested and was rejected: SNR 3 dB"


def test_a_variant_asked_for_whose_engine_is_missing(engines: Engines, path: Path) -> None:
    engines["tflite"].missing = True
    missing = "tflite is not installed (pip install 'edgekit-sdk[tflite]')"
    with Session(path, variant="lite") as session:
        assert [(f.from_, f.to, f.reason) for f in session.fallbacks] == [("lite", "onnx", missing)]
    with pytest.raises(MissingDependency) as error:
        Session(path, variant="lite", strict=True)
    assert str(error.value) == (
        "tflite has the requested variant, lite, and is not installed (pip install 'edgekit-sdk[tflite]'); "
        "without strict, Ort Runtime would have run"
    )


def test_a_rejected_variant_is_never_run(engines: Engines) -> None:
    bundle = small_bundle([variant("fast", "ort", status="rejected: wrong"), variant("lite", "tflite")])
    with Session(bundle) as session:
        assert session.active.variant == "lite"
        assert session.skipped == {"fast": "rejected: wrong"}


def test_what_was_measured_here_goes_before_what_the_bundle_says(engines: Engines, path: Path) -> None:
    with Bundle.open(path) as bundle:
        assert local_timings.keep(bundle, {"onnx": (70.0, "Ort Runtime 1.0")})
        with Session(bundle) as session:  # this machine is ten times slower: tflite is expected at 90 ms
            assert session.active.variant == "onnx"
        local_timings.keep(bundle, {"onnx": (70.0, "Ort Runtime 1.0"), "lite": (20.0, "Tflite Runtime 1.0")})
    for threads in (1, 3):
        with Session(path, threads=threads) as session:
            assert session.active.variant == "lite"
            listed = "lite 20, onnx 70"
            assert session.reason == f"the fastest here within 3 %, in ms of CPU time on one thread: {listed}"


def test_times_of_another_engine_version_are_dropped(engines: Engines, path: Path) -> None:
    with Bundle.open(path) as bundle:
        local_timings.keep(bundle, {"onnx": (70.0, "Ort Runtime 1.0"), "lite": (20.0, "Tflite Runtime 1.0")})
    engines["tflite"].version = "2.0"
    with Session(path) as session:
        assert session.active.variant == "onnx"
        assert session.fallbacks == ()


def test_threads_reach_the_engine(engines: Engines, path: Path) -> None:
    with Session(path, threads=3) as session:
        assert session.threads == 3
    Session(path).close()
    assert engines["ort"].threads == [3, default_threads()]
    assert 1 <= default_threads() <= 4


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", 1025])
def test_threads_are_a_positive_number(path: Path, threads: Any) -> None:
    with pytest.raises(UsageError) as error:
        Session(path, threads=threads)
    assert str(error.value) == f"threads must be a whole number from 1 to 1024, not {threads!r}"


FEEDS: dict[str, tuple[Any, str]] = {
    "no dict": ([X], 'feeds is a list; a dict is expected: {"x": float32 1x6}'),
    "nothing": (None, 'feeds is a NoneType; a dict is expected: {"x": float32 1x6}'),
    "an array": (X, 'feeds is a ndarray; a dict is expected: {"x": float32 1x6}'),
    "missing": ({}, "input x is missing; the model takes x float32 1x6"),
    "renamed": ({"X": X}, "input x is missing; the model takes x float32 1x6"),
    "extra": ({"x": X, "z": X}, "input z is unknown; the model takes x float32 1x6"),
    "list": ({"x": [1, 2]}, "input x is a list; a numpy array float32 1x6 is expected"),
    "float64": (
        {"x": X.astype(np.float64)},
        "input x is float64; float32 1x6 is expected, and values are not converted: use "
        ".astype(np.float32) if this is intended",
    ),
    "byte order": (
        {"x": X.astype(">f4")},
        "input x is >f4; float32 1x6 is expected, and values are not converted: use .astype(np.float32) if "
        "this is intended",
    ),
    "shape": (
        {"x": X[0]},
        "input x has shape 6; float32 1x6 is expected: shapes are fixed when a bundle is built",
    ),
    "scalar": (
        {"x": np.zeros((), np.float32)},
        "input x has shape scalar; float32 1x6 is expected: shapes are fixed when a bundle is built",
    ),
}


@pytest.mark.parametrize("name", FEEDS)
def test_feeds_that_do_not_fit_are_the_callers_fault(engines: Engines, path: Path, name: str) -> None:
    feeds, text = FEEDS[name]
    with Session(path) as session:
        with pytest.raises(UsageError) as error:
            session.run(feeds)
        assert str(error.value) == text
        assert session.active.variant == "onnx"  # no engine is blamed for it
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)


def test_outputs_go_into_the_callers_arrays(engines: Engines, path: Path) -> None:
    own = np.full((1, 6), 9, np.float32)
    with Session(path) as session:
        outputs = session.run({"x": X}, out={"y": own})
        assert outputs["y"] is own
        np.testing.assert_array_equal(own, 2 * X)
        change(session, throws)  # and by a fallback
        session.run({"x": 3 * X}, out={"y": own})
        np.testing.assert_array_equal(own, 6 * X)


READ_ONLY = np.zeros((1, 6), np.float32)
READ_ONLY.flags.writeable = False
ONE_ARRAY = "a C-contiguous, writeable array float32 1x6 is expected"
OUT: dict[str, tuple[Any, str]] = {
    "no dict": ([X], "out is a list; a dict of arrays by output name is expected"),
    "name": ({"z": X.copy()}, "out has z, which is not an output; the model's outputs are y"),
    "list": ({"y": [0] * 6}, f"out y is a list; {ONE_ARRAY}"),
    "dtype": ({"y": X.astype(np.float64)}, f"out y is float64 1x6; {ONE_ARRAY}"),
    "shape": ({"y": X[0].copy()}, f"out y is float32 6; {ONE_ARRAY}"),
    "strided": ({"y": np.zeros((1, 12), np.float32)[:, ::2]}, f"out y is not contiguous; {ONE_ARRAY}"),
    "read-only": ({"y": READ_ONLY}, f"out y is read-only; {ONE_ARRAY}"),
}


@pytest.mark.parametrize("name", OUT)
def test_arrays_that_do_not_fit_are_not_written_to(engines: Engines, path: Path, name: str) -> None:
    out, text = OUT[name]
    with Session(path) as session:
        with pytest.raises(UsageError) as error:
            session.run({"x": X}, out=out)
        assert str(error.value) == text
        assert session.fallbacks == ()  # no engine is blamed for it


def test_engines_get_contiguous_aligned_arrays(engines: Engines, path: Path) -> None:
    seen: list[Array] = []

    def look(feeds: Any) -> dict[str, Array]:
        seen.append(feeds["x"])
        return doubled(feeds)

    engines["ort"].behaviour["onnx"] = look
    strided = np.zeros((1, 12), np.float32)[:, ::2]
    unaligned = np.frombuffer(bytes(25), np.uint8)[1:].view(np.float32).reshape(1, 6)
    reversed_ = X[:, ::-1]
    with Session(path) as session:
        for array in (X, strided, unaligned, reversed_):
            np.testing.assert_array_equal(session.run({"x": array})["y"], 2 * array)
    assert seen[0] is X  # what fits is handed over as it is
    assert all(array.flags.c_contiguous and array.flags.aligned for array in seen)


def test_a_bundle_that_was_open_stays_open(engines: Engines, path: Path) -> None:
    with Bundle.open(path) as bundle:
        Session(bundle).close()
        bundle.verify_entries()
    session = Session(path)
    session.close()
    with pytest.raises(BundleError, match="is closed"):
        session.bundle.read("golden/0/x.npy")


def test_closing(engines: Engines, path: Path) -> None:
    session = Session(path)
    session.close()
    session.close()
    assert engines["ort"].closed == 1
    assert session.active.variant == "onnx"
    for use in (lambda: session.run({"x": X}), lambda: session.runner):
        with pytest.raises(UsageError) as error:
            use()
        assert str(error.value) == f"the session on {path} is closed; open a new one to run"


@pytest.mark.parametrize("deadline_ms", [None, 60_000.0])
def test_threads_wait_for_each_other_and_get_their_own_answers(
    engines: Engines, path: Path, deadline_ms: float | None
) -> None:
    inside, most = 0, 0

    def slow(feeds: Any) -> dict[str, Array]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        answer = doubled(feeds)
        inside -= 1
        return answer

    engines["ort"].behaviour["onnx"] = slow
    wrong = []

    def work(session: Session, number: int) -> None:
        x = np.full((1, 6), number, np.float32)
        for _ in range(200):
            if (session.run({"x": x})["y"] != 2 * number).any():
                wrong.append(number)

    with Session(path, deadline_ms=deadline_ms) as session:
        in_threads(*(partial(work, session, n) for n in range(4)))
    assert (most, wrong) == (1, [])


def test_predict_needs_a_card(engines: Engines, path: Path) -> None:
    with Session(path) as session, pytest.raises(UsageError) as error:
        session.predict(X)
    assert str(error.value) == (
        f"{path} has no card, so it does not say how a frame becomes inputs; "
        "build it with a card, or use run() on arrays"
    )


def test_repr_says_what_runs(engines: Engines, path: Path) -> None:
    with Session(path) as session:
        assert repr(session) == f"<Session {path}: onnx on Ort Runtime 1.0>"


def test_the_runner_is_read_once(engines: Engines, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's request may drop it between any two instructions."""
    with Session(path) as session:
        runner = session.runner
        reads = iter([runner])
        dropped = property(lambda _: next(reads, None), lambda *_: None)
        with monkeypatch.context() as patch:
            patch.setattr(type(session._chain), "runner", dropped, raising=False)
            assert session.runner is runner
