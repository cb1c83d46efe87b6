"""The page at / of a server: what it may load, what it says of models, and a photo tried in a browser."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from edgekit.serve.service import Access
from tests.fixtures.servers import running
from tests.report.browser import DESK, PHONE, browser

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
pytestmark = pytest.mark.needs_ort


def test_the_page_is_open_runs_its_own_script_alone_and_names_no_model(bundle: Path) -> None:
    with running({("secret-net", "1"): bundle}, access=Access(token="0123456789abcdef")) as server:
        status, headers, body = server.ask("GET", "/")
        assert status == 200
        assert headers["content-type"].startswith("text/html")
        assert b"secret-net" not in body
        (script,) = re.findall(b"<script>(.*?)</script>", body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
        policy = headers["content-security-policy"]
        assert f"script-src 'sha256-{digest}';" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert re.findall(rb"(?:src|href)=[\"'](?!data:)|https?://|@import|url\(", body) == []
        assert server.ask("POST", "/v2/repository/index", "{}")[0] == 401
        authorized = {"Authorization": "Bearer 0123456789abcdef"}
        about = json.loads(server.ask("GET", "/v2/models/secret-net", None, authorized)[2])
        assert about["parameters"]["accepts"] == "image"


@pytest.mark.needs_browser
def test_a_photograph_is_tried_and_axe_has_no_objection(bundle: Path, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    photo, file = tmp_path / "photo.png", io.BytesIO()
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(file, "PNG")
    photo.write_bytes(file.getvalue())
    served = running({("net", "1"): bundle}, access=Access("0123456789abcdef"), deadline_ms=30_000)
    with served as server, browser() as chromium:
        for size in (DESK, PHONE):
            page = chromium.new_page(viewport={"width": size[0], "height": size[1]})
            elsewhere: list[str] = []
            page.on("request", lambda request, urls=elsewhere: urls.append(request.url))
            page.goto(f"http://127.0.0.1:{server.port}/")
            page.fill("#token", "0123456789abcdef")
            page.press("#token", "Tab")
            page.wait_for_selector("#model option", state="attached")
            page.set_input_files("#file", photo)
            page.wait_for_selector("#result:not([hidden]) table, #result:not([hidden]) details")
            assert "ms with the transfer" in page.inner_text("#status")
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
            assert [each["id"] for each in axe.Axe().run(page).response["violations"]] == []
            own = (f"http://127.0.0.1:{server.port}/", "blob:", "data:")
            assert [url for url in elsewhere if not url.startswith(own)] == []
            page.set_input_files("#file", __file__)
            page.wait_for_selector("#result[hidden]", state="attached")
            page.close()
