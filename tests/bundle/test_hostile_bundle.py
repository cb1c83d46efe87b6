"""Bundles that lie: each is refused with one BundleError that says what and where, and nothing is written."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.bundle import manifest as schema
from edgekit.errors import BundleError
from edgekit.system.formats import npy, strict_json
from tests.fixtures.bundles import X, small_bundle
from tests.fixtures.hostile_manifests import GOOD_TEXT, REFUSED, changed


def refusal(tmp_path: Path, content: bytes) -> str:
    """The reason a file is refused for, and the proof that nothing else was written."""
    path = tmp_path / "hostile.edgekit"
    path.write_bytes(content)
    with pytest.raises(BundleError) as error:
        Bundle.open(path)
    assert list(tmp_path.iterdir()) == [path]
    first, *why, last = str(error.value).split("\n")
    assert first == f"{path} is not a bundle that EdgeKit can open"
    assert re.match(r"  \w", last)
    return "\n".join(why).strip()


def test_the_untouched_parts_are_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "good.edgekit"
    path.write_bytes(changed(lambda manifest: None))
    with Bundle.open(path) as bundle:
        bundle.verify_entries()


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_file_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    content, why = REFUSED[name]
    assert refusal(tmp_path, content).startswith(why)


def npy_of(text: bytes, data: bytes, magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    header = text.ljust(118) if len(text) < 118 else text
    return magic + len(header).to_bytes(2, "little") + header + data


HONEST = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 6), }"
ARRAYS = {
    "object": (
        npy_of(HONEST.replace(b"<f4", b"|O"), bytes(24)),
        "its .npy header does not match x float32 1x6",
    ),
    "order": (
        npy_of(HONEST.replace(b"False", b"True"), bytes(24)),
        "its .npy header does not match x float32 1x6",
    ),
    "shape": (
        npy_of(HONEST.replace(b"1, 6", b"2, 3"), bytes(24)),
        "its .npy header does not match x float32 1x6",
    ),
    "short": (npy_of(HONEST, bytes(23)), "23 bytes of data where x float32 1x6 has 24"),
    "version": (npy_of(HONEST, bytes(24), b"\x93NUMPY\x02\x00"), "it is not a .npy file of version 1.0"),
    "pickle": (b"\x80\x04".ljust(60), "it is not a .npy file of version 1.0"),
    "header beyond": (
        b"\x93NUMPY\x01\x00\xff\xff" + bytes(50),
        "a .npy header of 65545 bytes; the limit is 4096",
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_hostile_golden_arrays(tmp_path: Path, name: str) -> None:
    content, why = ARRAYS[name]
    path = small_bundle(entries={"golden/0/x.npy": content}).save(tmp_path / "array.edgekit")
    with Bundle.open(path) as bundle:
        for read in (lambda: bundle.golden, bundle.verify_entries):
            with pytest.raises(BundleError) as error:
                read()
            assert f"\n  entry golden/0/x.npy: {why}\n" in str(error.value)


def test_padding_is_checked(tmp_path: Path) -> None:
    path = small_bundle().save(tmp_path / "padding.edgekit")
    content = bytearray(path.read_bytes())
    end_of_manifest = 64 + len(GOOD_TEXT)
    at = content.rindex(b"\0ort-fp32")
    assert at > end_of_manifest - 64
    content[at] = 1
    path.write_bytes(content)
    with Bundle.open(path) as bundle, pytest.raises(BundleError, match="the padding is not zero"):
        bundle.verify_entries()


def test_a_folder_a_pipe_and_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"it cannot be read: (it is not a regular file|Is a directory)"):
        Bundle.open(tmp_path)
    with pytest.raises(BundleError, match=r"absent\.edgekit: file not found$"):
        Bundle.open(tmp_path / "absent.edgekit")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(BundleError, match="it cannot be read: it is not a regular file"):
            Bundle.open(tmp_path / "pipe")


def test_a_header_that_lies_about_a_huge_file_costs_no_memory(tmp_path: Path) -> None:
    """A sparse file of 65 GiB is refused by its size, before it is mapped or read."""
    path = tmp_path / "sparse.edgekit"
    with open(path, "wb") as file:
        file.truncate(65 << 30)
    with pytest.raises(BundleError, match="it has 69793218560 bytes; the limit is 68719476736"):
        Bundle.open(path)


def test_limits_are_what_the_documentation_says() -> None:
    text = (Path(__file__).parents[2] / "docs" / "bundle-format.md").read_text("utf-8")
    limits = {
        "manifest, bytes": schema.MANIFEST_LIMIT_BYTES,
        "depth": strict_json.DEPTH_LIMIT,
        "values": strict_json.VALUES_LIMIT,
        "text, characters": strict_json.TEXT_LIMIT_CHARS,
        "number, characters": strict_json.NUMBER_LIMIT_CHARS,
        "entries": schema.ENTRIES_LIMIT,
        "entry name, characters": schema.ENTRY_NAME_LIMIT_CHARS,
        "variants": schema.VARIANTS_LIMIT,
        "files of a variant": schema.FILES_LIMIT,
        "inputs, outputs": schema.TENSORS_LIMIT,
        "rank": schema.RANK_LIMIT,
        "tensor, bytes": schema.TENSOR_LIMIT_BYTES,
        "golden pairs": schema.GOLDEN_LIMIT,
        ".npy header, bytes": npy.HEADER_LIMIT_BYTES,
    }
    for name, limit in limits.items():
        assert f"| {name} | {limit} |" in text


def test_golden_arrays_of_numpys_own_writer_are_taken() -> None:
    out = io.BytesIO()
    np.save(out, X)
    bundle = small_bundle(entries={"golden/0/x.npy": out.getvalue()})
    np.testing.assert_array_equal(bundle.golden[0][0]["x"], X)
