"""The bundle as its users meet it: made, saved, opened, read; and read by a second implementation."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

from edgekit import build
from edgekit.bundle import Bundle, Variant
from edgekit.compiler.evaluate.verify_bundle import verify_bundle
from edgekit.errors import BundleError
from edgekit.runtime import Session
from edgekit.system.formats.npy import NpyError, npy_bytes, parse_npy
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.bundles import X, small_bundle, small_manifest, variant
from tests.fixtures.child_processes import run_python


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return small_bundle().save(tmp_path / "small.edgekit")


def read_by_the_specification(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A second implementation, written from docs/bundle-format.md alone."""
    magic, version, zero, manifest_size, file_size, digest = struct.unpack_from("<8sIIQQ32s", content)
    assert (magic, version, zero) == (b"EDGEKIT\0", 1, 0)
    assert file_size == len(content)
    text = content[64 : 64 + manifest_size]
    assert hashlib.sha256(text).digest() == digest
    manifest = json.loads(text)
    assert (manifest["format"], manifest["version"]) == ("edgekit-bundle", 1)
    start = (64 + manifest_size + 63) // 64 * 64
    assert not any(content[64 + manifest_size : start])
    entries, end = {}, start
    for entry in manifest["entries"]:
        at = start + entry["offset"]
        assert at % 64 == 0
        assert not any(content[end:at])
        end = at + entry["size"]
        entries[entry["name"]] = content[at:end]
        assert hashlib.sha256(content[at:end]).hexdigest() == entry["sha256"]
    assert end == file_size
    return manifest, entries


def test_a_second_implementation_reads_the_same(saved: Path) -> None:
    manifest, entries = read_by_the_specification(saved.read_bytes())
    with Bundle.open(saved) as bundle:
        assert manifest == bundle.manifest
        assert entries == {name: bytes(bundle.read(name)) for name in entries}
        assert list(entries) == sorted(entries)
        y = np.load(io.BytesIO(entries[manifest["golden"][0]["outputs"]["y"]]), allow_pickle=False)
        np.testing.assert_array_equal(y, bundle.golden[0][1]["y"])


def test_open_gives_the_state_that_create_made(saved: Path) -> None:
    made = small_bundle()
    with Bundle.open(saved) as opened:
        assert opened.manifest == made.manifest
        assert opened.digest == made.digest == hashlib.sha256(made._manifest_bytes).hexdigest()
        assert opened.variants == made.variants == [variant("ort-fp32", "ort")]
        assert opened.inputs == made.inputs == (TensorSpec("x", "float32", (1, 6)),)
        assert opened.outputs == made.outputs == (TensorSpec("y", "float32", (1, 6)),)
        assert opened.card is made.card is None
        for bundle in (opened, made):
            np.testing.assert_array_equal(bundle.golden[0][0]["x"], X)
            np.testing.assert_array_equal(bundle.golden[0][1]["y"], 2 * X)
            bundle.verify_entries()


def test_the_same_parts_give_the_same_bytes(tmp_path: Path, saved: Path) -> None:
    manifest = small_manifest()
    entries = {name: bytes(small_bundle().read(name)) for name in small_bundle()._entries}
    shuffled = dict(sorted(entries.items(), reverse=True))
    again = Bundle.create(dict(reversed(manifest.items())), shuffled).save(tmp_path / "again.edgekit")
    with Bundle.open(saved) as opened:
        copied = opened.save(tmp_path / "copied.edgekit")
        assert saved.read_bytes() == again.read_bytes() == copied.read_bytes()


def test_arrays_are_read_only_and_aligned(saved: Path) -> None:
    with Bundle.open(saved) as bundle:
        x = bundle.golden[0][0]["x"]
        assert not x.flags.owndata
        assert not x.flags.writeable
        assert x.ctypes.data % 64 == 0
        assert x.dtype == np.float32


def test_arrays_outlive_the_bundle(saved: Path) -> None:
    bundle = Bundle.open(saved)
    x = bundle.golden[0][0]["x"]
    bundle.close()
    bundle.close()
    np.testing.assert_array_equal(x, X)
    with pytest.raises(BundleError, match="is closed; open it again to read 'golden"):
        bundle.read("golden/0/x.npy")


def test_an_unknown_entry_is_refused(saved: Path) -> None:
    with Bundle.open(saved) as bundle, pytest.raises(BundleError) as error:
        bundle.read("nothing")
    assert str(error.value) == f"{saved} has no entry 'nothing'; `edgekit inspect` lists what it has"


def test_opening_reads_no_entry(saved: Path) -> None:
    """A damaged entry shows when it is read, not before, and names itself."""
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    saved.write_bytes(content)
    with Bundle.open(saved) as bundle:
        bundle.read("golden/0/x.npy")
        for read in (bundle.verify_entries, lambda: bundle.read("variants/ort-fp32/model.bin")):
            with pytest.raises(BundleError) as error:
                read()
            assert str(error.value) == (
                f"{saved} is damaged\n"
                "  entry variants/ort-fp32/model.bin: its sha256 is not the one in the manifest\n"
                "  copy or download it again from where it was built"
            )


def test_every_flipped_bit_is_found(saved: Path, tmp_path: Path) -> None:
    """Header, manifest, padding or entry: opening or verifying refuses it, with nothing but BundleError."""
    whole = saved.read_bytes()
    flips = random.Random(0)
    for at in range(len(whole)):
        content = bytearray(whole)
        content[at] ^= 1 << flips.randrange(8)
        path = tmp_path / "flipped.edgekit"
        path.write_bytes(content)
        with pytest.raises(BundleError), Bundle.open(path) as bundle:
            bundle.verify_entries()


def test_every_truncation_is_refused_and_says_so(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    path = tmp_path / "short.edgekit"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(BundleError) as error:
            Bundle.open(path)
    assert str(error.value) == (
        f"{path} is not a bundle that EdgeKit can open\n"
        f"  header: it declares {len(whole)} bytes, and the file has {len(whole) - 1}\n"
        "  copy or download it again from where it was built"
    )


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(
    options=st.dictionaries(st.text(max_size=9), json_values, max_size=4),
    contents=st.lists(st.binary(max_size=200), max_size=6),
)
def test_what_is_created_is_what_is_opened(
    options: dict[str, Any], contents: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    entries = {f"data/{i}": content for i, content in enumerate(contents)}
    bundle = small_bundle(entries=entries)
    manifest = {**small_manifest(), "options": options}
    named = {name: bytes(bundle.read(name)) for name in bundle._entries}
    made = Bundle.create(manifest, named)
    path = made.save(tmp_path_factory.mktemp("round") / "r.edgekit")
    with Bundle.open(path) as opened:
        assert opened.manifest == made.manifest
        assert {name: bytes(opened.read(name)) for name in named} == named
        opened.verify_entries()


def test_control_characters_are_written_out() -> None:
    manifest = small_manifest([Variant("v", "ort", "ort", "fp32", {}, {}, "rejected: \x1b[31mno\u202e")])
    assert Bundle.create(manifest | {"golden": []}, {}).variants[0].status == r"rejected: \x1b[31mno\u202e"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"options": {"snr_db": math.inf}},
            "manifest: options.snr_db: inf is not valid JSON; use None where a",
        ),
        ({"options": {"n": np.float32(1)}}, "manifest: options.n: a float32 cannot be written as JSON"),
        ({"options": {1: 2}}, "manifest: options: key 1 is not a text"),
        ({"nonsense": 1}, "manifest: key 'nonsense' is unknown"),
        (
            {"outputs": [{"name": "y", "dtype": "float32", "shape": [-1, -1]}]},
            r"outputs\[0\].shape: more than one dimension is -1",
        ),
        (
            {"inputs": [{"name": "x", "dtype": "float32", "shape": [-1]}]},
            r"inputs\[0\].shape\[0\]: -1 where",
        ),
        ({"passes": [[]]}, r"passes\[0\]: a list where a text is expected"),
    ],
)
def test_create_refuses_what_no_reader_would_take(change: dict[str, Any], why: str) -> None:
    with pytest.raises(BundleError, match=why) as error:
        Bundle.create(small_manifest() | change, {})
    assert str(error.value).endswith("\n  nothing was written; fix the fields listed above")


def test_save_is_whole_or_nothing(tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(BundleError) as error:
        small_bundle([variant("other", "ort")]).save(saved)
    assert str(error.value) == (
        f"{saved} cannot be written\n  No space left on device\n"
        "  nothing was written; choose another place or make room"
    )
    assert saved.read_bytes() == before
    assert list(tmp_path.iterdir()) == [saved]


def test_save_of_a_damaged_bundle_leaves_the_old_file(saved: Path, tmp_path: Path) -> None:
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    damaged = tmp_path / "damaged.edgekit"
    damaged.write_bytes(content)
    before = saved.read_bytes()
    with Bundle.open(damaged) as bundle, pytest.raises(BundleError, match="is damaged"):
        bundle.save(saved)
    assert saved.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [damaged, saved]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "int32", "int64", "float64", ">f4"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_npy_bytes_are_numpys(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    loaded = np.load(io.BytesIO(npy_bytes(array)), allow_pickle=False)
    np.testing.assert_array_equal(loaded, array)
    assert (loaded.dtype, loaded.shape) == (array.dtype.newbyteorder("<"), shape)
    transposed = np.arange(6, dtype=np.float32).reshape(2, 3).T
    np.testing.assert_array_equal(np.load(io.BytesIO(npy_bytes(transposed))), transposed)


def test_reading_needs_numpy_and_the_standard_library_only(saved: Path) -> None:
    script = (
        "import sys; from edgekit.bundle.bundle import Bundle\n"
        f"Bundle.open({str(saved)!r}).verify_entries()\n"
        "print(*{m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = run_python(script, check=True)
    foreign = {name for name in done.stdout.split() if not name.startswith("_")}
    assert foreign - {"sitecustomize", "usercustomize"} <= {"edgekit", "numpy"}


@pytest.mark.parametrize("rows", [0, 1, 7, 4000])
def test_an_array_of_open_shape_says_itself_how_many_rows_it_has(rows: int) -> None:
    spec = TensorSpec("y", "int64", (-1, 3))
    array = np.arange(3 * rows).reshape(rows, 3)
    content = npy_bytes(array)
    np.testing.assert_array_equal(parse_npy(memoryview(content), spec), array)
    for cut in (content[:-8], content[: len(content) - 24], content + bytes(24), content[:9], b""):
        if rows or len(cut) != len(content) - 24:
            with pytest.raises(NpyError):
                parse_npy(memoryview(cut), spec)


@pytest.mark.parametrize("shape", [(2**32, 2**32), (2**63,), (2**31, 2**31, 4)])
def test_a_shape_whose_product_64_bits_do_not_hold(shape: tuple[int, ...]) -> None:
    """2^64 elements are none in 64 bits: the empty data must not pass as them."""
    header = npy_bytes(np.zeros(0, np.float32))[10:].replace(b"(0,)", str(shape).encode())
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with pytest.raises(NpyError, match=r"^0 bytes of data where x float32 "):
        parse_npy(memoryview(content), TensorSpec("x", "float32", shape))


NMS = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,9,4] boxes, float[1,1,9] scores) => (int64[n,3] picked)
<int64 most = {5}, float iou = {0.5}, float least = {0.6}>
{ picked = NonMaxSuppression (boxes, scores, most, iou, least) }"""


@pytest.mark.needs_ort
@pytest.mark.parametrize("target", ["ort", pytest.param("openvino", marks=pytest.mark.needs_openvino)])
def test_a_model_that_gives_as_much_as_it_finds(target: str, tmp_path: Path) -> None:
    path = tmp_path / "nms.onnx"
    path.write_bytes(parser.parse_model(NMS).SerializeToString())
    saved = build(path, targets=[target]).save(tmp_path / "nms.edgekit")
    with Bundle.open(saved) as bundle:
        assert bundle.variants[0].status.startswith("verified on")
        assert [str(spec) for spec in bundle.outputs] == ["picked int64 ?x3"]
        assert [check.status.split()[0] for check in verify_bundle(bundle)] == ["verified"]
    scores = np.linspace(0, 1, 9, dtype=np.float32).reshape(1, 1, 9)
    boxes = np.array([[0, 0, 1, 1]], np.float32) + 2 * np.arange(9, dtype=np.float32).reshape(1, 9, 1)
    with Session(saved) as session:
        for factor, rows in ((1.0, 4), (0.5, 0), (0.65, 1)):
            answer = session.run({"boxes": boxes, "scores": scores * np.float32(factor)})
            assert answer["picked"].shape == (rows, 3)
