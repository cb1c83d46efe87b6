"""Moonshine from its folder to a bundle and to text, on every engine, at every length."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.errors import UsageError
from edgekit.generate.device.embedding_table import LEAST_SAMPLES
from edgekit.generate.host.readers.encoder_decoder.config import EMBEDDING
from edgekit.generate.host.readers.encoder_decoder.reference import ReferenceModel
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.runtime import Session, Transcriber
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.moonshine_folders import SMALL as SIZES
from tests.fixtures.moonshine_folders import START, tensors_of, write_moonshine
from tests.fixtures.whisper_folders import speech

ENGINES = [
    pytest.param("ort", marks=pytest.mark.needs_ort),
    pytest.param("openvino", marks=pytest.mark.needs_openvino),
    pytest.param("tflite", marks=pytest.mark.needs_tflite),
]
LENGTHS = {400: 0, 895: 0, 13_280: 0, 63_999: 0, 64_000: 0, 64_001: 1, 100_000: 1, 200_000: 2, 470_000: 3}
"""Samples of a sound -> number of the window that it runs in."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_moonshine(tmp_path_factory.mktemp("speech") / "moonshine")


@pytest.fixture(scope="module")
def built(folder: Path) -> Iterator[Bundle]:
    """One bundle for all engines that are installed here."""
    targets = [n for n in ("ort", "openvino", "tflite") if resolve(find_profile(n)).missing() is None]
    path = folder.parent / "talk.edgekit"
    edgekit.build(folder, targets=targets, precision="auto").save(path)
    with Bundle.open(path) as bundle:
        yield bundle


@pytest.mark.parametrize("target", ENGINES)
def test_every_engine_writes_the_references_text_at_every_length(
    target: str, built: Bundle, folder: Path
) -> None:
    floats, integers = (v for v in built.variants if v.target == target)
    assert floats.verified, floats.status
    assert integers.verified, integers.status
    figures = [v.evidence["accuracy"]["logits"]["snr_db"] for v in (floats, integers)]
    print(f"Moonshine, {target}: fp32 {figures[0]:.0f} dB, int8 {figures[1]:.0f} dB")
    assert figures[0] > 90
    assert figures[1] > 15
    assert floats.evidence["transcription"]["recordings"] == 4
    model = open_speech_model(folder)
    reference = ReferenceModel(model)
    with Session(built, variant=f"{target}-fp32", strict=True, threads=1) as session:
        for samples, window in LENGTHS.items():
            sound = speech(samples / 16000)
            padded = np.concatenate([sound, np.zeros(max(0, LEAST_SAMPLES - samples))])
            limit = min(max(1, int(6.5 * samples / 16000)), SIZES.context - 1)
            tokens = reference.generate(reference.encode(padded.astype(np.float32)), [START], limit)
            before = list(session.runner.runs.values())  # type: ignore[attr-defined]
            transcript = session.predict(sound)
            assert transcript.text == model.text_of(tokens), samples
            after = list(session.runner.runs.values())  # type: ignore[attr-defined]
            ran = [now - then for now, then in zip(after, before, strict=True)]
            assert ran == [int(number == window) for number in range(3)], samples


@pytest.mark.needs_ort
def test_weights_of_16_bits(folder: Path) -> None:
    bundle = edgekit.build(folder, targets=["ort"], precision="fp16")
    half = next(variant for variant in bundle.variants if variant.precision == "fp16")
    assert half.verified, half.status
    assert half.evidence["accuracy"]["logits"]["snr_db"] > 30
    with Session(bundle, variant="ort-fp16", strict=True, threads=1) as session:
        assert session.predict(speech(3.0)).text


def test_all_variants_verify_again_at_all_lengths(built: Bundle) -> None:
    assert [spec.shape for inputs, _ in built.shapes for spec in inputs if spec.name == "samples"] == [
        (1, 64_000), (1, 128_000), (1, 256_000), (1, 480_000),
    ]  # fmt: skip
    assert len(built.manifest["extensions"]["shapes"]) == 3
    checks = verify_bundle(built)
    assert [check.outcome for check in checks] == [CheckOutcome.VERIFIED] * len(built.variants), checks


@pytest.mark.parametrize("target", ENGINES)
def test_the_weights_are_stored_once_for_all_lengths(target: str, built: Bundle) -> None:
    variant = next(v for v in built.variants if v.name == f"{target}-fp32")
    contents = {entry: bytes(built.read(entry)) for entry in variant.files.values()}
    tensors = tensors_of(SIZES)
    for name in (EMBEDDING, "encoder.layers.1.mlp.fc1.weight"):
        rows = tensors[f"model.{name}"]
        stored = [
            c.count(np.ascontiguousarray(a).tobytes()) for c in contents.values() for a in (rows, rows.T)
        ]
        assert sum(stored) == 1, name


@pytest.mark.needs_tflite
def test_litert_runs_all_lengths_on_one_interpreter(built: Bundle) -> None:
    with Session(built, variant="tflite-int8", strict=True, threads=1) as session:
        session.predict(speech(1.0))
        (opened,) = session.runner._opened.values()  # type: ignore[attr-defined]
        largest = session.runner._largest  # type: ignore[attr-defined]
        assert opened._encoder._interpreter is largest._encoder.interpreter
        assert opened._decoder._interpreter is largest._decoder.interpreter


@pytest.mark.needs_ort
def test_a_long_sound_is_cut_where_it_is_quiet(built: Bundle) -> None:
    with Session(built, variant="ort-fp32", threads=1) as session:
        segments = session.predict(np.tile(speech(2.0), 17)).segments
        assert segments[0].window_s == 0
        assert 25 <= segments[1].start_s <= 30
        assert segments[-1].end_s == 34
        transcriber = Transcriber(session)
        updates = [*transcriber.feed(speech(3.0)), *transcriber.finish()]
    assert "".join(update.text for update in updates).strip()


@pytest.mark.needs_ort
def test_options_that_it_does_not_have_are_refused(built: Bundle) -> None:
    with Session(built, variant="ort-fp32", threads=1) as session:
        for options, message in (
            ({"timestamps": True}, "timestamps is true, but the model has no timestamps; leave it out"),
            ({"translate": True}, "translate is true, but the model knows one language only; leave it out"),
            ({"language": "de"}, "language is 'de'; the model knows one language only, so leave it out"),
        ):
            with pytest.raises(UsageError) as refused:
                session.predict(speech(), **options)
            assert message in str(refused.value)
