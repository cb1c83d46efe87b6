"""Inputs that no variant computes: an error each, and no reloading at every request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import EngineError, NonFiniteOutputError, NoVariantError, RejectedInputError
from edgekit.generate import TextSession
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, change, doubled
from tests.fixtures.language_bundles import Loader, language_bundle

BAD = -1e30 - X
SAID = (
    "6 of 6 values of output y are NaN or infinite; the input or this variant's arithmetic is at fault: "
    "try another engine or precision"
)


def overflows(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": np.full((1, 6), np.inf, np.float32)} if feeds["x"].min() < -1e20 else doubled(feeds)


def is_nan(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": np.full((1, 6), np.nan, np.float32)}


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    engines = Engines("ort", "tflite")
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    for name, of in (("onnx", "ort"), ("lite", "tflite")):
        engines[of].behaviour[name] = overflows
    return engines


def two_variants() -> Session:
    return Session(small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)]))


def loads(engines: Engines) -> int:
    return len(engines["ort"].loaded) + len(engines["tflite"].loaded)


def ask(session: Session, x: Array = BAD) -> str:
    with pytest.raises(NonFiniteOutputError) as error:
        session.run({"x": x})
    np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
    assert (session.active.variant, session.fallbacks, session.history) == ("onnx", (), ())
    return str(error.value)


def test_who_repeats_a_bad_input_reloads_nothing_for_a_growing_interval(
    engines: Engines, clock: list[float]
) -> None:
    with two_variants() as session:
        assert ask(session).splitlines()[1:3] == [f"  onnx  {SAID}", f"  lite  {SAID}"]
        assert loads(engines) == 3  # each once, and the best again
        for interval_s, known in ((30, 3), (60, 5), (120, 7)):
            for _ in range(10):
                assert ask(session) == f"onnx: {SAID}\n  it works on other inputs, so this input is at fault"
            clock[0] += interval_s - 1
            ask(session)
            assert loads(engines) == known
            clock[0] += 1
            ask(session)
            assert loads(engines) == known + 2


def test_a_runner_that_broke_meanwhile_is_replaced_at_once(engines: Engines, clock: list[float]) -> None:
    with two_variants() as session:
        ask(session)
        change(session, is_nan)
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert session.active.variant == "lite"


def test_a_strict_session_keeps_its_runner(engines: Engines) -> None:
    with Session(small_bundle([variant("onnx", "ort")]), strict=True) as session:
        for _ in range(3):
            assert ask(session) == f"onnx does not run: {SAID}; strict forbids fallbacks"
        assert engines["ort"].loaded == ["onnx"]


INDEX = "Onnx Runtime failed to run: idx=9 must be within [0, 5]"


def out_of_range(feeds: Mapping[str, Array]) -> dict[str, Array]:
    if feeds["x"].min() < -1e20:
        raise EngineError(INDEX)
    return doubled(feeds)


def test_an_input_that_every_variant_rejects_reloads_nothing_when_it_is_repeated(
    engines: Engines, clock: list[float]
) -> None:
    for name, of in (("onnx", "ort"), ("lite", "tflite")):
        engines[of].behaviour[name] = out_of_range
    with two_variants() as session:
        for interval_s, known in ((30, 3), (60, 5)):
            with pytest.raises(RejectedInputError) as error:
                session.run({"x": BAD})
            assert str(error.value).splitlines()[1:3] == [f"  onnx  {INDEX}", f"  lite  {INDEX}"]
            for _ in range(10):
                np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
                assert (session.active.variant, session.fallbacks, session.history) == ("onnx", (), ())
                with pytest.raises(RejectedInputError) as error:
                    session.run({"x": BAD})
                said = f"onnx: {INDEX}\n  it works on other inputs, so this input is at fault"
                assert str(error.value) == said
            assert loads(engines) == known
            clock[0] += interval_s


def test_an_input_that_one_variant_rejects_is_answered_by_the_next(engines: Engines) -> None:
    engines["ort"].behaviour["onnx"] = out_of_range
    engines["tflite"].behaviour["lite"] = doubled
    with two_variants() as session:
        np.testing.assert_array_equal(session.run({"x": BAD})["y"], 2 * BAD)
        assert session.active.variant == "lite"


@pytest.mark.parametrize("reason", ["once", "memory", "every input"])
def test_a_failure_of_an_engine_is_not_blamed_on_the_input(
    engines: Engines, clock: list[float], reason: str
) -> None:
    failed = list[str]()

    def fails(feeds: Mapping[str, Array]) -> dict[str, Array]:
        is_bad = feeds["x"].min() < -1e20
        if reason == "memory" and is_bad:
            raise MemoryError
        if reason == "every input" or (is_bad and not failed):
            failed.append("now")
            raise RuntimeError("the driver was reset")
        return doubled(feeds)

    engines["ort"].behaviour["onnx"] = fails
    with Session(small_bundle([variant("onnx", "ort")])) as session:
        with pytest.raises(NoVariantError) as error:
            session.run({"x": BAD})
        assert not isinstance(error.value, RejectedInputError)


@pytest.mark.needs_tokenizers
def test_a_prompt_of_which_no_decoder_has_finite_logits_reloads_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: list[float]
) -> None:
    letter = list[int]()

    def before(tokens: Sequence[int]) -> None:
        if letter and letter[0] in tokens:
            raise NonFiniteOutputError("the decoder's logits are NaN or infinite")

    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort", "tflite"))
    loader = Loader()
    monkeypatch.setattr("edgekit.generate.device.decoder_registry.open_decoder", loader)
    loader.before = {"ort-fp32": before, "tflite-fp32": before}
    bundle = language_bundle("ort-fp32", "tflite-fp32")
    with TextSession(bundle, speculate="off", conversations=2) as session:
        whole = session.generate("once", max_tokens=9).text()
        letter += session.tokenizer.encode("Z")
        going, opened = session.generate("once", max_tokens=9), 3
        text = next(going)
        with pytest.raises(NonFiniteOutputError):
            session.generate("Zoo", max_tokens=9).text()
        text += next(going)
        for _ in range(5):
            with pytest.raises(NonFiniteOutputError) as error:
                session.generate("Zoo", max_tokens=9).text()
            assert str(error.value) == (
                "ort-fp32: the decoder's logits are NaN or infinite; it computes other texts, so this one is "
                "at fault"
            )
            assert len(loader.opened) == opened
        assert text + "".join(going) == whole
        assert session.active.variant == "ort-fp32"
        clock[0] += 30
        with pytest.raises(NonFiniteOutputError):
            session.generate("Zoo", max_tokens=9).text()
        assert session.generate("once", max_tokens=9).text() == whole
        assert len(loader.opened) == opened + 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("strict", [False, True])
def test_an_input_that_is_not_finite_is_an_error_of_its_request_alone(
    engines: Engines, bad: float, strict: bool
) -> None:
    x = X.copy()
    x[0, 1] = bad
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])
    runs: list[Array] = []
    engines["ort"].behaviour["onnx"] = lambda feeds: runs.append(feeds["x"]) or doubled(feeds)  # type: ignore[func-returns-value]
    with Session(bundle, strict=strict) as session:
        for _ in range(3):
            with pytest.raises(NonFiniteOutputError) as error:
                session.run({"x": x})
            assert str(error.value) == (
                "onnx: 1 of 6 values of output y are NaN or infinite\n"
                "  input x contains NaN or infinities in 1 of 6 values\n"
                "  check what prepares the inputs"
            )
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert (session.active.variant, session.fallbacks, session.history) == ("onnx", (), ())
        assert loads(engines) == 1
        assert len(runs) == 4  # each input once, and no known input in between


def test_bad_inputs_in_a_row_load_nothing(engines: Engines, clock: list[float]) -> None:
    """No good input comes between them."""
    with two_variants() as session:
        for _ in range(10):
            with pytest.raises(NonFiniteOutputError):
                session.run({"x": BAD})
        assert loads(engines) == 3
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
