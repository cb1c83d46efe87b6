"""Bundles that libedgekit opens and refuses, with Python's texts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from edgekit._version import __version__
from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.runtime.fallback.policy import rank
from edgekit.runtime.loading.golden_check import snr_db
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.hostile_manifests import REFUSED
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


SYNTAX = ("not JSON", "NaN", "infinity", "nothing", "a comma too many", "text after it", "a byte order mark")
"""Python's texts go on with words of its parser."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_python_refuses_is_refused_with_its_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bad.edgekit"
    path.write_bytes(REFUSED[name][0])
    python, library = refusals(path)
    if name == "values: huge tensor":  # the library does not print numbers of more than 64 bits
        assert "a tensor of more than 18446744073709551615 bytes; the limit is 4294967296" in library
    elif name.removeprefix("text: ") in SYNTAX:
        assert library.splitlines()[0] == python.splitlines()[0]
        assert library.splitlines()[-1] == python.splitlines()[-1]
    else:
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
