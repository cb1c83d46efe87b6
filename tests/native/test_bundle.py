"""Bundles that libedgekit opens and refuses, with Python's texts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit._version import __version__
from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.runtime.fallback.policy import rank
from edgekit.runtime.loading.golden_check import snr_db
from tests.fixtures.bundles import pack, packed_parts, small_bundle, variant
from tests.native import library as native
from tests.native import structures
from tests.native.library import NativeBundle, RefusedError

pytestmark = pytest.mark.needs_compiler


def refusals(path: Path) -> tuple[str, str]:
    """Return the texts of Python and of the library for a bundle that both refuse."""
    with pytest.raises(BundleError) as python:
        Bundle.open(path)
    with pytest.raises(RefusedError) as library:
        NativeBundle(path)
    return str(python.value), str(library.value)


def test_what_a_bundle_holds(tmp_path: Path) -> None:
    made = small_bundle([variant("a", "ort", p50_ms=2.5), variant("b", "tflite", status="rejected: slow")])
    path = made.save(tmp_path / "small.edgekit")
    with NativeBundle(path) as bundle:
        assert [bundle.count(what) for what in range(5)] == [1, 1, 2, 3, 1]
        digest, manifest = (native.library().edgekit_text(bundle.handle, what, None) for what in (0, 1))
        assert digest.decode() == made.digest
        assert json.loads(manifest) == made.manifest
        first, second = (bundle.at("variant", structures.Variant, i) for i in range(2))
        assert (first.name, first.target, first.usable, first.time_ms) == (b"a", b"ort", 1, 2.5)
        assert (second.status, second.usable, second.files) == (b"rejected: slow", 0, 0)
        file = bundle.at("file", structures.File, 0, 0)
        assert (file.name, file.size_bytes) == (b"model.bin", 1)
        assert file.sha256.decode() == made.sha256("variants/a/model.bin")
        x = bundle.at("tensor", structures.Tensor, 0, 0)
        assert (x.name, x.dtype, x.shape[: x.rank]) == (b"x", b"float32", [1, 6])
        for entry in made.manifest["entries"]:
            assert bundle.read(entry["name"]) == bytes(made.read(entry["name"]))
        bundle.verify()
        with pytest.raises(RefusedError, match="has no entry 'nothing'"):
            bundle.read("nothing")
        with pytest.raises(RefusedError, match="variant 2 does not exist; there are 2"):
            bundle.at("variant", structures.Variant, 2)
    assert native.library().edgekit_version().decode() == __version__


def _bounds() -> dict[str, Any]:
    """Manifests that exceed a bound, or whose names leave the folder."""
    sizes = {"huge": 1 << 62, "beyond int64": 1 << 64, "negative": -1, "float": 1.0, "bool": True}
    cases: dict[str, Any] = {f"size {name}": {"size": size} for name, size in sizes.items()}
    for name in (
        "../x",
        "/etc/x",
        "a//b",
        "a/./b",
        "x/",
        "C:x",
        "NUL.txt",
        "a\\b",
        " a",
        "a.",
        "é",
        "",
        "n" * 201,
    ):
        cases[f"name {name[:10]!r}"] = {"name": name}
    return cases | {"unknown key": {"more": 1}, "sha256": {"sha256": "A" * 64}, "offset": {"offset": 64}}


@pytest.mark.parametrize("case", _bounds())
def test_an_entry_beyond_its_bounds(tmp_path: Path, case: str) -> None:
    manifest, data = packed_parts(small_bundle())
    manifest["entries"][0] |= _bounds()[case]
    path = tmp_path / "bad.edgekit"
    path.write_bytes(pack(json.dumps(manifest).encode(), data))
    python, library = refusals(path)
    assert library == python


MANIFESTS = {
    "duplicate entries": lambda m: m["entries"].append(dict(m["entries"][-1])),
    "names that differ in case": lambda m: m["variants"][0]["files"].update({"MODEL.bin": "golden/0/x.npy"}),
    "a file inside another": lambda m: m["variants"][0]["files"].update({"model.bin/x": "golden/0/x.npy"}),
    "an entry that is missing": lambda m: m["variants"][0]["files"].update({"model.bin": "other"}),
    "two variants of one name": lambda m: m["variants"].append(m["variants"][0]),
    "a tensor of 2^80 bytes": lambda m: m["inputs"][0].update(shape=[1 << 20] * 4),
    "17 dimensions": lambda m: m["inputs"][0].update(shape=[1] * 17),
    "an unknown dtype": lambda m: m["outputs"][0].update(dtype="object"),
    "two open dimensions": lambda m: m["outputs"][0].update(shape=[-1, -1]),
    "golden of another size": lambda m: m["outputs"][0].update(shape=[1, 4000]),
    "a status without a reason": lambda m: m["variants"][0].update(status="rejected"),
    "257 variants": lambda m: m.update(variants=m["variants"] * 257),
    "65 golden pairs": lambda m: m.update(golden=m["golden"] * 65),
    "a target with a slash": lambda m: m["variants"][0].update(target="../ort"),
    "no card": lambda m: m.pop("card"),
    "another version": lambda m: m.update(version=2),
    "a fraction in place of an integer": lambda m: m["source"].update(opset=17.5),
    "half of a surrogate pair": lambda m: m.update(edgekit="\ud800"),
    "a control character": lambda m: m.update(edgekit="\x1b[2J"),
    "33 levels": lambda m: m.update(options=json.loads('{"a":' * 33 + "1" + "}" * 33)),
    "a text of 65537 characters": lambda m: m.update(edgekit="a" * 65_537),
    "600,000 values": lambda m: m["options"].update(many=[0] * 600_000),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_does_not_fit(tmp_path: Path, case: str) -> None:
    manifest, data = packed_parts(small_bundle())
    MANIFESTS[case](manifest)
    path = tmp_path / "bad.edgekit"
    path.write_bytes(pack(json.dumps(manifest).encode(), data))
    python, library = refusals(path)
    if case == "a tensor of 2^80 bytes":  # the library does not print numbers of more than 64 bits
        assert "a tensor of more than 18446744073709551615 bytes; the limit is 4294967296" in library
    else:
        assert library == python


RAW = {
    "not UTF-8": b'{"a": "\xff"}',
    "a repeated key": b'{"a": 1, "a": 2}',
    "NaN": b'{"a": NaN}',
    "a number beyond 64 bits": b'{"a": 1e999}',
    "a number of 33 digits": b'{"a": ' + b"1" * 33 + b"}",
    "nothing": b"",
    "a list": b"[]",
    "1,000,000 brackets": b"[" * 1_000_000,
    "100,000 brackets": b"[" * 100_000,
    "a comma too many": b'{"a": 1,}',
    "text after it": b"{} {}",
    "a byte order mark": b"\xef\xbb\xbf{}",
}


@pytest.mark.parametrize("case", RAW)
def test_json_that_is_not_strict(tmp_path: Path, case: str) -> None:
    path = tmp_path / "bad.edgekit"
    path.write_bytes(pack(RAW[case]))
    python, library = refusals(path)
    syntax = case in ("nothing", "NaN", "a comma too many", "text after it", "a byte order mark")
    assert (library == python) is not syntax, library
    if syntax:  # Python's text goes on with its parser's words
        assert library.splitlines()[0] == python.splitlines()[0]
        assert library.splitlines()[-1] == python.splitlines()[-1]


HEADERS: dict[str, dict[str, Any]] = {
    "another magic": {"magic": b"PK\x03\x04abcd"},
    "version 2": {"version": 2},
    "not zero": {"zero": 7},
    "a huge manifest": {"manifest_size": 1 << 63},
    "a manifest beyond the file": {"manifest_size": 1 << 20},
    "a huge file": {"file_size": (1 << 64) - 1},
    "another digest": {"digest": bytes(32)},
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_that_lies(tmp_path: Path, case: str) -> None:
    manifest, data = packed_parts(small_bundle())
    path = tmp_path / "bad.edgekit"
    path.write_bytes(pack(json.dumps(manifest).encode(), data, **HEADERS[case]))
    python, library = refusals(path)
    assert library == python


def test_files_that_are_not_bundles(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    whole = small_bundle().save(tmp_path / "whole.edgekit").read_bytes()
    (tmp_path / "short").write_bytes(whole[:40])
    (tmp_path / "cut").write_bytes(whole[:-1])
    (tmp_path / "longer").write_bytes(whole + b"\0")
    for name in ("empty", "pipe", "short", "cut", "longer", "missing"):
        python, library = refusals(tmp_path / name)
        assert library == python
    with pytest.raises(RefusedError, match="it is not a regular file"):
        NativeBundle(tmp_path)


def test_damage_of_entries_and_padding(tmp_path: Path) -> None:
    path = small_bundle().save(tmp_path / "small.edgekit")
    whole, bundle = path.read_bytes(), Bundle.open(path)
    for at in (len(whole) - 1, 64 + len(bundle._manifest_bytes)):
        path.write_bytes(whole[:at] + b"\x01" + whole[at + 1 :])
        with Bundle.open(path) as python, pytest.raises(BundleError) as expected:
            python.verify_entries()
        with NativeBundle(path) as library, pytest.raises(RefusedError) as found:
            library.verify()
        assert str(found.value) == str(expected.value)


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")
def test_the_ratio_of_signal_to_noise_is_python_s() -> None:
    rng = np.random.default_rng(5)
    for number in range(200):
        dtype = rng.choice(["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"])
        x = (rng.normal(0, 50, int(rng.integers(0, 3000)))).astype(dtype)
        y = (x + rng.normal(0, 0.5, x.shape)).astype(dtype)
        if number % 5 == 0 and x.dtype.kind == "f" and x.size:
            x[0] = y[0] = np.inf
            y[-1] = rng.choice([1, np.nan])
        assert native.snr_db(x, y) == snr_db(x, y)
        assert native.snr_db(x, x.copy()) is None
    with pytest.raises(RefusedError, match=r"output x is int8 \[3\]; float32 \[3\] is expected"):
        native.snr_db(np.zeros(3, np.float32), np.zeros(3, np.int8))


def test_the_order_of_variants_is_python_s(tmp_path: Path) -> None:
    """Without an engine each candidate fails: the error lists them in their order."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        variants = [
            variant(
                f"v{i}",
                str(rng.choice(["ort", "tflite"])),
                status=str(rng.choice(["verified", "not run: no engine", "rejected: wrong"])),
                p50_ms=float(rng.choice([1.0, 1.02, 1.05, 3.0])) if rng.random() < 0.6 else None,
                size_bytes=int(rng.integers(1, 4)) if rng.random() < 0.8 else None,
            )
            for i in range(int(rng.integers(1, 8)))
        ]
        times = {v.name: v.evidence["timing"]["p50_ms"] for v in variants if "timing" in v.evidence}
        order = rank(variants, times)
        path = small_bundle(variants).save(tmp_path / "order.edgekit")
        with NativeBundle(path) as bundle, pytest.raises(RefusedError) as refused:
            native.NativeSession(bundle, "")
        names = [line.split()[0] for line in str(refused.value).splitlines()[1:-1]]
        assert names == [c.variant.name for c in order.candidates] + list(order.skipped)
