"""Bundles that lie: each is refused with one BundleError that says what and where, and nothing is written."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.bundle import manifest as schema
from edgekit.errors import BundleError
from edgekit.system.formats import npy, strict_json
from tests.fixtures.bundles import X, pack, packed_parts, small_bundle

GOOD, DATA = packed_parts(small_bundle())


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


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    manifest = json.loads(json.dumps(GOOD))
    change(manifest)
    return pack(json.dumps(manifest).encode(), DATA)


def text_of(text: str) -> bytes:
    return pack(text.encode(), DATA)


def test_the_untouched_parts_are_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "good.edgekit"
    path.write_bytes(changed(lambda manifest: None))
    with Bundle.open(path) as bundle:
        bundle.verify_entries()


GOOD_TEXT = json.dumps(GOOD).encode()

HEADERS = {
    "magic": (
        pack(GOOD_TEXT, DATA, magic=b"PK\3\4zip!"),
        r"header: it starts with b'PK\x03\x04zip!'; a bundle starts with",
    ),
    "version": (pack(GOOD_TEXT, DATA, version=2), "header: it has format version 2; edgekit "),
    "zero": (pack(GOOD_TEXT, DATA, zero=7), "header: bytes 12 to 15 must be zero and are 7"),
    "file size": (
        pack(GOOD_TEXT, DATA, file_size=2**64 - 1),
        "header: it declares 18446744073709551615 bytes, and",
    ),
    "garbage behind": (pack(GOOD_TEXT, DATA) + b"x", "header: it declares"),
    "garbage declared": (pack(GOOD_TEXT, DATA + b"x"), "entries: they end at byte"),
    "manifest size": (
        pack(GOOD_TEXT, DATA, manifest_size=2**63),
        "header: a manifest of 9223372036854775808 bytes; the limit is 8388608",
    ),
    "manifest beyond": (
        pack(GOOD_TEXT, DATA, manifest_size=8_000_000),
        "header: a manifest of 8000000 bytes, and",
    ),
    "digest": (pack(GOOD_TEXT, DATA, digest=bytes(32)), "manifest: its sha256 is not the one in the header"),
    "a short text": (b"hello\n", r"header: it starts with b'hello\n'; a bundle starts with"),
    "short": (b"EDGEKIT\0", "header: the file has 8 of 64 bytes"),
    "empty": (b"", "it cannot be read: it is empty"),
    "entries cut": (pack(GOOD_TEXT, DATA[:-1]), "entries: they end at byte"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_header(tmp_path: Path, name: str) -> None:
    content, why = HEADERS[name]
    assert refusal(tmp_path, content).startswith(why)


DEEP = 100_000
NOT_TEXT = " contains a control character or half of a surrogate pair"
TEXTS = {
    "not UTF-8": (pack(b'{"a":"\xff"}'), "manifest: byte 6 is not UTF-8"),
    "not JSON": (text_of("{]"), "manifest: character 1 is not JSON"),
    "no object": (text_of("[]"), "manifest: a list where an object is expected"),
    "deep lists": (text_of("[" * DEEP + "]" * DEEP), "manifest: objects and lists are more than 32 deep"),
    "deep objects": (
        text_of('{"a":' * DEEP + "1" + "}" * DEEP),
        "manifest: objects and lists are more than 32 deep",
    ),
    "33 deep": (text_of("[" * 33 + "]" * 33), "manifest: objects and lists are more than 32 deep"),
    "many values": (
        text_of("[" + "0," * 500_001 + "0]"),
        "manifest: about 500002 values; the limit is 500000",
    ),
    "NaN": (text_of('{"a":NaN}'), "manifest: NaN is not JSON"),
    "infinity": (text_of('{"a":-Infinity}'), "manifest: -Infinity is not JSON"),
    "overflow": (text_of('{"a":1e999}'), "manifest: '1e999' is not a number of 64 bits"),
    "long number": (
        text_of('{"a":' + "9" * 5000 + "}"),
        "manifest: a number of 5000 digits; the limit is 32",
    ),
    "key twice": (text_of('{"a":{"b":1,"b":2}}'), "manifest: key 'b' is twice in one object"),
    "escape code": (
        text_of(r'{"a":"\u001b[2J"}'),
        r"manifest: '\x1b[2J'" + NOT_TEXT,
    ),
    "surrogate": (
        text_of(r'{"a":"\ud800"}'),
        r"manifest: '\ud800'" + NOT_TEXT,
    ),
    "key of no text": (
        text_of(r'{"a\u0000":1}'),
        r"manifest: 'a\x00'" + NOT_TEXT,
    ),
    "long text": (
        text_of('{"a":"' + "x" * 65_537 + '"}'),
        "manifest: a text of 65537 characters; the limit is 65536",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_json(tmp_path: Path, name: str) -> None:
    content, why = TEXTS[name]
    assert refusal(tmp_path, content).startswith(why)


def entry(name: str, offset: int = 0, size: int = 0) -> dict[str, Any]:
    return {"name": name, "offset": offset, "size": size, "sha256": "0" * 64}


def swap(items: list[Any]) -> None:
    items[0], items[1] = items[1], items[0]


V, E, G = "variants", "entries", "golden"
ODD = "entries[0].name: {} is not a plain relative name"
VALUES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing key": (lambda m: m.pop("tools"), "manifest: 'tools' is missing"),
    "unknown key": (lambda m: m.update(x=1), "manifest: key 'x' is unknown"),
    "other format": (lambda m: m.update(format="zip"), "format: 'zip' where 'edgekit-bundle' is expected"),
    "version true": (lambda m: m.update(version=True), "version: True where 1 is expected"),
    "digest": (lambda m: m["source"].update(sha256="0"), "source.sha256: '0' is not a sha256 in 64"),
    "opset": (
        lambda m: m["source"].update(opset=1.5),
        "source.opset: 1.5 where a whole number from 1 to 10000",
    ),
    "dtype": (
        lambda m: m["inputs"][0].update(dtype="object"),
        "inputs[0].dtype: 'object' is not one of bool,",
    ),
    "rank": (lambda m: m["inputs"][0].update(shape=[1] * 17), "inputs[0].shape: 17 items; the limit is 16"),
    "negative": (
        lambda m: m["inputs"][0].update(shape=[-1]),
        "inputs[0].shape[0]: -1 where a whole number from 0",
    ),
    "huge tensor": (
        lambda m: m["outputs"][0].update(shape=[2**40, 2**40]),
        "outputs[0].shape: a tensor of 4835703278458516698824704 bytes; the limit is 4294967296",
    ),
    "tensor twice": (lambda m: m["inputs"].append(m["inputs"][0]), "inputs: two are called 'x'"),
    "variant twice": (lambda m: m[V].append(m[V][0]), "variants: two are called 'ort-fp32'"),
    "many variants": (lambda m: m.update(variants=[m[V][0]] * 257), "variants: 257 items; the limit is 256"),
    "status": (lambda m: m[V][0].update(status="fine"), "variants[0].status: 'fine' is neither verified,"),
    "target": (lambda m: m[V][0].update(target="a b"), "variants[0].target: 'a b' is not a plain word"),
    "file name": (
        lambda m: m[V][0].update(files={"../x": m[E][0]["name"]}),
        "variants[0].files, name: '../x' is not a plain relative name: part '..'",
    ),
    "file in file": (
        lambda m: m[V][0].update(files={"a": m[E][0]["name"], "A/b": m[E][0]["name"]}),
        "variants[0].files: 'A/b' is inside another file",
    ),
    "file by case": (
        lambda m: m[V][0].update(files={"a": m[E][0]["name"], "A": m[E][0]["name"]}),
        "variants[0].files: 'A' and 'a' differ in case only",
    ),
    "no such entry": (
        lambda m: m[V][0].update(files={"a": "b"}),
        "variants[0].files['a']: entry 'b' does not exist",
    ),
    "golden names": (
        lambda m: m[G][0].update(inputs={}),
        "golden[0].inputs: the names are not those of the model",
    ),
    "golden entry": (
        lambda m: m[G][0].update(inputs={"x": "b"}),
        "golden[0].inputs['x']: entry 'b' does not exist",
    ),
    "shrunk, grown": (
        lambda m: m[V][0].update(shrunk={"multiplications": [1, 2], "golden": [m[G][0]["outputs"]]}),
        "variants[0].shrunk.multiplications: they must be those before and after, and must not grow",
    ),
    "shrunk, no golden": (
        lambda m: m[V][0].update(shrunk={"multiplications": [2, 1], "golden": []}),
        "variants[0].shrunk.golden: 0 outputs for the bundle's 1 golden vectors",
    ),
    "shrunk, golden entry": (
        lambda m: m[V][0].update(shrunk={"multiplications": [2, 1], "golden": [{"y": "b"}]}),
        "variants[0].shrunk.golden[0]['y']: entry 'b' does not exist",
    ),
    "golden size": (
        lambda m: m[G][0].update(inputs={"x": "variants/ort-fp32/model.bin"}),
        "golden[0].inputs['x']: entry 'variants/ort-fp32/model.bin' has 8 bytes, the tensor alone 24",
    ),
    "millions of entries": (
        lambda m: m.update(entries=[entry("a")] * 10_001),
        "entries: 10001 items; the limit is 10000",
    ),
    "entry twice": (
        lambda m: m[E].insert(0, m[E][0]),
        "entries[1].name: 'golden/0/x.npy' is not after the one",
    ),
    "out of order": (lambda m: swap(m[E]), "entries[0].offset: 192 where 0 is expected"),
    "overlap": (lambda m: m[E][1].update(offset=64), "entries[1].offset: 64 where 192 is expected"),
    "gap": (lambda m: m[E][1].update(offset=256), "entries[1].offset: 256 where 192 is expected"),
    "huge entry": (lambda m: m[E][2].update(size=2**62), "entries: they end at byte"),
    "beyond": (
        lambda m: m[E][2].update(size=2**63),
        "entries[2].size: 9223372036854775808 where a whole number",
    ),
    "negative size": (lambda m: m[E][2].update(size=-1), "entries[2].size: -1 where a whole number from 0"),
    "traversal": (lambda m: m[E][0].update(name="../../etc/passwd"), ODD.format("'../../etc/passwd'")),
    "absolute": (lambda m: m[E][0].update(name="/etc/passwd"), ODD.format("'/etc/passwd'")),
    "drive": (lambda m: m[E][0].update(name="C:x"), ODD.format("'C:x'")),
    "backslash": (lambda m: m[E][0].update(name="a\\b"), ODD.format("'a\\\\b'")),
    "empty name": (lambda m: m[E][0].update(name=""), ODD.format("''")),
    "empty part": (lambda m: m[E][0].update(name="a//b"), ODD.format("'a//b'")),
    "dot": (lambda m: m[E][0].update(name="a/./b"), ODD.format("'a/./b'")),
    "dot at the end": (lambda m: m[E][0].update(name="a."), ODD.format("'a.'")),
    "space at the end": (lambda m: m[E][0].update(name="a "), ODD.format("'a '")),
    "letters": (lambda m: m[E][0].update(name="é"), ODD.format(r"'\xe9'")),
    "device": (
        lambda m: m[E][0].update(name="a/NUL.txt"),
        "entries[0].name: 'a/NUL.txt' is a device's name on",
    ),
    "long name": (
        lambda m: m[E][0].update(name="a" * 201),
        "entries[0].name: a name of 201 characters; the limit is 200",
    ),
    "name of a list": (lambda m: m[E][0].update(name=[]), "entries[0].name: a list where a text is expected"),
    "card": (lambda m: m.update(card=[]), "card: a list where an object is expected"),
    "stage twice": (
        lambda m: m.update(
            cascade={
                "stages": [{"name": "a"}, {"name": "a"}],
                "bundles": {"a": {"entry": m[E][0]["name"], "digest": m[E][0]["sha256"]}},
            }
        ),
        "cascade.stages: two are called 'a'",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_hostile_values(tmp_path: Path, name: str) -> None:
    change, why = VALUES[name]
    assert refusal(tmp_path, changed(change)).startswith(why)


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
