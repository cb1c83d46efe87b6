"""Bundles of language models: the best decoder that works, the next one in the middle of a text, memory
first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgekit.errors import BundleError, CardError, EngineError, MissingDependency, NoVariantError, UsageError
from edgekit.generate import TextSession
from edgekit.generate.device.decoder import OPTION
from edgekit.generate.device.memory_plan import plan_memory
from edgekit.generate.device.text_metrics import TextMetrics
from tests.fixtures.bundles import small_bundle
from tests.fixtures.language_bundles import Before, Loader, language_bundle
from tests.fixtures.numpy_decoder import SHAPE

pytestmark = [pytest.mark.needs_tokenizers, pytest.mark.needs_templates]
PROMPT = "once upon a time"


def failing_after(steps: int) -> Before:
    left = [steps]

    def before(tokens: Sequence[int]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("kernel died")

    return before


def test_a_bundle_is_opened_and_generates(loader: Loader) -> None:
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off") as session:
        assert session.active.variant == "ort-fp32"
        assert (session.capacity, session.fallbacks) == (300, ())
        text = session.generate(PROMPT, max_tokens=30).text()
        assert session.chat([{"role": "user", "content": "hi"}], max_tokens=3).text()
    assert loader.runners["ort-fp32"].closed
    assert text


def test_the_next_variant_goes_on_in_the_middle_of_a_text(loader: Loader) -> None:
    with TextSession(language_bundle("ort-fp32"), speculate="off") as session:
        whole = session.generate(PROMPT, max_tokens=30).text()
    loader.before["ort-fp32"] = failing_after(12)
    metrics = TextMetrics()
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off", metrics=metrics) as session:
        stream = session.generate(PROMPT, max_tokens=30)
        assert stream.text() == whole
        (fallback,) = session.fallbacks
        assert fallback[:3] == ("ort-fp32", "tflite-fp32", "RuntimeError: kernel died")
        assert session.active.variant == "tflite-fp32"
        assert session.generate(PROMPT, max_tokens=30).text() == whole
    assert loader.runners["tflite-fp32"].computed == len(PROMPT) + 30 - 1 + 30
    (counted,) = metrics.snapshot()["fallbacks"]
    assert (counted["to"], counted["count"]) == ("tflite-fp32", 1)


def test_what_another_variant_computed_is_not_used(loader: Loader) -> None:
    loader.before["ort-fp32"] = failing_after(9)
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off") as session:
        for letter in "ab":  # the second takes the place of the first, whose cache is saved
            session.generate(40 * letter, max_tokens=1).text()
        assert session.facts()["kept"] == 1
        session.generate(PROMPT, max_tokens=30).text()
        assert session.active.variant == "tflite-fp32"
        stream = session.generate(40 * "a", max_tokens=1)
        stream.text()
        assert stream.cached_tokens == 0


def test_where_all_fail_the_next_text_begins_with_the_first(loader: Loader) -> None:
    for name in ("ort-fp32", "tflite-fp32"):
        loader.before[name] = failing_after(3)
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off") as session:
        stream = session.generate(PROMPT, max_tokens=30)
        with pytest.raises(NoVariantError, match="kernel died"):
            stream.text()
        assert stream.result.reason == "failed"
        loader.before.clear()
        assert session.generate(PROMPT, max_tokens=5).text()
        assert session.active.variant == "ort-fp32"


def test_strict_does_not_fall_back(loader: Loader) -> None:
    loader.before["ort-fp32"] = failing_after(3)
    bundle = language_bundle("ort-fp32", "tflite-fp32")
    session = TextSession(bundle, strict=True, speculate="off")
    with session, pytest.raises(EngineError, match=r"kernel died; strict forbids fallbacks$"):
        session.generate(PROMPT).text()
    assert loader.opened == ["ort-fp32"]
    loader.refused["tflite-fp32"] = MissingDependency("tflite", "a test", "pip install tflite")
    with pytest.raises(MissingDependency, match="tflite was requested and is not installed"):
        TextSession(language_bundle("ort-fp32", "tflite-fp32"), engine="tflite", strict=True)


def test_an_engine_that_is_missing_is_a_fallback(loader: Loader) -> None:
    loader.refused["ort-fp32"] = MissingDependency("ort", "a test", "pip install ort")
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off") as session:
        assert session.fallbacks[0].reason == "ort is not installed (pip install ort)"
    loader.refused["tflite-fp32"] = EngineError("damaged")
    with pytest.raises(NoVariantError) as caught:
        TextSession(language_bundle("ort-fp32", "tflite-fp32"))
    assert "ort is not installed" in str(caught.value)
    assert "damaged" in str(caught.value)


def test_memory_is_counted_before_anything_is_loaded(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.generate.device.memory_plan.free_memory_bytes", lambda: 100 << 20)
    with pytest.raises(NoVariantError) as caught:
        TextSession(language_bundle("ort-fp32"), conversations=4)
    assert loader.opened == []
    assert (
        "ort-fp32 needs 128 MB of memory and 100 MB are free: weights 0 MB, 4 caches of 300 tokens 0 MB, "
        "saved caches 64 MB, work 64 MB; give a smaller context, or build a smaller precision"
    ) in str(caught.value)
    assert caught.value.blame == "machine"
    with TextSession(language_bundle("ort-fp32"), kept_bytes=0, speculate="off"):
        assert loader.opened == ["ort-fp32"]


def test_a_plan_is_arithmetic() -> None:
    plan = plan_memory({OPTION: SHAPE.as_json()}, 1000, 100, 3, 50)
    assert plan.cache_bytes == 2 * 2 * 2 * 8 * 100 * 4
    assert plan.total_bytes == 1000 + 3 * plan.cache_bytes + 50 + (64 << 20)
    fixed = plan_memory({OPTION: SHAPE._replace(fixed=True).as_json()}, 0, 100, 1, 0)
    assert fixed.cache_bytes == 2 * 2 * 2 * 8 * SHAPE.context * 4
    assert plan_memory({OPTION: SHAPE.as_json()}, 0, None, 1, 0).capacity == SHAPE.context


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": 4}, "context must be a whole number from 16 to 512, the model's, not 4"),
        ({"context": 513}, "context must be a whole number from 16 to 512, the model's, not 513"),
        ({"conversations": 0}, "conversations must be a whole number from 1 to 64, not 0"),
        ({"kept_bytes": -1}, "kept_bytes must be a whole number from 0, not -1"),
        ({"speculate": "yes"}, "speculate must be one of auto, draft, lookup, off, not 'yes'"),
        ({"engine": "coreml"}, "new bundle has no variant for engine 'coreml'; it has ort"),
    ],
)
def test_an_option_that_does_not_fit_is_one_error(
    loader: Loader, options: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        TextSession(language_bundle("ort-fp32"), **options)  # type: ignore[arg-type]
    assert str(caught.value) == said


def test_what_is_no_language_model_says_so(loader: Loader) -> None:
    with pytest.raises(UsageError, match=r"is not a language model; open it with edgekit.runtime.Session"):
        TextSession(small_bundle())
    with pytest.raises(CardError, match=r"stop_ids must be 1 to 64 tokens"):
        TextSession(language_bundle("ort-fp32", stop_ids=[]))
    for context in (0, (1 << 27) + 1):
        with pytest.raises(CardError, match=rf"context_length is {context}; it must be 1 to "):
            TextSession(language_bundle("ort-fp32", context_length=context))
    with pytest.raises(BundleError, match=r"has no entry 'card/other.json'"):
        TextSession(language_bundle("ort-fp32", tokenizer="other.json"))
    session = TextSession(language_bundle("ort-fp32", template="{% for %}"), speculate="off")
    with session, pytest.raises(CardError, match="the chat template can't be used"):
        session.chat([{"role": "user", "content": "x"}])


def test_what_failed_is_tried_again_after_its_cooldown_when_no_text_goes_on(loader: Loader) -> None:
    loader.before["ort-fp32"] = failing_after(12)
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off", conversations=2) as session:
        whole = session.generate(PROMPT, max_tokens=30).text()
        assert session.active.variant == "tflite-fp32"
        assert session.generate(PROMPT, max_tokens=3).text() == whole[:3]
        assert session.active.variant == "tflite-fp32"
        loader.before.clear()
        health = session._decoders._health  # type: ignore[union-attr]
        (cooldown,) = health.cooldowns.values()
        health.cooldowns["ort-fp32"] = cooldown._replace(until_s=0.0)
        going = session.generate(PROMPT, max_tokens=30)
        going_text = next(going)
        # The text that went on first began on the first variant again.
        assert session.active.variant == "ort-fp32"
        assert session.fallbacks == ()
        assert going_text + "".join(going) == whole
        assert loader.opened == ["ort-fp32", "tflite-fp32", "ort-fp32"]


def test_a_text_that_goes_on_is_not_disturbed_by_a_retry(loader: Loader) -> None:
    loader.before["ort-fp32"] = failing_after(12)
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off", conversations=2) as session:
        session.generate(PROMPT, max_tokens=30).text()
        loader.before.clear()  # a retry would succeed
        going = session.generate(PROMPT, max_tokens=30)
        next(going)
        health = session._decoders._health  # type: ignore[union-attr]
        health.cooldowns["ort-fp32"] = health.cooldowns["ort-fp32"]._replace(until_s=0.0)
        session.generate("another", max_tokens=2).text()
        assert session.active.variant == "tflite-fp32"
        assert loader.opened == ["ort-fp32", "tflite-fp32"]


def test_one_that_fails_again_cools_down_for_twice_as_long(loader: Loader) -> None:
    loader.before["ort-fp32"] = failing_after(12)
    with TextSession(language_bundle("ort-fp32", "tflite-fp32"), speculate="off") as session:
        session.generate(PROMPT, max_tokens=30).text()
        health = session._decoders._health  # type: ignore[union-attr]
        health.cooldowns["ort-fp32"] = health.cooldowns["ort-fp32"]._replace(until_s=0.0)
        loader.refused["ort-fp32"] = EngineError("still broken")
        assert session.generate(PROMPT, max_tokens=3).text()
        assert session.active.variant == "tflite-fp32"
        assert health.cooldowns["ort-fp32"].failures == 2
