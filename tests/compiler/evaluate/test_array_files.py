"""Arrays from elsewhere: each lie of a header or an archive has its text, and costs no memory and no time."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.array_files import DIRECTORY_LIMIT_BYTES, read_arrays
from edgekit.errors import SampleError
from edgekit.tensor_spec import Array, TensorSpec

X = TensorSpec("x", "float32", (2, 3))
SIX = np.arange(6, dtype=np.float32).reshape(2, 3)
LEAST_BYTES = 4 << 20


def npy(array: Array) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=True)
    return content.getvalue()


def lying(header: str, data: bytes = SIX.tobytes(), version: int = 1) -> bytes:
    """A .npy whose header is this text."""
    text = header.encode("latin1")
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(text))
        + text
        + data
    )


def says(shape: str, descr: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as whole:
        for name, content in members.items():
            whole.writestr(name, content)
    return path


def refused(path: Path, inputs: tuple[TensorSpec, ...] = (X,)) -> str:
    """Why, without the path; within little memory."""
    tracemalloc.start()
    with pytest.raises(SampleError) as error:
        read_arrays(path, inputs)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < LEAST_BYTES
    return str(error.value).replace(f"{path} can't be read as {path.suffix}: ", "").replace(str(path), "PATH")


@pytest.mark.parametrize("array", [SIX, np.asfortranarray(SIX), SIX[::-1]], ids=["C", "F", "strides"])
def test_what_numpy_writes_is_read(tmp_path: Path, array: Array) -> None:
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array)
    np.savez_compressed(tmp_path / "b.npz", x=array)
    for name in ("a.npy", "a.npz", "b.npz"):
        found = read_arrays(tmp_path / name, [X])
        np.testing.assert_array_equal(found["x"], array)
        assert found["x"].flags.writeable


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (300, 1000)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_shapes_and_dtypes(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    np.savez_compressed(tmp_path / "a.npz", x=array)
    found = read_arrays(tmp_path / "a.npz", [TensorSpec("x", dtype, shape)])["x"]
    assert (found.dtype, found.shape) == (array.dtype, shape)
    np.testing.assert_array_equal(found, array)


HEADERS = [
    (says("(1000000000000,)"), "its header declares 4,000,000,000,000 bytes of data, but it has 24"),
    (says("(2, 2)"), "its header declares 16 bytes of data, but it has 24"),
    (says(f"({2**62}, {2**62})"), f"its header declares {2**126:,} bytes of data, but it has 24"),
    (says(f"({2**64},)"), "invalid shape in the header"),
    (says("(-1, 6)"), "invalid shape in the header"),
    (says("(3, 2)"), "PATH: x float32 3x2 does not fit the model's input x float32 2x3"),
    (
        says("(2, 3)", "'<i4'"),
        "PATH: x int32 2x3 does not fit the model's input x float32 2x3; convert it with .astype('float32')",
    ),
    (
        says("(2, 3)", "'>f4'"),
        "PATH: x >f4 2x3 does not fit the model's input x float32 2x3; convert it with .astype('float32')",
    ),
    (says("(2, 3)", "'|O'"), "it contains Python objects (a pickle)"),
    (says("(2, 3)", "'<U1'"), "it contains <U1, not an array of plain numbers"),
    (says("(2,)", "[('a', '<f4', (3,))]"), "it contains [('a', '<f4', (3,))], not an array of plain"),
    (says("(2, 3)", "'nonsense'"), "its header is malformed: descr is not a valid dtype"),
    ("{" * 900, "its header is malformed: "),
    ("-" * 900 + "1", "its header is malformed: "),
    ("9" * 900, "its header is malformed: "),
    (" " * 60_000, "its header is malformed: "),
    ("__import__('os').abort()", "its header is malformed: malformed node or string"),
    ("", "its header is malformed: "),
]


@pytest.mark.parametrize(("header", "why"), HEADERS, ids=range(len(HEADERS)))
@pytest.mark.parametrize("packed", [False, True])
def test_headers_that_lie(tmp_path: Path, header: str, why: str, packed: bool) -> None:
    content = lying(header)
    if packed:
        found = refused(archive(tmp_path / "a.npz", {"x.npy": content})).replace("x.npy: ", "")
    else:
        (tmp_path / "a.npy").write_bytes(content)
        found = refused(tmp_path / "a.npy")
    assert found.startswith(why)
    assert len(found) < 200


def test_a_header_of_gigabytes(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"x" * 100)
    assert refused(tmp_path / "a.npy").startswith("its header is malformed: ")


def test_what_follows_a_header_is_not_loaded_before_it_is_judged(tmp_path: Path) -> None:
    """A sparse file of 4 GB, as its header says: it is not the model's input."""
    with (tmp_path / "a.npy").open("wb") as file:
        header = lying(says("(1073741824,)"), b"")
        file.write(header)
        file.truncate(len(header) + 2**32)
    assert refused(tmp_path / "a.npy") == (
        "PATH: x float32 1073741824 does not fit the model's input x float32 2x3"
    )


def test_versions_for_other_things(tmp_path: Path) -> None:
    content = bytearray(npy(SIX))
    content[6] = 3
    (tmp_path / "a.npy").write_bytes(content)
    assert (
        refused(tmp_path / "a.npy")
        == "it is .npy version 3.0, which is not used for plain numbers; save it with numpy.save"
    )


def test_a_pickle_is_not_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Code:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return os.mkdir, (str(marker),)

    why = "it contains Python objects (a pickle), which can run code when read; save plain numbers"
    for name, content in (("a", npy(np.array([Code()], object))), ("b", pickle.dumps(Code()))):
        (tmp_path / f"{name}.npy").write_bytes(content)
        found = refused(tmp_path / f"{name}.npy")
        assert found == why if name == "a" else found.startswith("the magic string is not correct")
        assert refused(archive(tmp_path / f"{name}.npz", {"x.npy": content})).startswith("x.npy: ")
    assert not marker.exists()


def test_an_archive_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    """What is not the model's is not unpacked; what claims to be and goes on is not either."""
    zeros = bytes(64 << 20)
    bomb = archive(tmp_path / "a.npz", {"x.npy": lying(says("(16777216,)"), zeros)})
    assert bomb.stat().st_size < 100_000
    assert refused(bomb) == "PATH: x float32 16777216 does not fit the model's input x float32 2x3"
    assert refused(archive(tmp_path / "b.npz", {"x.npy": lying(says("(2, 3)"), zeros)})) == (
        "x.npy: its header declares 24 bytes of data, but it has 67,108,864"
    )
    assert refused(archive(tmp_path / "c.npz", {"x.npy": npy(SIX), "y.npy": zeros})) == (
        "PATH has x, y; the model's inputs are x"
    )
    found = read_arrays(tmp_path / "c.npz", [X], skip_others=True)
    np.testing.assert_array_equal(found["x"], SIX)
    assert found.keys() == {"x"}


def _patched(path: Path, *changes: tuple[bytes, int, bytes]) -> Path:
    """A zip with bytes of its records changed: after the signature, at an offset."""
    content = bytearray(path.read_bytes())
    for signature, offset, new in changes:
        at = content.index(signature) + offset
        content[at : at + len(new)] = new
    path.write_bytes(content)
    return path


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def test_archives_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    huge = struct.pack("<I", 2**31)

    def made(method: int = zipfile.ZIP_DEFLATED) -> Path:
        return archive(path, {"x.npy": npy(SIX)}, method)

    # the declared size of an entry: the header inside says another
    assert refused(_patched(made(), (CENTRAL, 24, huge))).startswith(
        "x.npy: its header declares 24 bytes of data"
    )
    encrypted = (LOCAL, 6, b"\x01\x00"), (CENTRAL, 8, b"\x01\x00")
    assert refused(_patched(made(), *encrypted)) == "x.npy is encrypted"
    assert refused(made(zipfile.ZIP_LZMA)) == "x.npy has a compression method that numpy.savez does not use"
    # a flipped bit in the data
    packed = made(zipfile.ZIP_STORED)
    assert refused(_patched(packed, (SIX.tobytes(), 3, b"\x7f"))) == "Bad CRC-32 for file 'x.npy'"
    whole = made().read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert refused(path)


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as whole:
        whole.writestr("x.npy", npy(SIX))
        with pytest.warns(UserWarning, match="Duplicate name"):
            whole.writestr("x.npy", npy(-SIX))
    assert refused(tmp_path / "a.npz") == "two arrays have the same name"


def test_a_table_of_contents_of_megabytes(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as whole:
        for number in range(DIRECTORY_LIMIT_BYTES // 46):
            whole.writestr(zipfile.ZipInfo(f"{number}"), b"")
    assert refused(tmp_path / "a.npz") == (
        "its table of contents has 1 MB, too large for an archive of a few arrays"
    )


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"a{suffix}")
    assert refused(tmp_path / f"a{suffix}") == "it is not a regular file"
