"""libedgekit through ctypes, compiled once for a run of the tests."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.native import build
from edgekit.tensor_spec import Array
from tests.native.structures import (
    PICTURE,
    SOUND,
    FallbackRecord,
    Input,
    Options,
    Placement,
    Prediction,
    Prepared,
    Tensor,
)

TEST_FLAGS = ("-O1", "-Werror")
"""-O1 compiles in half the time; -ffp-contract=off makes the results independent of it."""


class RefusedError(Exception):
    """A call failed; the text is ``edgekit_error()``."""


class Found(NamedTuple):
    """A prediction: classes or boxes, best first."""

    kind: str
    indices: Array
    labels: list[str]
    scores: Array
    boxes: Array
    span_s: tuple[float, float] = (0.0, 0.0)


@cache
def library() -> ctypes.CDLL:
    """Return the library, compiled once for these sources, or the one that LIBEDGEKIT names."""
    loaded = ctypes.CDLL(os.environ.get("LIBEDGEKIT") or str(compiled()))
    for name in ("version", "error", "text", "active"):
        getattr(loaded, f"edgekit_{name}").restype = ctypes.c_char_p
    for name in ("open", "adapter", "start", "begin"):
        getattr(loaded, f"edgekit_{name}").restype = ctypes.c_void_p
    for name in ("decode", "predict"):
        getattr(loaded, f"edgekit_{name}").restype = ctypes.POINTER(Prediction)
    loaded.edgekit_prepare.restype = ctypes.POINTER(Prepared)
    loaded.edgekit_read.restype = ctypes.c_int64
    for name in ("close", "stop", "end", "free_prediction"):
        getattr(loaded, f"edgekit_{name}").restype = None
    return loaded


def compiled() -> Path:
    """Return the path of the library for tests; processes that test at once compile it once."""
    content = b"".join(path.read_bytes() for path in sorted(build.FOLDER.rglob("*.[ch]*")))
    key = hashlib.sha256(content + repr((TEST_FLAGS, build.compiler_command())).encode()).hexdigest()[:16]
    kept = Path(tempfile.gettempdir()) / f"edgekit-native-{os.getuid()}"
    kept.mkdir(mode=0o700, exist_ok=True)
    assert kept.stat().st_uid == os.getuid()
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept / key).is_dir():
            for older in kept.iterdir():
                if older.is_dir():
                    shutil.rmtree(older)
            made = build.compile_library(kept / "new", flags=TEST_FLAGS)
            made.parent.rename(kept / key)
        return kept / key / "libedgekit.so"


def link_program(source: Path, program: Path) -> Path:
    """Compile a C or C++ program against the library for tests."""
    folder, language = compiled().parent, "c" if source.suffix == ".c" else "c++"
    standard = "-std=c99" if language == "c" else "-std=c++17"
    command = [
        *build.compiler_command(),
        "-x",
        language,
        standard,
        "-Wall",
        "-Wextra",
        "-Werror",
        str(source),
        "-x",
        "none",
    ]
    linked = [f"-I{build.INCLUDE}", f"-L{folder}", "-ledgekit", f"-Wl,-rpath,{folder}", "-o", str(program)]
    subprocess.run([*command, *linked], check=True, timeout=300)
    return program


def refusal() -> RefusedError:
    """Return the error of the last call."""
    return RefusedError(library().edgekit_error().decode())


def tensor(name: str, array: Array) -> Tensor:
    """Return an array as ``edgekit_tensor``; the array must outlive it and be contiguous."""
    shape = (ctypes.c_int64 * 16)(*array.shape)
    return Tensor(
        name.encode(), str(array.dtype).encode(), array.ndim, shape, array.ctypes.data, array.nbytes
    )


def array_of(found: Tensor) -> Array:
    """Return a copy of a tensor's values."""
    content = ctypes.string_at(found.bytes, found.size_bytes)
    return np.frombuffer(content, found.dtype.decode()).reshape(found.shape[: found.rank]).copy()


class NativeBundle:
    """A bundle that the library opened. Raises RefusedError where it does not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.handle = ctypes.c_void_p(library().edgekit_open(os.fsencode(path)))
        if not self.handle:
            raise refusal()

    def close(self) -> None:
        """Free it."""
        library().edgekit_close(self.handle)
        self.handle = ctypes.c_void_p()

    def __enter__(self) -> NativeBundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def count(self, what: int) -> int:
        """Return the number of inputs, outputs, variants, entries or golden vectors (0 to 4)."""
        return int(library().edgekit_count(self.handle, what))

    def at(self, function: str, kind: type[Any], *indices: int) -> Any:
        """Fill a structure by an ``edgekit_*_at`` function."""
        filled = kind()
        if getattr(library(), f"edgekit_{function}_at")(self.handle, *indices, ctypes.byref(filled)):
            raise refusal()
        return filled

    def read(self, entry: str) -> bytes:
        """Return the content of an entry."""
        size = library().edgekit_read(self.handle, entry.encode(), None, ctypes.c_size_t(0))
        if size < 0:
            raise refusal()
        buffer = ctypes.create_string_buffer(size)
        if library().edgekit_read(self.handle, entry.encode(), buffer, ctypes.c_size_t(size)) < 0:
            raise refusal()
        return buffer.raw

    def verify(self) -> None:
        """Check every entry."""
        if library().edgekit_verify(self.handle):
            raise refusal()

    def prepare(self, frame: Array, order: str) -> tuple[Array, Placement]:
        """Prepare a picture; return the input and its placement."""
        with NativePreparation(self) as preparation:
            prepared = preparation.prepare(picture(frame, order))
            return array_of(prepared.inputs[0]), Placement.from_buffer_copy(prepared.placement)

    def decode(self, outputs: Mapping[str, Array], placed: Placement | None) -> Found:
        """Decode outputs by the card."""
        tensors = (Tensor * len(outputs))(*(tensor(name, array) for name, array in outputs.items()))
        place = None if placed is None else ctypes.byref(placed)
        found = library().edgekit_decode(self.handle, tensors, len(outputs), place)
        return taken(found)


def picture(frame: Array, order: str) -> Input:
    """Return a picture as ``edgekit_input``; the frame must outlive it and be contiguous."""
    height, width = frame.shape[:2]
    return Input(PICTURE, frame.ctypes.data, width, height, int(order == "bgr"))


def sound(samples: Array, rate: int, *, begins: bool = False, ends: bool = False) -> Input:
    """Return float32 samples [n] as ``edgekit_input``; they must outlive it and be contiguous."""
    return Input(SOUND, samples.ctypes.data, 0, 0, 0, len(samples), rate, begins, ends)


class NativePreparation:
    """A preparation of the library."""

    def __init__(self, bundle: NativeBundle) -> None:
        self.handle = ctypes.c_void_p(library().edgekit_begin(bundle.handle))
        if not self.handle:
            raise refusal()

    def __enter__(self) -> NativePreparation:
        return self

    def __exit__(self, *_: object) -> None:
        library().edgekit_end(self.handle)

    def prepare(self, entry: Input | None) -> Prepared:
        """Prepare an input, or the next window; the result is valid until the next call."""
        made = library().edgekit_prepare(self.handle, None if entry is None else ctypes.byref(entry))
        if not made:
            raise refusal()
        prepared: Prepared = made.contents
        return prepared

    def carry(self, outputs: Mapping[str, Array]) -> None:
        """Keep states."""
        tensors = (Tensor * len(outputs))(*(tensor(name, array) for name, array in outputs.items()))
        if library().edgekit_carry(self.handle, tensors, len(outputs)):
            raise refusal()


def taken(found: Any) -> Found:
    """Return a prediction as arrays, and free it. Raises RefusedError where it is NULL."""
    if not found:
        raise refusal()
    items = found.contents.items[: found.contents.count]
    kind = found.contents.kind.decode()
    indices = np.array([item.index for item in items], np.int64)
    scores = np.array([item.score for item in items], np.float32)
    boxes = np.array([list(item.box) for item in items], np.float32).reshape(-1, 4)
    labels = [item.label.decode() for item in items]
    span_s = found.contents.start_s, found.contents.end_s
    library().edgekit_free_prediction(found)
    return Found(kind, indices, labels, scores, boxes, span_s)


def ort_library() -> str:
    """Return the path of ONNX Runtime's shared library in the installed wheel; "" where it has none."""
    import onnxruntime

    found = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    return str(found[0]) if found else ""


class NativeSession:
    """A session of the library."""

    def __init__(
        self,
        bundle: NativeBundle,
        path: str,
        variant: str = "",
        strict: bool = False,
        threads: int = 1,
        target: str = "ort",
    ) -> None:
        engine = ctypes.c_void_p(library().edgekit_adapter(target.encode(), path.encode())) if path else None
        if path and not engine:
            raise refusal()
        engines = (ctypes.c_void_p * 1)(engine)
        options = Options(variant.encode() or None, strict, threads)
        count = 1 if path else 0
        self.handle = ctypes.c_void_p(
            library().edgekit_start(bundle.handle, engines, count, ctypes.byref(options))
        )
        if not self.handle:
            raise refusal()

    def __enter__(self) -> NativeSession:
        return self

    def __exit__(self, *_: object) -> None:
        library().edgekit_stop(self.handle)

    @property
    def active(self) -> str:
        """Name of the variant that runs."""
        return str(library().edgekit_active(self.handle).decode())

    @property
    def fallbacks(self) -> list[tuple[str, str, str]]:
        """Fallbacks: from, to, reason."""
        found: list[tuple[str, str, str]] = []
        record = FallbackRecord()
        while library().edgekit_fallback_at(self.handle, len(found), ctypes.byref(record)) == 0:
            found.append((record.from_.decode(), record.to.decode(), record.reason.decode()))
        return found

    def run(self, feeds: Mapping[str, Array], outputs: int) -> dict[str, Array]:
        """Run the model; ``outputs`` is their number."""
        tensors = (Tensor * len(feeds))(*(tensor(name, array) for name, array in feeds.items()))
        made = ctypes.POINTER(Tensor)()
        if library().edgekit_run(self.handle, tensors, len(feeds), ctypes.byref(made)):
            raise refusal()
        return {made[i].name.decode(): array_of(made[i]) for i in range(outputs)}

    def predict(self, frame: Array, order: str) -> Found:
        """Prepare, run and decode."""
        entry = picture(frame, order)
        return taken(library().edgekit_predict(self.handle, ctypes.byref(entry)))

    def listen(self, samples: Array, rate: int, *, begins: bool = False, ends: bool = False) -> list[Found]:
        """Predict the windows that samples complete."""
        entry = sound(samples, rate, begins=begins, ends=ends)
        windows = [taken(library().edgekit_predict(self.handle, ctypes.byref(entry)))]
        while len(windows[-1].indices):
            windows.append(taken(library().edgekit_predict(self.handle, None)))
        return windows[:-1]


def snr_db(expected: Array, actual: Array) -> float | None:
    """Return ``edgekit_snr_db``; None if the arrays are equal."""
    found = ctypes.c_double()
    x, y = tensor("x", expected), tensor("x", actual)
    code = library().edgekit_snr_db(ctypes.byref(x), ctypes.byref(y), ctypes.byref(found))
    if code < 0:
        raise refusal()
    return found.value if code else None
