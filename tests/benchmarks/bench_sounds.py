"""Sounds: features, another rate and voice activity beside the libraries that models were trained with.

    python3 -m venv ENV
    ENV/bin/pip install -e '.[build,ort]' librosa==0.11.0 kaldi-native-fbank==1.23.0 scipy
    ENV/bin/pip install torch      # the CPU build is enough
    ENV/bin/pip install --no-deps silero-vad==6.2.3
    PYTHONPATH=. ENV/bin/python tests/benchmarks/bench_sounds.py MODELS --espeak espeak-ng

TensorFlow's front end is compared where it is installed (pip install tensorflow-cpu). MODELS holds
kws_ref_model_float32.onnx of mlcommons/tiny; the voice detector is the package's own file. espeak-ng
synthesizes speech and words.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit.compiler.evaluate.sound_files import read_sound
from edgekit.processing.audio_features import compute_features
from edgekit.processing.card import load_card
from edgekit.processing.inputs.audio_features import read_features
from edgekit.processing.resample import resample
from edgekit.runtime import Session

Array = Any
RATE = 16000
CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
VOICES = ("en-us", "en-gb", "en-us+f3", "en-gb+m3")
TALK = (
    'First sentence. <break time="1500ms"/> A second one, <break time="300ms"/> and a third. '
    '<break time="3s"/> Bye.'
)
RATES = ((44100, 16000), (48000, 16000), (22050, 16000), (8000, 16000), (16000, 48000), (44101, 16000))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path)
    parser.add_argument("--espeak", default="espeak-ng")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    features()
    rates()
    with tempfile.TemporaryDirectory() as folder:
        keywords(given.models / "kws_ref_model_float32.onnx", given.espeak, Path(folder))
        voice_activity(given.espeak, Path(folder))


def features() -> None:
    """The greatest difference to each library, beside the greatest value."""
    import kaldi_native_fbank as kaldi
    import librosa
    from scipy import signal

    rng = np.random.default_rng(0)
    sound = 0.1 * rng.normal(size=RATE) + np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    slaney: dict[str, Any] = {"mel_scale": "slaney", "mel_norm": "slaney"}
    stft: dict[str, Any] = {"n_fft": 512, "hop_length": 160, "win_length": 400}
    cut: dict[str, Any] = {"frame": 400, "n_fft": 512, "hop": 160, "align": "center"}

    def row(name: str, expected: Array, scale: float = 1.0, **table: Any) -> None:
        settings = read_features(table, RATE, "features")
        found = compute_features(scale * sound, settings, RATE)
        took = fastest(lambda: compute_features(sound, settings, RATE))
        difference = np.abs(found - expected).max()
        print(
            f"  {name:34} {difference:9.2g} of {np.abs(expected).max():7.4g}   {1000 * took:6.3f} ms a second"
        )

    print("features: greatest difference")
    row(
        "librosa melspectrogram, slaney",
        librosa.feature.melspectrogram(y=sound, sr=RATE, **stft, n_mels=64).T,
        kind="mel", center="constant", mels=64, **cut, **slaney,
    )  # fmt: skip
    row(
        "librosa melspectrogram, htk",
        librosa.feature.melspectrogram(
            y=sound, sr=RATE, **stft, n_mels=40, center=False, power=1.0, htk=True, norm=None, fmin=60,
            fmax=7600, window="hamming",
        ).T,
        kind="mel", mels=40, power=1, fmin=60, fmax=7600, window="hamming", **cut,
    )  # fmt: skip
    row(
        "librosa mfcc",
        librosa.feature.mfcc(y=sound, sr=RATE, n_fft=512, hop_length=160, n_mels=64, n_mfcc=20).T,
        kind="mfcc", frame=512, hop=160, center="constant", mels=64, log="db", floor=1e-10, range=80,
        coefficients=20, **slaney,
    )  # fmt: skip
    hann = np.hanning(401)[:-1]
    spectrum = signal.stft(sound, RATE, nperseg=400, noverlap=240, nfft=512, boundary=None, padded=False)[2]
    row("scipy stft", np.abs(spectrum.T) * hann.sum(), kind="spectrogram", frame=400, hop=160, power=1)
    options = kaldi.FbankOptions()
    options.frame_opts.dither, options.mel_opts.num_bins = 0, 80
    fbank = kaldi.OnlineFbank(options)
    fbank.accept_waveform(RATE, (32768 * sound).astype(np.float32).tolist())
    row(
        "kaldi-native-fbank",
        np.array([fbank.get_frame(i) for i in range(fbank.num_frames_ready)]),
        32768.0,
        kind="mel", frame=400, hop=160, window="povey", preemphasis=0.97, remove_dc=True, mels=80, fmin=20,
        triangles="mel", log="ln", floor=1.1920929e-07,
    )  # fmt: skip
    if find_spec("tensorflow") is None:
        print("  TensorFlow is not installed: not compared")
        return
    entry: Any = load_card(CARDS / "kws_ref_model_float32.toml").sources()[0]
    table = entry.features.as_json()
    row("TensorFlow, MLPerf Tiny's keywords", tensorflow_mfcc(sound), 1 / sound.max(), **table)


def tensorflow_mfcc(sound: Array) -> Array:
    """What mlcommons/tiny, keyword_spotting/get_dataset.py, calls."""
    import tensorflow as tf

    samples = tf.cast(sound, tf.float32)
    frames = tf.signal.stft(samples / tf.reduce_max(samples), 480, 320, window_fn=tf.signal.hann_window)
    bands = tf.signal.linear_to_mel_weight_matrix(40, frames.shape[-1], RATE, 20.0, 4000.0)
    log = tf.math.log(tf.tensordot(tf.abs(frames), bands, 1) + 1e-6)
    return tf.signal.mfccs_from_log_mel_spectrograms(log)[..., :10].numpy()


def rates() -> None:
    """How far the pass band is flat, what is left beyond the new band, and the time of a second of sound."""
    from scipy.signal import resample_poly

    print(
        "\nanother rate: passes to (part of the lower band), folded back, ms a second; scipy's resample_poly"
    )
    for rate, new_rate in RATES:
        cells = []
        for change in (resample, lambda x, a, b: resample_poly(x, b // np.gcd(a, b), a // np.gcd(a, b))):
            passes, folded = tones(change, rate, new_rate)
            took = fastest(lambda: change(np.ones(rate), rate, new_rate), 3)  # noqa: B023
            cells.append(f"{passes:4.2f} {folded:7.1f} dB {1000 * took:7.2f} ms")
        print(f"  {rate:6} -> {new_rate:6}   {cells[0]}   {cells[1]}")


def tones(change: Callable[[Array, int, int], Array], rate: int, new_rate: int) -> tuple[float, float]:
    low, time_s = min(rate, new_rate) / 2, np.arange(rate) / rate
    middle = slice(new_rate // 4, 3 * new_rate // 4)
    passes, folded = 0.0, -np.inf
    for part in np.linspace(0.02, 0.99, 60):
        tone = change(np.sin(2 * np.pi * part * low * time_s), rate, new_rate)
        expected = np.sin(2 * np.pi * part * low * np.arange(len(tone)) / new_rate)
        if np.abs(tone - expected)[middle].max() > 1e-3:
            break
        passes = part
    for part in np.linspace(1.0, 0.99 * rate / new_rate, 30) if rate > new_rate else ():
        tone = change(np.sin(2 * np.pi * part * low * time_s), rate, new_rate)
        folded = max(folded, 20 * np.log10(np.abs(tone[middle]).max()))
    return passes, folded


def keywords(model: Path, espeak: str, folder: Path) -> None:
    """Synthesized words, by engine: the network has heard people only."""
    card = load_card(CARDS / "kws_ref_model_float32.toml")
    path = edgekit.build(model, targets=["ort"], card=card).save(folder / "kws.edgekit")
    print("\nkeywords, spoken by espeak-ng: right of 10, by voice")
    with Session(path) as session:
        for voice in VOICES:
            heard = []
            for word in WORDS:
                samples, rate = read_sound(spoken(espeak, folder, voice, word))
                heard.append(session.predict(samples[: int(0.999 * rate)], rate=rate)[0].label)
            right = [word for word, label in zip(WORDS, heard, strict=True) if word == label]
            print(f"  {voice:10} {len(right):2}   {' '.join(right)}")


def voice_activity(espeak: str, folder: Path) -> None:
    """Probabilities and segments beside the package's own code on its own model."""
    import silero_vad
    import torch
    from silero_vad.utils_vad import OnnxWrapper, get_speech_timestamps

    model = Path(silero_vad.__file__).parent / "data" / "silero_vad.onnx"
    card = load_card(CARDS / "silero_vad.toml")
    path = edgekit.build(model, targets=targets(), card=card).save(folder / "vad.edgekit")
    origin = OnnxWrapper(str(model))
    print(
        "\nvoice activity: greatest difference of a probability, segments, greatest difference of an end in s"
    )
    for voice in VOICES:
        samples, rate = read_sound(spoken(espeak, folder, voice, TALK))
        sound = resample(samples[:, 0] / 32768, rate, RATE).astype(np.float32)
        expected = list(windows_of(origin, torch.from_numpy(sound)))
        spans = get_speech_timestamps(torch.from_numpy(sound), origin)
        ends = np.array([[span["start"], span["end"]] for span in spans]) / RATE
        for engine in targets():
            with Session(path, engine=engine, strict=True) as session:
                listening = list(session.listen(sound))
                found = [window.prediction.probability for window in listening]
                answer = session.listen(sound).answer()
            own = np.array([[each.start_s, each.end_s] for each in answer])
            apart = np.abs(own - ends).max() if own.shape == ends.shape else np.inf
            difference = np.abs(np.subtract(found, expected)).max()
            print(f"  {voice:10} {engine:9} {difference:8.2g}   {len(own)} of {len(ends)}   {apart:8.2g}")


def windows_of(origin: Any, sound: Any) -> Iterator[float]:
    origin.reset_states()
    for start in range(0, len(sound), 512):
        piece = sound[start : start + 512]
        padded = piece.new_zeros(512)
        padded[: len(piece)] = piece
        yield origin(padded, RATE).item()


def targets() -> list[str]:
    engines = {"ort": "onnxruntime", "tflite": "ai_edge_litert", "openvino": "openvino"}
    return [target for target, package in engines.items() if find_spec(package) is not None]


def spoken(espeak: str, folder: Path, voice: str, text: str) -> Path:
    path = folder / "spoken.wav"
    subprocess.run([espeak, "-m", "-s", "140", "-v", voice, "-w", path, text], check=True)
    return path


def fastest(call: Callable[[], object], count: int = 20) -> float:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return min(took)


if __name__ == "__main__":
    main()
