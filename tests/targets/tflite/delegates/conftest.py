"""Delegates compiled from delegate.c, and a bundle that they run: convolutions, ADD and what they leave."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import edgekit
from edgekit.bundle import Bundle
from edgekit.runtime import Session
from tests.fixtures.delegates import NO_COMPILER, compile_delegate, settled

BODY = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,16,16] x) => (float[1,8,8,8] y) {
        a = Conv<pads=[1,1,1,1]>(x, w1)
        r = Relu(a)
        p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
        c = Conv<pads=[1,1,1,1]>(p, w2)
        d = Add(c, p)
        y = Conv<pads=[1,1,1,1]>(d, w3)
    }
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile the delegate, with a TfLiteRegistration of this many bytes."""
    folder = tmp_path_factory.mktemp("delegates")

    @cache
    def compiled(registration_bytes: int = 88) -> Path:
        path = folder / f"delegate{registration_bytes}.so"
        if not compile_delegate(path, registration_bytes):
            pytest.skip(NO_COMPILER)
        return path

    return compiled


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with tflite-fp32 and tflite-int8; the former's SNR limit is 100 dB."""
    rng = np.random.default_rng(0)
    model, folder = onnx.parser.parse_model(BODY), tmp_path_factory.mktemp("bundle")
    for name, shape in {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 3, 3)}.items():
        weights = rng.normal(0, 0.2, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, name))
    onnx.save(model, folder / "model.onnx")
    samples = [{"x": rng.random((1, 3, 16, 16), np.float32)} for _ in range(64)]
    built = edgekit.build(  # int8 of so small a network is slower than fp32 on some processors
        folder / "model.onnx", targets=["tflite"], precision="int8", samples=samples, force=True
    )
    built.save(folder / "model.edgekit")
    return folder / "model.edgekit"


@pytest.fixture
def bundle(bundle_path: Path) -> Bundle:
    return Bundle.open(bundle_path)


@pytest.fixture
def open_on(bundle: Bundle, library: Callable[..., Path]) -> Callable[..., Session]:
    """Open a session on the delegate with these options, and wait for its verdict."""

    def opened(
        options: str = "", *, variant: str = "tflite-fp32", prefix: str = "delegate", **more: object
    ) -> Session:
        path = more.pop("path", None) or library()
        device = ",".join(filter(None, [f"{prefix}:{path}", options]))
        return settled(Session(bundle, variant=variant, device=device, threads=1, **more))  # type: ignore[arg-type]

    return opened
