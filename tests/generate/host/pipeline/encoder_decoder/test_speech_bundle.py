"""A speech model from its folder to a bundle and to text, on every engine."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.cli import main
from edgekit.errors import EngineError, UsageError
from edgekit.generate.host.pipeline.encoder_decoder.job import with_folded_norms
from edgekit.generate.host.pipeline.encoder_decoder.speech import card_of, read_recordings
from edgekit.generate.host.readers.encoder_decoder.config import EMBEDDING
from edgekit.generate.host.readers.encoder_decoder.reference import ReferenceModel
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.processing.processing import prepare
from edgekit.runtime import Session, Transcriber
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.fixtures.sounds import wav
from tests.fixtures.whisper_folders import NO_TIMESTAMPS, START, speech, weights, write_whisper

ENGINES = [
    pytest.param("ort", marks=pytest.mark.needs_ort),
    pytest.param("openvino", marks=pytest.mark.needs_openvino),
    pytest.param("tflite", marks=pytest.mark.needs_tflite),
]
pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whisper(tmp_path_factory.mktemp("speech") / "whisper")


@pytest.fixture(scope="module")
def reference(folder: Path) -> str:
    """The float reference's text of ``speech()``, without timestamps."""
    model = open_speech_model(folder)
    features = session_features(folder)
    decoder = ReferenceModel(model)
    tokens = decoder.generate(decoder.encode(features), [START, NO_TIMESTAMPS], 24)
    assert len(set(tokens)) > 3
    return model.text_of(tokens)


def session_features(folder: Path) -> Array:
    found: Array = prepare(card_of(open_speech_model(folder)), speech())[0]["features"][0]
    return found


@pytest.fixture(scope="module")
def built(folder: Path) -> Iterator[Bundle]:
    """One bundle for all engines that are installed here."""
    names = [name for name in ("ort", "openvino", "tflite") if find_target(name).missing() is None]
    path = folder.parent / "talk.edgekit"
    edgekit.build(folder, targets=names, precision="auto").save(path)
    with Bundle.open(path) as bundle:
        yield bundle


def find_target(name: str) -> BuildTarget:
    return resolve(find_profile(name))


@pytest.mark.parametrize("target", ENGINES)
def test_every_engine_writes_the_references_text(target: str, built: Bundle, reference: str) -> None:
    floats, integers = (v for v in built.variants if v.target == target)
    assert (floats.name, integers.name) == (f"{target}-fp32", f"{target}-int8")
    assert floats.verified, floats.status
    assert integers.verified, integers.status
    assert floats.evidence["accuracy"]["logits"]["snr_db"] > 90
    assert integers.evidence["accuracy"]["logits"]["snr_db"] > 10
    assert floats.evidence["transcription"]["given"] is False
    with Session(built, variant=f"{target}-fp32", strict=True, threads=1) as session:
        assert session.predict(speech(), timestamps=False).text == reference
        timed = session.predict(speech())
        assert timed.segments
        assert all(0 <= s.start_s <= s.end_s <= 0.5 for s in timed.segments)
        assert len(session.predict(speech(1.3), timestamps=False).segments) >= 3


@pytest.mark.parametrize("target", ENGINES)
def test_the_embedding_is_stored_once(target: str, built: Bundle) -> None:
    variant = next(v for v in built.variants if v.name == f"{target}-fp32")
    rows, files = weights()[EMBEDDING], variant.files.items()
    content = b"".join(built.read(entry) for name, entry in files if name.startswith("decoder/"))
    assert sum(content.count(np.ascontiguousarray(each).tobytes()) for each in (rows, rows.T)) == 1


def test_another_variant_continues_where_an_engine_fails(
    built: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(built, variant="ort-int8", threads=1) as session:
        assert session.active.variant == "ort-int8"

        def fails(feeds: object) -> dict[str, np.ndarray]:
            raise EngineError("the engine is gone")

        monkeypatch.setattr(session.runner._decoder, "run", fails)  # type: ignore[attr-defined]
        text = session.predict(speech(), timestamps=False).text
        following = session.active.variant
        assert following != "ort-int8"
        assert "the engine is gone" in session.fallbacks[0].reason
    with Session(built, variant=following, threads=1) as session:
        assert session.predict(speech(), timestamps=False).text == text


def test_the_command_line_builds_runs_and_verifies(folder: Path, tmp_path: Path, reference: str) -> None:
    sounds = tmp_path / "sounds"
    sounds.mkdir()
    samples = np.rint(speech() * 30000).astype("<i2")
    (sounds / "talk.wav").write_bytes(wav(samples.tobytes()))
    path = tmp_path / "talk.edgekit"
    command = ["build", str(folder), "-t", "ort", "-o", str(path), "--samples", str(sounds)]
    built = CliRunner().invoke(main, command)
    assert built.exit_code == 0, built.output
    ran = CliRunner().invoke(main, ["run", str(path), "-i", str(sounds / "talk.wav"), "--json"])
    assert ran.exit_code == 0, ran.output
    answer = json.loads(ran.stdout)["answer"]
    assert answer["text"] == " ".join(segment["text"] for segment in answer["segments"])
    live = CliRunner().invoke(main, ["run", str(path), "-i", "-", "--json"], samples.tobytes() + b"x")
    assert live.exit_code == 0, live.output
    said = json.loads(live.stdout)["answer"]["text"]
    assert said
    assert live.stderr.split() == said.split()
    plain = CliRunner().invoke(main, ["run", str(path), "-i", "-"], samples.tobytes())
    assert plain.stdout.split("  ran ")[0].split() == said.split()
    refused = CliRunner().invoke(main, ["run", str(path), "-i", "-", "-o", "x.npz"], b"")
    assert (refused.exit_code, refused.stderr) == (2, "error: -o does not go with -i -\n")
    verified = CliRunner().invoke(main, ["verify", str(path)])
    assert verified.exit_code == 0, verified.output
    with Bundle.open(path) as bundle:
        transcription = bundle.variants[0].evidence["transcription"]
    assert (transcription["given"], transcription["different"], transcription["recordings"]) == (True, 0, 1)
    assert transcription["words"] > 2


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
def test_an_interrupt_ends_a_live_sound_with_its_last_words(built: Bundle, folder: Path) -> None:
    command = [sys.executable, "-m", "edgekit", "run", str(folder.parent / "talk.edgekit"), "-i", "-"]
    command += ["--variant", "ort-fp32"]
    sound = np.rint(speech(0.512) * 30000).astype("<i2")  # one block of the pipe
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in the background
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(sound.tobytes())
        process.stdin.flush()
        begun = process.stdout.read(8)  # the sound was cut at half a second, the rest waits for more
        assert begun.strip()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().decode()
    assert process.returncode == 0
    said, ran = (begun.decode() + rest).split("  ran ")
    assert said.endswith("\n")
    assert "ort-fp32" in ran
    with Session(built, variant="ort-fp32") as session:
        transcriber = Transcriber(session)
        first, last = (
            "".join(u.text for u in found) for found in (transcriber.feed(sound), transcriber.finish())
        )
    assert last
    assert said.split() == (first + last).split()


def test_what_does_not_apply_is_refused(folder: Path) -> None:
    def refusal(**options: object) -> str:
        with pytest.raises(UsageError) as refused:
            edgekit.build(folder, **{"targets": ["ort"], **options})  # type: ignore[arg-type]
        return str(refused.value)

    assert (
        refusal(precision="int4")
        == "speech models cannot be built as 'int4'; available: fp32, fp16, int8, auto"
    )
    assert refusal(io="nhwc") == "io: does not apply to speech models; leave it out"
    assert refusal(max_drop="2%", precision="int8") == (
        "max_drop of speech models needs recordings; add samples=FOLDER"
    )
    assert refusal(max_drop="20dB", precision="int8", samples="x").startswith(
        "max_drop is '20dB'; for speech"
    )


def test_folded_norms_keep_the_logits(folder: Path) -> None:
    model = open_speech_model(folder)
    features = read_recordings(None, card_of(model).inputs["features"]).all[0].values  # type: ignore[arg-type]
    rows = []
    for each in (model, with_folded_norms(model)):
        decoder = ReferenceModel(each)
        rows.append(decoder.logits(decoder.encode(features), [START, 4, 7], []))
    np.testing.assert_allclose(rows[0], rows[1], rtol=2e-3, atol=2e-3)
