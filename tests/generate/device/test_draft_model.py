"""A draft in the bundle: the same text whatever it guesses, on where it pays, and off with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from edgekit.errors import BundleError, UsageError
from edgekit.generate import TextSession
from edgekit.generate.device.cached_decoder import PART_TOKENS
from edgekit.generate.device.draft_model import DraftModel
from edgekit.generate.device.measure_speculation import speculation_on
from edgekit.generate.device.speculation import StepTimes, draft_gain, draft_pays
from edgekit.generate.device.text_metrics import TextMetrics
from edgekit.generate.device.text_stream import TextStream
from edgekit.system import timings
from tests.fixtures.language_bundles import Loader, language_bundle
from tests.fixtures.numpy_decoder import SHAPE, NumpyDecoder

MEASURE = "edgekit.generate.device.measure_speculation"
PROMPT = "once upon a time"
DRAFT = {"ort-draft": SHAPE}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 4},
    {"temperature": 1.2, "seed": 5, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.3},
    {"stop": ["e", "a"]},
]


def noise(seed: int) -> Callable[[NumpyDecoder], None]:
    """Makes a decoder a poorer one."""

    def change(decoder: NumpyDecoder) -> None:
        draws = np.random.default_rng(seed)
        decoder.output = decoder.output + draws.normal(0, 0.25, decoder.output.shape).astype(np.float32)

    return change


@pytest.mark.needs_tokenizers
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_text_is_that_without_a_draft(loader: Loader, seed: int | None, options: dict[str, Any]) -> None:
    with TextSession(language_bundle("ort-fp32"), speculate="off") as session:
        plain = session.generate(PROMPT, max_tokens=60, **options)
        text = plain.text()
    if seed is not None:
        loader.changed["ort-draft"] = noise(seed)
    metrics = TextMetrics()
    with TextSession(
        language_bundle("ort-fp32", drafts=DRAFT), speculate="draft", metrics=metrics
    ) as session:
        stream = session.generate(PROMPT, max_tokens=60, **options)
        assert stream.text() == text
        assert stream.tokens == plain.tokens
        assert session.facts()["speculation"]["by"] == "draft"
    result, counted = stream.result, metrics.snapshot()
    assert (result.reason, result.tokens) == (plain.result.reason, plain.result.tokens)
    assert 0 < result.proposed == counted["proposed"]
    assert result.accepted == counted["accepted"]
    if seed is None and not options:
        assert (result.accepted, result.steps) == (result.proposed, 12)  # 59 tokens, 5 a step
    elif not options:
        assert 0 < result.accepted < result.proposed
    assert loader.runners["ort-draft"].closed


@pytest.mark.needs_tokenizers
def test_a_draft_reads_a_text_once_and_what_follows_from_its_cache(loader: Loader) -> None:
    bundle = language_bundle("ort-fp32", drafts=DRAFT)
    with TextSession(bundle, speculate="draft") as session:
        draft = loader.runners["ort-draft"]
        measured = draft.computed
        first = session.generate(PROMPT, max_tokens=21)
        whole = PROMPT + first.text()
        # The last step of 21 = 1 + 4 * 5 proposes 4; all but the last token of each proposal is read.
        assert draft.computed - measured == len(PROMPT) + 21 - 2
        session.generate(whole + "!", max_tokens=3).text()
        assert draft.computed - measured < 2 * len(whole)


@pytest.mark.needs_tokenizers
def test_texts_in_turns_have_a_draft_cache_each(loader: Loader) -> None:
    prompts = (PROMPT, "the cat sat on the mat")
    with TextSession(language_bundle("ort-fp32"), speculate="off") as session:
        alone = [session.generate(prompt, max_tokens=40).text() for prompt in prompts]
    computed: list[int] = []
    for conversations in (1, 2):
        read = [0]

        def count(tokens: Sequence[int], read: list[int] = read) -> None:
            read[0] += len(tokens)

        loader.before["ort-draft"] = count
        bundle = language_bundle("ort-fp32", drafts=DRAFT)
        with TextSession(bundle, speculate="draft", conversations=conversations) as session:
            streams = [session.generate(prompt, max_tokens=40) for prompt in prompts]
            texts = ["", ""]
            while not all(stream.ended for stream in streams):
                for index, stream in enumerate(streams):
                    texts[index] += next(stream, "")
            assert texts == alone
        computed.append(read[0])
    assert computed[1] < computed[0] / 2


@pytest.mark.needs_tokenizers
def test_a_draft_that_fails_is_left_out_and_the_text_goes_on(loader: Loader) -> None:
    with TextSession(language_bundle("ort-fp32"), speculate="off") as session:
        text = session.generate(PROMPT, max_tokens=40).text()

    def before(tokens: Sequence[int]) -> None:
        if tokens[0] and loader.runners["ort-draft"].length > len(PROMPT) + 8:
            raise RuntimeError("kernel died")

    loader.before["ort-draft"] = before
    with TextSession(language_bundle("ort-fp32", drafts=DRAFT), speculate="draft") as session:
        assert session.facts()["speculation"]["on"]
        stream = session.generate(PROMPT, max_tokens=40)
        assert stream.text() == text
        assert stream.result.accepted > 0
        assert session.facts()["speculation"] == {
            "on": False,
            "why": "the draft failed: RuntimeError: kernel died",
        }
        assert loader.runners["ort-draft"].closed
        assert session.generate(PROMPT, max_tokens=40).text() == text


@pytest.mark.needs_tokenizers
def test_a_text_that_is_cancelled_while_the_draft_reads_ends_within_a_step(loader: Loader) -> None:
    streams: list[TextStream] = []

    def before(tokens: Sequence[int]) -> None:
        if tokens[0]:
            streams[0].cancel()

    loader.before["ort-draft"] = before
    with TextSession(language_bundle("ort-fp32", drafts=DRAFT), speculate="draft") as session:
        measured = loader.runners["ort-draft"].computed
        streams.append(session.generate("a" * 280, max_tokens=15))
        streams[0].text()
        assert streams[0].result.reason == "cancelled"
        assert loader.runners["ort-draft"].computed - measured == PART_TOKENS


@pytest.mark.needs_tokenizers
def test_another_engine_has_a_draft_of_its_own(loader: Loader) -> None:
    with TextSession(language_bundle("ort-fp32"), speculate="off") as session:
        text = session.generate(PROMPT, max_tokens=30).text()

    def before(tokens: Sequence[int]) -> None:
        if tokens[0] > 15 and loader.runners["ort-fp32"].length > len(PROMPT) + 8:  # measured are 0 to 15
            raise RuntimeError("kernel died")

    loader.before["ort-fp32"] = before
    drafts = {"ort-draft": SHAPE, "tflite-draft": SHAPE}
    with TextSession(language_bundle("ort-fp32", "tflite-fp32", drafts=drafts), speculate="draft") as session:
        assert session.generate(PROMPT, max_tokens=30).text() == text
        assert session.active.variant == "tflite-fp32"
    assert loader.opened[1:] == ["ort-fp32", "ort-draft", "tflite-fp32", "tflite-draft"]
    assert loader.runners["ort-draft"].closed
    assert loader.runners["tflite-draft"].computed > len(PROMPT)


@pytest.mark.needs_tokenizers
def test_a_draft_of_a_shorter_context_guesses_no_further(loader: Loader) -> None:
    with TextSession(language_bundle("ort-fp32"), speculate="off") as session:
        text = session.generate(PROMPT, max_tokens=90).text()
    short = {"ort-draft": SHAPE._replace(context=64)}
    loader.changed["ort-draft"] = lambda decoder: setattr(decoder, "capacity", 64)
    with TextSession(language_bundle("ort-fp32", drafts=short), speculate="draft") as session:
        stream = session.generate(PROMPT, max_tokens=90)
        assert stream.text() == text
    assert 0 < stream.result.proposed <= 64 - len(PROMPT)


@pytest.mark.needs_tokenizers
@pytest.mark.parametrize(
    ("drafts", "why"),
    [
        ({"tflite-draft": SHAPE}, "the bundle's draft has no variant for ort"),
        (
            {"ort-draft": SHAPE._replace(vocabulary=99)},
            f"it has 99 tokens and the model {SHAPE.vocabulary}",
        ),
    ],
)
def test_a_draft_that_does_not_fit_is_left_out_with_the_reason(
    loader: Loader, drafts: dict[str, Any], why: str
) -> None:
    with TextSession(language_bundle("ort-fp32", drafts=drafts), speculate="draft") as session:
        said = session.facts()["speculation"]
        assert said == {"on": False, "why": f"the draft did not load: {why}"}
        assert session.generate(PROMPT, max_tokens=5).text()
    with TextSession(language_bundle("ort-fp32", drafts=drafts)) as session:
        assert f"the draft did not load: {why}; by lookup: " in session.facts()["speculation"]["why"]


@pytest.mark.needs_tokenizers
def test_memory_of_a_draft_is_counted_beside_the_model(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = 2 * SHAPE.cache_bytes(300)
    free = (64 << 20) + len("ort-fp32") + 2 * cache
    for more, fits in ((0, False), (len("ort-draft"), True)):
        monkeypatch.setattr(
            "edgekit.generate.device.memory_plan.free_memory_bytes", lambda more=more: free + more
        )
        bundle = language_bundle("ort-fp32", drafts=DRAFT)
        with TextSession(bundle, speculate="draft", conversations=2, kept_bytes=0) as session:
            said = session.facts()["speculation"]
            assert said["on"] is fits, said
            assert fits or said["why"].endswith(
                "the draft ort-draft needs 0 MB of memory and 0 MB are free beside the model"
            )


@pytest.mark.needs_tokenizers
def test_where_there_is_no_draft_or_a_malformed_one_there_is_one_error(loader: Loader) -> None:
    with pytest.raises(UsageError) as caught:
        TextSession(language_bundle("ort-fp32"), speculate="draft")
    assert str(caught.value) == (
        "speculate is draft, and the bundle has none: build it with edgekit build --draft, or give auto"
    )
    bundle = language_bundle("ort-fp32", drafts=DRAFT)
    bundle.manifest["extensions"]["draft"]["agreement"] = 2
    with pytest.raises(BundleError) as raised:
        TextSession(bundle)
    assert str(raised.value) == (
        "new bundle has a draft that cannot be used\n"
        "  extensions.draft.agreement: 2 where a number from 0 to 1 is expected; build it again"
    )
    assert loader.runners["ort-fp32"].closed
    bundle.manifest["extensions"]["draft"].update(agreement=0.5, logits="golden/other.npy")
    with pytest.raises(BundleError, match=r"extensions\.draft: entry 'golden/other\.npy' does not exist"):
        TextSession(bundle)
    with TextSession(bundle, speculate="lookup") as session:  # which does not look at it
        assert session.facts()["speculation"]["by"] == "lookup"


def test_what_a_draft_brings_is_arithmetic() -> None:
    times = StepTimes(10, 14, 4)
    assert draft_gain(times, 1, 0.0).gain < 1
    right = draft_gain(times, 1, 1.0)
    assert right.max_tokens == 4
    assert right.gain == pytest.approx(50 / 18)
    assert draft_gain(times, 1, 0.3).max_tokens < draft_gain(times, 1, 0.9).max_tokens
    on, why, _ = draft_pays(times, 3, 0.7)
    assert (on, why) == (
        True,
        "a token of the draft costs 0.30 of a plain step here and 0.70 of them are right: "
        "1.22 times the speed is expected with 2 a step",
    )
    assert not draft_pays(times, 5, 0.5)[0]
    assert draft_pays(StepTimes(10, 14, 4, is_exact=False), 1, 1.0)[:2] == (
        False,
        "a step of 5 rows rounds differently than 5 steps here, which may change a text",
    )


@pytest.mark.parametrize(("draft_ms", "by"), [(1.0, "draft"), (9.0, "lookup")])
def test_auto_takes_the_draft_where_it_pays_and_remembers_its_time(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, draft_ms: float, by: str
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path))
    loads: list[NumpyDecoder] = []

    def load() -> NumpyDecoder:
        loads.append(NumpyDecoder())
        return loads[-1]

    def took(self: DraftModel, history: int, rounds: int) -> float:
        self.load()
        return draft_ms

    monkeypatch.setattr(f"{MEASURE}._measured", lambda *given: StepTimes(10, 14, 4))
    monkeypatch.setattr(DraftModel, "measured_ms", took)
    decide = partial(speculation_on, NumpyDecoder(), "auto", "artifact", 1)
    first = decide(DraftModel(load, 0.8, "draft"))
    assert (first.on, first.proposer) == (True, by)
    assert ("by lookup" in first.reason) is (by == "lookup")
    assert [decoder.closed for decoder in loads] == [by == "lookup"]
    monkeypatch.setattr(DraftModel, "measured_ms", None)
    assert decide(DraftModel(load, 0.8, "draft")) == first
    assert len(loads) == (2 if by == "draft" else 1)  # what does not pay is not loaded again
    assert first.break_even == pytest.approx(1.8 if by == "draft" else 1.4)


def test_its_time_is_measured_on_an_empty_cache_that_is_empty_again(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path))
    decoder = NumpyDecoder()
    draft = DraftModel(lambda: decoder, 0.8)
    assert draft.measured_ms(32, 5) > 0
    assert (decoder.length, decoder.computed) == (0, 37)
    assert not timings.timings_folder().exists()
