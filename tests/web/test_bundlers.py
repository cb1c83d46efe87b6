"""The exported folder as a package in projects of Vite, webpack and Next.js: builds, development servers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest

import edgekit
from edgekit.processing.card import parse_card
from edgekit.web.folder import write_web
from tests.native.models import COLOUR_CARD, COLOURS
from tests.web.host import hosted

pytestmark = [
    pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort, pytest.mark.needs_tflite,
    pytest.mark.slow,
]  # fmt: skip
WAIT_MS = 300_000
"""Next.js compiles a page when it is asked for."""
SCRIPT = """import {Session} from 'edgekit';
export async function answers() {
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
  return results.join(', ');
}
"""
EXPECTED = "ort-fp32 onnxruntime-web 3, tflite-fp32 LiteRT.js 3"
MAIN = """import {answers} from './answers.js';
document.getElementById('out').textContent = await answers();
"""
HTML = "<!doctype html><link rel=icon href=data:,><pre id=out></pre>"
WEBPACK = f"""const Html = require('html-webpack-plugin');
module.exports = {{
  mode: 'production', entry: './src/main.js', plugins: [new Html({{templateContent: '{HTML}'}})],
  devServer: {{host: '127.0.0.1', static: 'public'}},
}};
"""
NEXT_PAGE = """'use client';
import {Session} from 'edgekit';
import {useEffect, useState} from 'react';
import {answers} from '../src/answers.js';
export default function Page() {
  const [text, setText] = useState('');
  useEffect(() => { answers().then(setText); }, []);
  const first = async (session: Session): Promise<string> =>
    (await session.predict(new Blob())).items[0].label;
  return <pre id="out" title={first.name}>{text}</pre>;
}
"""
NEXT_LAYOUT = """import type {ReactNode} from 'react';
export default function Layout({children}: {children: ReactNode}) {
  return <html lang="en"><body>{children}</body></html>;
}
"""


class Bundler(NamedTuple):
    """A bundler's packages, the files of its project, its commands and the folder that it writes."""

    packages: tuple[str, ...]
    files: dict[str, str]
    build: tuple[str, ...]
    serve: tuple[str, ...]
    output: str


BUNDLERS = {
    "vite": Bundler(
        ("vite@8.4.0",),
        {"index.html": f"{HTML}<script type=module src=/src/main.js></script>"},
        ("vite", "build"),
        ("vite", "--host", "127.0.0.1", "--port", "0"),
        "dist",
    ),
    "webpack": Bundler(
        ("webpack@5.113.0", "webpack-cli@7.3.1", "webpack-dev-server@5.2.7", "html-webpack-plugin@5.6.8"),
        {"webpack.config.cjs": WEBPACK},
        ("webpack", "--config", "webpack.config.cjs"),
        ("webpack", "serve", "--config", "webpack.config.cjs", "--mode", "development", "--port", "auto"),
        "dist",
    ),
    "next": Bundler(
        (
            "next@16.4.6",
            "react@19.3.1",
            "react-dom@19.3.1",
            "typescript@7.0.2",
            "@types/react",
            "@types/node",
        ),
        {
            "next.config.mjs": "export default {output: 'export'};",
            "app/page.tsx": NEXT_PAGE,
            "app/layout.tsx": NEXT_LAYOUT,
        },
        ("next", "build"),
        ("next", "dev", "-H", "127.0.0.1", "-p", "0"),
        "out",
    ),
}


@pytest.fixture(scope="module")
def package(npm_package: Path, litert_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package file, with the bundle beside it."""
    folder = tmp_path_factory.mktemp("package")
    onnx.save(onnx.parser.parse_model(COLOURS), folder / "m.onnx")
    bundle = edgekit.build(folder / "m.onnx", targets=["ort", "tflite"], card=parse_card(COLOUR_CARD))
    write_web(bundle, folder / "site", [npm_package, litert_package])
    subprocess.run(["npm", "pack", "--silent", "./site"], cwd=folder, timeout=60, check=True)
    shutil.copy(folder / "site" / "model.edgekit", folder)
    (made,) = folder.glob("*.tgz")
    return made


@pytest.fixture(scope="module", params=BUNDLERS)
def project(
    request: pytest.FixtureRequest, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Bundler]:
    bundler, folder = BUNDLERS[request.param], tmp_path_factory.mktemp(request.param)
    files = {
        "package.json": '{"private": true, "type": "module"}',
        "src/answers.js": SCRIPT,
        "src/main.js": MAIN,
    }
    for name, text in (files | bundler.files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "public").mkdir()
    shutil.copy(package.with_name("model.edgekit"), folder / "public")
    install = ["npm", "install", "--no-audit", "--no-fund", str(package), *bundler.packages]
    if subprocess.run(install, cwd=folder, capture_output=True, timeout=600, check=False).returncode:
        pytest.skip(f"npm did not install {bundler.packages[0]}")
    return folder, bundler


def look(program: Any, url: str) -> tuple[str, int, list[str]]:
    """Return what the page writes, its number of workers, and its console."""
    page, said = program.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.goto(url, timeout=WAIT_MS)
    page.wait_for_function("document.getElementById('out').textContent !== ''", timeout=WAIT_MS)
    found = page.inner_text("#out"), len(page.workers), said
    page.close()
    return found


def test_a_build_runs_both_engines_in_workers(program: Any, project: tuple[Path, Bundler]) -> None:
    folder, bundler = project
    command = ["npx", *bundler.build]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(folder / "public" / "model.edgekit", folder / bundler.output)  # webpack copies no folder
    with hosted(folder / bundler.output) as host:
        assert look(program, host.url)[:2] == (EXPECTED, 2)


def test_the_development_server_does_too(program: Any, project: tuple[Path, Bundler]) -> None:
    folder, bundler = project
    command = [str(folder / "node_modules" / ".bin" / bundler.serve[0]), *bundler.serve[1:]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, text=True, **pipes) as server:  # type: ignore[call-overload]
        try:
            colours = re.compile("\x1b\\[[0-9;]*m")
            lines = (colours.sub("", line) for line in server.stdout)
            url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            text, workers, _ = look(program, url)
            assert text == EXPECTED
            assert workers >= 2  # React starts an effect twice
        finally:
            server.terminate()
