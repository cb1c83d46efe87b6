"""The WebAssembly beside Python: the cases of tests/native in a browser."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from edgekit.web.folder import write_web
from tests.native.case_files import judge_answers, write_cases
from tests.native.cases import DECODERS
from tests.native.equality import Totals
from tests.native.models import colours_bundle
from tests.report.browser import browser
from tests.web.host import hosted, opened

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
CASES = 200
ANSWER = Path(__file__).with_name("answer_cases.js")


def test_cards_pictures_and_outputs_of_both_are_equal(npm_package: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_web(colours_bundle(), site, npm_package)
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
