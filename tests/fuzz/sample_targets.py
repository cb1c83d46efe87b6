"""The readers of samples: arrays, pictures, sounds and texts."""

from __future__ import annotations

import io
import random
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.array_files import read_arrays
from edgekit.compiler.evaluate.text_files import read_line, text_lines
from edgekit.errors import SampleError
from edgekit.processing.picture_files import read_picture
from edgekit.processing.sound_files import read_sound
from edgekit.system.formats.npy import NpyError, npy_bytes, parse_npy
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.bundle_mutations import bytes_changed
from tests.fuzz import mutations
from tests.fuzz.target import READ, SPECS, Target, refused


def arrays(folder: Path) -> dict[str, Target]:
    x, y = np.arange(20, dtype=np.float32).reshape(4, 5), np.arange(3)
    golden, plain, zipped = [npy_bytes(x), npy_bytes(y)], [], []
    for array in (x, np.asfortranarray(x), y):
        whole = io.BytesIO()
        np.save(whole, array)
        plain.append(whole.getvalue())
    for save in (np.savez, np.savez_compressed):
        whole = io.BytesIO()
        save(whole, x=x, y=y)
        zipped.append(whole.getvalue())

    def read_golden(content: bytes) -> str:
        try:
            array = parse_npy(memoryview(content), SPECS[0])
        except NpyError as problem:
            return refused(problem)
        assert (array.shape, str(array.dtype)) == ((4, 5), "float32")
        return READ

    def reader(suffix: str, specs: tuple[TensorSpec, ...]) -> Callable[[bytes], str]:
        path = folder / f"case{suffix}"

        def read(content: bytes) -> str:
            path.write_bytes(content)
            try:
                found = read_arrays(path, specs)
            except SampleError as problem:
                return refused(problem, path)
            assert [(a.shape, str(a.dtype)) for a in found.values()] == [(s.shape, s.dtype) for s in specs]
            return READ

        return read

    def archive(draw: random.Random) -> bytes:
        if draw.random() < 0.5:
            return bytes_changed(draw, draw.choice(zipped))
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w", draw.choice((0, 0, 8, 12, 14))) as made:
            for name in draw.choice((("x.npy", "y.npy"), ("x", "y"), ("../x.npy", "y.npy"), ("x.npy",), ())):
                made.writestr(name, mutations.changed_npy(draw, plain))
        return whole.getvalue()

    return {
        "npy of a bundle": Target(6, lambda draw: mutations.changed_npy(draw, golden), read_golden),
        "npy": Target(8, lambda draw: mutations.changed_npy(draw, plain), reader(".npy", SPECS[:1])),
        "npz": Target(6, archive, reader(".npz", SPECS)),
    }


def media(folder: Path) -> dict[str, Target]:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
    pictures = []
    for kind in ("PNG", "JPEG", "BMP", "WEBP", "TIFF"):
        whole = io.BytesIO()
        Image.fromarray(noise).save(whole, kind)
        pictures.append(whole.getvalue())
    whole = io.BytesIO()
    with wave.open(whole, "wb") as made:
        made.setparams((1, 2, 8000, 0, "NONE", ""))
        made.writeframes(bytes(400))
    sound = whole.getvalue()

    def reader(suffix: str, read_file: Callable[[Path], object]) -> Callable[[bytes], str]:
        path = folder / f"case{suffix}"

        def read(content: bytes) -> str:
            path.write_bytes(content)
            try:
                read_file(path)
            except SampleError as problem:
                return refused(problem, path)
            return READ

        return read

    return {
        "picture": Target(3, lambda d: bytes_changed(d, d.choice(pictures)), reader(".png", read_picture)),
        "sound": Target(3, lambda d: bytes_changed(d, sound), reader(".wav", read_sound)),
        "text": Target(
            1,
            lambda d: bytes_changed(d, "one\ntwo \u00e9\n".encode()),
            reader(".txt", lambda path: [read_line(line) for line in text_lines(path)]),
        ),
    }
