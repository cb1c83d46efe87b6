"""What tests of sessions share: a bundle that real engines run, and engines that do as they are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import edgekit
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.fake_engines import engines as engines
from tests.fixtures.models import SMALL_CNN, write


@pytest.fixture(scope="session")
def caches(memory_folders: Iterator[Path]) -> Iterator[Path]:
    """Caches in memory: builds and sessions flush thousands of small files."""
    return memory_folders


@pytest.fixture(scope="session")
def three_engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small CNN for ONNX Runtime, OpenVINO and LiteRT; a test that uses it is marked as needing them."""
    folder = tmp_path_factory.mktemp("three")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
        bundle = edgekit.build(write(folder, SMALL_CNN), targets=["ort", "openvino", "tflite"])
        return bundle.save(folder / "three.edgekit")


@pytest.fixture
def bundles(tmp_path: Path) -> dict[str, Path]:
    return {
        name: small_bundle([variant(name, "ort")]).save(tmp_path / f"{name}.edgekit")
        for name in ("factory", "a", "b", "c")
    }


@pytest.fixture
def store(tmp_path: Path, bundles: dict[str, Path]) -> Store:
    """Bundles a and b were confirmed, b is current."""
    store = Store(tmp_path / "store", bundles["factory"])
    for name in "ab":
        store.install(bundles[name])
        store.begin()
        store.confirm()
    return Store(store.root, store.factory)
