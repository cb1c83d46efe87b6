"""Python and libedgekit on the same random cards of sounds.

    python -m tests.native.sounds 2000 [--first 0]

Sounds arrive in pieces, at the card's rate or another one. Windows of samples at the card's rate are equal
bit for bit. Features and other rates are sums of float64 in another order than numpy's: LIMITS.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.bundle import Bundle
from edgekit.processing.audio_preparation import mono, prepare_audio
from edgekit.processing.card import parse_card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.inputs.audio_features import read_features
from edgekit.tensor_spec import Array, Json
from tests.native.library import link_program

LIMITS = {"float32": 1e-6, "float16": 2e-3}
"""Largest difference of a value of a window, as a part of the largest one: 8 and 2 ulp. An integer may differ
by 1, where its real value lies between two."""
PROGRAM = Path(__file__).with_name("run_sounds.cpp")


class SoundCase(NamedTuple):
    """One card with a sound.

    Attributes:
        inputs: The card's inputs.
        rate: Rate of the sound in Hz.
        piece: Samples of a piece.
        ends: Whether the sound ends, so that zeros fill up its last window.
        sound: float32 [n].
    """

    inputs: dict[str, Json]
    rate: int
    piece: int
    ends: bool
    sound: Array


def make_sound(number: int) -> SoundCase:
    """Return a case by its number."""
    rng = np.random.default_rng(number)
    rate = int(rng.choice([8000, 16000, 22050]))
    entry: dict[str, Any] = {
        "kind": "audio",
        "rate": rate,
        "dtype": str(rng.choice(["float32", "float16", "int16", "int8", "uint8"])),
    }
    if rng.random() < 0.4:
        entry["full_scale"] = float(rng.choice([1.0, 128.0, 32768.0]))
    if rng.random() < 0.5:
        entry |= {"mean": round(float(rng.normal(0, 3)), 2), "std": round(float(rng.uniform(0.02, 5)), 2)}
    if rng.random() < 0.7:
        entry["features"] = _features(rng, rate)
        features = read_features(entry["features"], rate, "features")
        entry["window"] = features.cut + int(rng.integers(0, 12 * features.hop))
        layout, frames = str(rng.choice(["TF", "FT"])), features.frames(entry["window"])
        if features.center != "none" and frames > 1 and rng.random() < 0.5:
            frames -= 1
        shape = [1, frames, features.count] if layout == "TF" else [1, features.count, frames, 1]
        entry |= {"layout": layout, "shape": shape}
    else:
        entry["shape"] = [1, int(rng.choice([3, *range(20, 900)]))]
    if rng.random() < 0.5:
        entry["normalize"] = str(rng.choice(["none", "max", "peak", "mean-std"]))
    elif "features" not in entry and entry["shape"][1] > 2 and rng.random() < 0.7:
        entry["context"] = int(rng.integers(1, entry["shape"][1]))
    if "context" not in entry and "features" not in entry and rng.random() < 0.5:
        entry["hop"] = int(rng.integers(max(1, entry["shape"][1] // 3), entry["shape"][1] + 1))
    other = int(rng.choice([8000, 16000, 44100, 48000]))
    device = rate if rng.random() < 0.4 else other
    sound = rng.normal(0, 0.2, int(rng.integers(1, 12_000)))
    piece, ends = int(rng.integers(1, 3000)), bool(rng.random() < 0.5)
    return SoundCase({"x": entry}, device, piece, ends, sound.astype(np.float32))


def _features(rng: np.random.Generator, rate: int) -> dict[str, Any]:
    def pick(names: list[str]) -> str:
        return str(rng.choice(names))

    frame = int(rng.integers(2, 600))
    features: dict[str, Any] = {
        "kind": pick(["spectrogram", "mel", "mfcc"]), "frame": frame,
        "hop": int(rng.integers(1, 300)),
        "n_fft": int(rng.choice([frame, frame + 17, 1 << (frame - 1).bit_length()])),
        "window": pick(["hann", "hann-symmetric", "hamming", "hamming-symmetric", "povey",
                        "rectangular"]),
        "align": pick(["left", "center"]), "center": pick(["none", "reflect", "constant"]),
        "power": int(rng.integers(1, 3)), "preemphasis": float(rng.choice([0.0, 0.97])),
        "remove_dc": bool(rng.random() < 0.3), "log": pick(["ln", "log10", "db"]),
        "offset": float(rng.choice([1e-6, 1e-3])), "floor": float(rng.choice([0.0, 1e-5])),
        "range": float(rng.choice([0.0, 8.0])),
    }  # fmt: skip
    if features["kind"] != "mfcc" and rng.random() < 0.3:
        for key in ("log", "offset", "floor", "range"):
            del features[key]
    if features["kind"] != "spectrogram":
        features |= {
            "mels": int(rng.integers(2, 50)), "fmin": float(rng.choice([0.0, 20.0])),
            "fmax": float(rng.choice([0.0, rate / 2, rate / 4])), "mel_scale": pick(["htk", "slaney"]),
            "mel_norm": pick(["none", "slaney"]), "triangles": pick(["hz", "mel"]),
        }  # fmt: skip
    if features["kind"] == "mfcc":
        features |= {
            "coefficients": int(rng.integers(1, features["mels"] + 1)),
            "dct": pick(["ortho", "htk"]),
        }
    if features["frame"] == 2:
        features["window"] = "rectangular"  # the others are zero at both ends
    return features


def expected_windows(entry: AudioInput, case: SoundCase) -> list[tuple[list[float], Array]]:
    """Return start and end in seconds and input of each window, as ``Session.listen`` prepares them."""
    samples, capacity = mono(case.sound, entry, case.rate), entry.window - entry.context
    context, windows, starts = np.zeros(entry.context), [], range(0, len(samples) - capacity + 1, entry.hop)
    covered = starts[-1] + capacity if starts else 0
    last = [starts[-1] + entry.hop if starts else 0] if case.ends and len(samples) > covered else []
    for start in [*starts, *last]:
        piece, start_s = samples[start : start + capacity], start / entry.rate
        with np.errstate(over="ignore"):  # of float16
            window = prepare_audio(entry, piece, context)
        windows.append(([start_s, start_s + len(piece) / entry.rate], window))
        context = np.concatenate([context, piece])[len(piece) :]
    return windows


def write_sound_bundle(
    path: Path, inputs: Mapping[str, Json], task: Mapping[str, Json] | None = None
) -> None:
    """Write a bundle without variants that holds a card of a sound; its model has one output [1, 3]."""
    specs = [
        {"name": name, "dtype": table.get("dtype", "float32"), "shape": table.get("shape", [1])}
        for name, table in inputs.items()
    ]
    card = {"title": "sound", "inputs": dict(inputs), **({"task": dict(task)} if task else {})}
    manifest: dict[str, Any] = {
        "source": {"file": "m.onnx", "sha256": "0" * 64, "opset": 17, "nodes": 1},
        "inputs": specs, "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 3]}],
        "variants": [], "card": card,
    }  # fmt: skip
    path.write_bytes(b"".join(bytes(piece) for piece in Bundle.create(manifest, {}).pieces()))


def write_sound(folder: Path, i: int, case: SoundCase) -> None:
    """Write i.edgekit and i.sound."""
    write_sound_bundle(folder / f"{i}.edgekit", case.inputs)
    head = np.array([case.rate, case.piece, case.ends], np.int32)
    (folder / f"{i}.sound").write_bytes(head.tobytes() + case.sound.tobytes())


class SoundTotals:
    """Counts of a comparison."""

    def __init__(self) -> None:
        self.windows = self.equal = 0
        self.worst = 0.0

    def __str__(self) -> str:
        return f"{self.windows} windows, {self.equal} bit for bit; largest difference {self.worst:.2g}"


def judge_sound(case: SoundCase, content: bytes, totals: SoundTotals) -> None:
    """Compare windows of a core with Python's. Raises AssertionError where they differ."""
    (entry,) = parse_card({"title": "sound", "inputs": case.inputs}).inputs.values()
    assert isinstance(entry, AudioInput)
    wanted = expected_windows(entry, case)
    size = 16 + wanted[0][1].nbytes if wanted else 1
    assert len(content) % size == 0
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    if case.rate == entry.rate or case.ends:
        assert len(pieces) == len(wanted)
    else:  # samples near the end wait for those that the filter needs
        reach = 66 * entry.rate / min(case.rate, entry.rate)
        assert len(wanted) - reach / entry.hop - 1 <= len(pieces) <= len(wanted)
    exact = entry.features is None and case.rate == entry.rate
    for piece, (span_s, array) in zip(pieces, wanted, strict=False):
        assert np.frombuffer(piece, "f8", 2).tolist() == span_s
        found = np.frombuffer(piece[16:], array.dtype).reshape(array.shape)
        totals.windows += 1
        if found.tobytes() == array.tobytes():
            totals.equal += 1
            continue
        assert not exact
        difference = np.abs(found.astype(np.float64) - array).max()
        if array.dtype.kind in "iu":
            assert difference <= 1
            continue
        share = float(difference / np.abs(array.astype(np.float64)).max())
        totals.worst = max(totals.worst, share if array.dtype == np.float32 else 0.0)
        assert share <= LIMITS[str(array.dtype)], share


def compare_sounds(numbers: Sequence[int], program: Path, folder: Path, totals: SoundTotals) -> list[str]:
    """Run cases in both; return a line for each that differs."""
    for i, number in enumerate(numbers):
        write_sound(folder, i, make_sound(number))
    subprocess.run([program, folder, str(len(numbers))], check=True, timeout=3600)
    wrong = []
    for i, number in enumerate(numbers):
        try:
            judge_sound(make_sound(number), (folder / f"{i}.windows").read_bytes(), totals)
        except (AssertionError, OSError) as problem:
            refusal = folder / f"{i}.refused"
            wrong.append(f"{number}: {refusal.read_text() if refusal.exists() else problem!r}")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Compare cases; print the totals, and each case that differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    totals = SoundTotals()
    with tempfile.TemporaryDirectory() as name:
        program = link_program(PROGRAM, Path(name) / "run_sounds")
        wrong = compare_sounds(
            range(options.first, options.first + options.cases), program, Path(name), totals
        )
    print(*wrong, totals, f"{len(wrong)} differ", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
