"""What OpenVINO compiled is kept for the next process, and never believed if it is not whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.models import SMALL_CNN, write

pytestmark = pytest.mark.needs_openvino


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    return edgekit.build(write(folder, SMALL_CNN), targets=["openvino"]).save(folder / "kept.edgekit")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls by which OpenVINO opened a model."""
    import openvino

    calls: list[str] = []
    compile_model, import_model = openvino.Core.compile_model, openvino.Core.import_model

    def count(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **options: object) -> object:
            result = function(*args, **options)
            calls.append(name)  # those that succeed
            return result

        return counted

    monkeypatch.setattr(openvino.Core, "compile_model", count("compile", compile_model))
    monkeypatch.setattr(openvino.Core, "import_model", count("import", import_model))
    return calls


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def answer(bundle: Path, threads: int = 1) -> Array:
    with Session(bundle, threads=threads) as session:
        spec = session.inputs[0]
        feeds = {spec.name: np.random.default_rng(0).standard_normal(spec.shape).astype(spec.dtype)}
        return session.run(feeds)[session.outputs[0].name].copy()


def blobs(cache: Path) -> list[Path]:
    return list(cache.glob("artifacts/*/compiled/*.blob"))


def test_the_second_session_compiles_nothing(bundle: Path, cache: Path, compiled: list[str]) -> None:
    first = answer(bundle)
    np.testing.assert_array_equal(answer(bundle), first)
    assert compiled == ["compile", "import"]


def flip(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def foreign(content: bytes) -> bytes:
    other = b"another build of OpenVINO's blob" * 100
    return hashlib.sha256(other).digest() + other


@pytest.mark.parametrize("damage", [flip, foreign, lambda content: content[:100], lambda content: b""])
def test_a_damaged_blob_is_replaced(
    damage: Callable[[bytes], bytes], bundle: Path, cache: Path, compiled: list[str]
) -> None:
    first = answer(bundle)
    (blob,) = blobs(cache)
    blob.write_bytes(damage(blob.read_bytes()))
    for _ in range(2):
        np.testing.assert_array_equal(answer(bundle), first)
    assert compiled == ["compile", "compile", "import"]


def test_a_blob_that_others_may_write_is_not_read(bundle: Path, cache: Path, compiled: list[str]) -> None:
    answer(bundle)
    (blob,) = blobs(cache)
    blob.chmod(0o666)
    answer(bundle)
    assert compiled == ["compile", "compile"]
    assert blob.stat().st_mode & 0o777 == 0o600


def test_each_number_of_threads_has_its_own_and_four_are_kept(
    bundle: Path, cache: Path, compiled: list[str]
) -> None:
    for threads in (1, 2, 3, 4, 5, 5):
        answer(bundle, threads)
    assert compiled == ["compile"] * 5 + ["import"]
    assert len(blobs(cache)) == 4


def test_a_session_needs_no_folder_to_keep_it_in(bundle: Path, cache: Path, compiled: list[str]) -> None:
    first = answer(bundle)
    (blob,) = blobs(cache)
    blob.unlink()
    blob.parent.rmdir()
    blob.parent.write_text("in its place")
    np.testing.assert_array_equal(answer(bundle), first)
    assert compiled == ["compile", "compile"]
