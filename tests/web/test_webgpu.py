"""The page on WebGPU, on SwiftShader, the GPU of software that Chromium has: judged by golden vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.web.folder import write_web
from tests.native.models import colours_bundle
from tests.report.browser import chromium
from tests.web.host import GPU_FLAGS, checks, choose_bundle, hosted, opened

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
ADAPTER = "navigator.gpu?.requestAdapter().then((adapter) => adapter !== null)"


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=GPU_FLAGS)
        yield running
        running.close()


@contextmanager
def on_the_gpu(program: Any, site: Path) -> Iterator[Any]:
    """Open the page of a folder where the browser has WebGPU."""
    with hosted(site) as host, opened(program, host.url) as (page, _):
        if not page.evaluate(ADAPTER):
            pytest.skip("this Chromium has no WebGPU adapter")
        yield page


@pytest.mark.needs_shared
def test_a_gpu_that_computes_another_model_is_left(
    program: Any, npm_package: Path, shared: Path, tmp_path: Path
) -> None:
    """onnxruntime-web 1.30.0 computes Silero VAD wrong on WebGPU, without an error."""
    write_web(colours_bundle(), tmp_path / "site", [npm_package], webgpu=True)
    silero = shared / "models" / "silero_vad_16k_sequence.onnx"
    bundle = edgekit.build(silero, targets=["ort"], shapes={"input": (1, 576)})
    with on_the_gpu(program, tmp_path / "site") as page:
        assert "WebGPU" in page.inner_text("#summary")
        assert checks(page)[1].startswith("passed colours on webgpu, golden vector 1, scores: ")
        choose_bundle(page, bundle.save(tmp_path / "silero.edgekit"))
        assert "WebAssembly" in page.inner_text("#summary")
        rows = checks(page)
        assert any(row.startswith("failed") and " on webgpu, " in row for row in rows)
        (left,) = [row for row in rows if row.startswith("not used")]
        assert " on webgpu: output " in left
        assert "the limit is" in left
        assert [row for row in rows if row.startswith("failed") and " on wasm, " in row] == []


@pytest.mark.needs_shared
@pytest.mark.needs_tflite
def test_litert_js_runs_on_the_gpu_or_says_what_it_lacks(
    program: Any, litert_package: Path, shared: Path, tmp_path: Path
) -> None:
    models = shared / "models"
    keywords = edgekit.build(models / "kws_ref_model_float32.onnx", targets=["tflite"])
    shapes = {"input": (1, 576)}
    silero = edgekit.build(models / "silero_vad_16k_sequence.onnx", targets=["tflite"], shapes=shapes)
    write_web(keywords, tmp_path / "site", [litert_package], webgpu=True)
    with on_the_gpu(program, tmp_path / "site") as page:
        assert "tflite-fp32 on LiteRT.js 2.5.3, WebGPU: verified" in page.inner_text("#summary")
        assert checks(page)[1].startswith("passed tflite-fp32 on webgpu, golden vector 1, Identity: ")
        choose_bundle(page, silero.save(tmp_path / "silero.edgekit"))
        assert "tflite-fp32 on LiteRT.js 2.5.3, WebAssembly: verified" in page.inner_text("#summary")
        assert checks(page)[1] == (
            "not used tflite-fp32 on webgpu: LiteRT.js has no kernels on WebGPU for some of its operators"
        )
