"""edgekit.js in a project of Vite: what ``vite build`` writes, and its development server."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import edgekit
from edgekit.processing.card import parse_card
from edgekit.web.folder import write_web
from tests.native.models import COLOUR_CARD, COLOURS
from tests.report.browser import browser
from tests.web.host import WAIT_MS, hosted

pytestmark = [
    pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort, pytest.mark.needs_tflite,
    pytest.mark.slow,
]  # fmt: skip
VITE = "vite@8.4.0"
VARIANTS = {"ort-fp32": "onnxruntime-web", "tflite-fp32": "LiteRT.js"}
NOT_COPIED = ("index.html", "page.js", "page.css", "service-worker.js", "model.edgekit")
"""Files of the exported folder that docs/browser.md leaves out of another page."""
PAGE = (
    "<!doctype html><link rel=icon href=data:,><pre id=out></pre>"
    "<script type=module src=/src/main.js></script>"
)
MAIN = """import {Session} from './edgekit/edgekit.js';
const picture = new ImageData(new Uint8ClampedArray(4 * 16 * 16).fill(200), 16, 16), results = [];
for (const variant of ['ort-fp32', 'tflite-fp32']) {
  try {
    const session = await Session.open('/model.edgekit', {variant, strict: true});
    const {items} = await session.predict(picture);
    results.push(`${session.variant} ${session.engine.split(' ')[0]} ${items.length}`);
  } catch (problem) {
    results.push(`${problem.name}: ${problem.message}`);
  }
}
document.getElementById('out').textContent = results.join(', ');
"""
DONE = "document.getElementById('out').textContent !== ''"
EXPECTED = ", ".join(f"{variant} {engine} 3" for variant, engine in VARIANTS.items())


@pytest.fixture(scope="module")
def project(npm_package: Path, litert_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose page imports edgekit.js from its sources."""
    folder = tmp_path_factory.mktemp("vite")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--save-dev", VITE]
    if subprocess.run(install, cwd=folder, capture_output=True, timeout=600, check=False).returncode:
        pytest.skip(f"npm did not install {VITE}")
    onnx.save(onnx.parser.parse_model(COLOURS), folder / "m.onnx")
    bundle = edgekit.build(folder / "m.onnx", targets=["ort", "tflite"], card=parse_card(COLOUR_CARD))
    write_web(bundle, folder / "site", [npm_package, litert_package])
    shutil.copytree(folder / "site", folder / "src" / "edgekit", ignore=shutil.ignore_patterns(*NOT_COPIED))
    (folder / "public").mkdir()
    shutil.copy(folder / "site" / "model.edgekit", folder / "public")
    (folder / "index.html").write_text(PAGE)
    (folder / "src" / "main.js").write_text(MAIN)
    return folder


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    with browser() as running:
        yield running


def look(program: Any, url: str) -> tuple[str, int, list[str]]:
    """Return what the page writes, its number of workers, and its console."""
    page, said = program.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.goto(url)
    page.wait_for_function(DONE, timeout=WAIT_MS)
    found = page.inner_text("#out"), len(page.workers), said
    page.close()
    return found


def test_a_build_runs_both_engines_in_a_worker(program: Any, project: Path) -> None:
    done = subprocess.run(
        ["npx", "vite", "build"], cwd=project, capture_output=True, text=True, timeout=600, check=True
    )
    assert "warn" not in (done.stdout + done.stderr).lower()
    with hosted(project / "dist") as host:
        assert look(program, host.url) == (EXPECTED, 2, [])


def test_the_development_server_does_too(program: Any, project: Path) -> None:
    command = [str(project / "node_modules" / ".bin" / "vite"), "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            colours = re.compile("\x1b\\[[0-9;]*m")
            lines = (colours.sub("", line) for line in server.stdout)
            url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
            text, workers, _ = look(program, url)  # the console has lines of the server's
            assert (text, workers) == (EXPECTED, 2)
        finally:
            server.terminate()
