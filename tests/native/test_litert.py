"""LiteRT's C interface as an engine: tflite variants compute what Python's session computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from tests.native.answers import assert_answers_as_python
from tests.native.library import NativeBundle, NativeSession, RefusedError, ort_library
from tests.native.litert_models import litert_library, litert_yolox

pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_tflite]


@pytest.fixture(scope="module")
def bundle(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return litert_yolox(shared, tmp_path_factory.mktemp("litert"))


@pytest.mark.needs_shared
def test_yolox_nano_answers_as_python(bundle: Path, shared: Path) -> None:
    assert_answers_as_python(bundle, shared, "tflite", litert_library(), "LiteRT ")


@pytest.mark.needs_shared
def test_more_threads_than_one_are_refused(bundle: Path) -> None:
    with (
        NativeBundle(bundle) as opened,
        pytest.raises(RefusedError, match="libedgekit runs LiteRT on one thread, not 4"),
    ):
        NativeSession(opened, litert_library(), target="tflite", threads=4)


def test_what_is_not_litert_is_an_error(tmp_path: Path) -> None:
    with NativeBundle(_empty(tmp_path)) as opened:
        for path, target, text in (
            ("/nothing/libLiteRt.so", "tflite", "^LiteRT cannot be loaded from /nothing/libLiteRt.so\n"),
            (ort_library(), "tflite", "it has no LiteRtCreateEnvironment"),
            (
                "libhailort.so",
                "hailo",
                "^libedgekit has no adapter for target hailo; it has ort, tflite and ",
            ),
        ):
            if path:
                with pytest.raises(RefusedError, match=text):
                    NativeSession(opened, path, target=target)


def _empty(folder: Path) -> Path:
    source = {"file": "m.onnx", "sha256": "0" * 64, "opset": 17, "nodes": 1}
    one = [{"name": "x", "dtype": "float32", "shape": [1]}]
    manifest = {"source": source, "inputs": one, "outputs": [{**one[0], "name": "y"}], "variants": []}
    return Bundle.create(manifest, {}).save(folder / "empty.edgekit")
