"""The page on WebGPU, on SwiftShader, the GPU of software that Chromium has: judged by golden vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.web.folder import write_web
from tests.native.models import colours_bundle
from tests.report.browser import chromium
from tests.web.host import checks, choose_bundle, hosted, opened

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
FLAGS = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
FLAGS += ["--enable-features=Vulkan,WebGPU", "--ignore-gpu-blocklist"]
ADAPTER = "navigator.gpu?.requestAdapter().then((adapter) => adapter !== null)"


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield running
        running.close()


@pytest.mark.needs_shared
def test_a_gpu_that_computes_another_model_is_left(
    program: Any, npm_package: Path, shared: Path, tmp_path: Path
) -> None:
    """onnxruntime-web 1.30.0 computes Silero VAD wrong on WebGPU, without an error."""
    write_web(colours_bundle(), tmp_path / "site", [npm_package], webgpu=True)
    silero = shared / "models" / "silero_vad_16k_sequence.onnx"
    bundle = edgekit.build(silero, targets=["ort"], shapes={"input": (1, 576)})
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, _):
        if not page.evaluate(ADAPTER):
            pytest.skip("this Chromium has no WebGPU adapter")
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
