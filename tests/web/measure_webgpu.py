"""Both engines on WebGPU and on WebAssembly, in Chromium on SwiftShader: verdict, golden vectors' SNR, ms.

python -m tests.web.measure_webgpu SHARED onnxruntime-web-1.30.0.tgz litertjs-core-2.5.3.tgz
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import sync_playwright

import edgekit
from edgekit.web.folder import write_web
from tests.report.browser import chromium
from tests.web.host import GPU_FLAGS, hosted

MODELS: dict[str, dict[str, tuple[int, ...]]] = {
    "efficientnet_lite0": {},
    "yolox_nano": {},
    "resnet8_cifar10_fp32": {},
    "kws_ref_model_float32": {},
    "vww_96_float": {},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)},
    "silero_vad_16k_sequence": {"input": (1, 576)},
    "resnet8_cifar10_int8_qdq": {},
    "vww_96_int8": {},
    "coco_ssd_mbv2_300": {},
    "centerface": {"input.1": (1, 3, 320, 320)},
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 320, 320)},
    "ch_PP-OCRv4_rec_infer": {"x": (1, 3, 48, 320)},
}
"""Shared models, with the shapes that they leave open."""
OPEN = """async (provider) => {
  const {Session} = await import('./edgekit.js');
  try {
    const session = await Session.open('model.edgekit', {providers: [provider]});
    const {p50_ms} = await session.bench(2), [{snr_db}] = session.golden.sort((a, b) => a.snr_db - b.snr_db);
    await session.close();
    return `${session.engine}  ${snr_db.toFixed(1)} dB  ${p50_ms.toFixed(1)} ms`;
  } catch (problem) {
    return problem.message.split('\\n')[1];
  }
}"""


def main(shared: Path, packages: Sequence[Path]) -> None:
    """Print a line for each engine, model and provider."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        program = playwright.chromium.launch(executable_path=chromium(), args=GPU_FLAGS)
        for package, (name, shapes) in itertools.product(packages, MODELS.items()):
            target = "ort" if package.name.startswith("onnxruntime-web") else "tflite"
            site = Path(folder) / target / name
            bundle = edgekit.build(shared / "models" / f"{name}.onnx", targets=[target], shapes=shapes)
            write_web(bundle, site, [package], webgpu=True)
            with hosted(site) as host:
                page = program.new_page()
                page.goto(host.url)
                for provider in ("webgpu", "wasm"):
                    print(f"{target:6} {name:32} {provider:8} {page.evaluate(OPEN, provider)}", flush=True)
                page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
