"""The WebAssembly beside Python: the cases of tests/native in a browser."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.web.folder import write_web
from tests.native.case_files import judge_answers, write_cases
from tests.native.cases import DECODERS, Case
from tests.native.equality import Totals, write_bundle
from tests.native.models import colours_bundle
from tests.report.browser import browser
from tests.web.host import hosted, opened

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
CASES = 200
ANSWER = Path(__file__).with_name("answer_cases.js")


def test_cards_pictures_and_outputs_of_both_are_equal(npm_package: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_web(colours_bundle(), site, [npm_package])
    (site / "cases").mkdir()
    write_cases(range(CASES), site / "cases")
    with hosted(site) as host, browser() as program, opened(program, host.url) as (page, _):
        answers = page.evaluate(ANSWER.read_text("utf-8"), CASES)
    for i, answer in enumerate(answers):
        (site / "cases" / f"{i}.answer").write_bytes(base64.b64decode(answer))
    totals = Totals()
    judge_answers(range(CASES), site / "cases", totals)
    assert len(totals.cases) == len(DECODERS)
    assert totals.predictions > 4000


HUGE: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "an input of 2^32 bytes": ({"shape": [1, 1, 16384, 32768], "dtype": "int64"}, (1, 1)),
    "all that 32 bits address": ({"shape": [1, 1, 65535, 65535], "dtype": "uint8"}, (1, 1)),
    "2^32 bytes between two resizes": (
        {"shape": [1, 1, 1, 32768], "dtype": "uint8", "interpolation": "cubic"},
        (1, 32768),
    ),
}
"""Sizes that 32 bits do not hold: change of the input, width and height of the picture."""
PREPARE = """async ([width, height]) => {
  const {Core, EdgeKitError} = await import('./core.js');
  const bytesOf = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  const module = await WebAssembly.compile(await bytesOf('edgekit.wasm'));
  const core = await Core.open(module, await bytesOf('huge'), 'huge');
  try {
    core.prepare({data: new Uint8ClampedArray(4 * width * height).fill(200), width, height});
  } catch (problem) {
    return [problem instanceof EdgeKitError, problem.message];
  }
}"""


def test_sizes_beyond_32_bits_are_refused(npm_package: Path, tmp_path: Path) -> None:
    image = {"kind": "image", "layout": "NCHW", "colour": "GREY", "resize": "stretch"}
    task = {"kind": "classify", "decode": "probabilities", "outputs": {"scores": "y"}}
    site = tmp_path / "site"
    write_web(colours_bundle(), site, [npm_package])
    with hosted(site) as host, browser() as program, opened(program, host.url) as (page, _):
        for change, size in HUGE.values():
            card = copy.deepcopy({"title": "huge", "inputs": {"x": image | change}, "task": task})
            case = Case(card, np.zeros((1, 1, 3), np.uint8), "rgb", np.ones((1, 3), np.float32))
            write_bundle(case, site / "huge")
            is_ours, message = page.evaluate(PREPARE, size)
            assert is_ours
            assert message.startswith("out of memory")
