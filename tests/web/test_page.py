"""The page of ``edgekit export --web`` in Chromium: what it checks, refuses, predicts and keeps."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.runtime import Session
from edgekit.signing.signature_file import PREDICATE, STATEMENT
from edgekit.web.folder import write_web
from tests.fixtures.bundles import pack, packed_parts
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.models import COLOUR_CARD, COLOURS, SWAPPED, colours_bundle, model_bundle, yolox_bundle
from tests.report.browser import DESK, PHONE
from tests.web.host import (
    FRAME,
    OFFLINE,
    PREDICT,
    WAIT_MS,
    Host,
    assert_same_boxes,
    checks,
    choose_bundle,
    choose_photograph,
    first_photograph,
    hosted,
    opened,
    save_photograph,
    violations,
)

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
HOSTILE = "<img src=x onerror=alert(1)>\u202e<script>alert(2)</script>"


@pytest.fixture(scope="module")
def site(npm_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The page with the bundle of colours, and a photograph beside it."""
    folder = tmp_path_factory.mktemp("host") / "site"
    made = write_web(colours_bundle(), folder, [npm_package])
    assert made.variants == ["colours"]
    assert made.notes == []
    Image.fromarray(FRAME).save(folder / "photo.png")
    with hosted(folder) as host:
        yield host


def test_a_classifier_is_checked_and_predicts_as_python(program: Any, site: Host, tmp_path: Path) -> None:
    with Session(colours_bundle().save(tmp_path / "c.edgekit"), threads=1) as session:
        expected = session.predict(FRAME)
    with opened(program, site.url) as (page, _):
        assert page.title() == "Colours"
        assert "colours on onnxruntime-web 1.30.0" in page.inner_text("#summary")
        first, second = checks(page)
        assert first == "passed format, limits and the sha256 of 3 entries"
        assert re.fullmatch(
            r"passed colours, golden vector 1, scores: ([\d.]+ dB|equal) \(limit 40.0 dB\)", second
        )
        found = page.evaluate(PREDICT, "photo.png")
        choose_photograph(page, save_photograph(tmp_path / "photo.png", FRAME))
        rows = page.locator("#items tr").all_inner_texts()
    assert [item["label"] for item in found["items"]] == [one.label for one in expected]
    assert [item["score"] for item in found["items"]] == pytest.approx(expected.scores.tolist(), abs=1e-6)
    assert (found["kind"], found["width"], found["height"]) == ("classify", 64, 48)
    assert [row.split() for row in rows] == [[one.label, f"{one.score:.3f}"] for one in expected]


@pytest.mark.needs_shared
def test_a_detector_finds_what_python_finds(
    program: Any, npm_package: Path, shared: Path, tmp_path: Path
) -> None:
    """EDGEKIT_SCREENSHOTS: the folder that screenshots stay in."""
    pictures = Path(os.environ.get("EDGEKIT_SCREENSHOTS") or tmp_path)
    bundle = yolox_bundle(shared)
    write_web(bundle, tmp_path / "site", [npm_package])
    frame = first_photograph(shared)
    save_photograph(tmp_path / "site" / "photo.png", frame)
    with Session(bundle.save(tmp_path / "y.edgekit"), threads=1) as session:
        expected = session.predict(frame)
    with hosted(tmp_path / "site") as host:
        with opened(program, host.url) as (page, _):
            found = page.evaluate(PREDICT, "photo.png")
            ((golden),) = found["golden"]
            assert golden["snr_db"] > 90
            assert golden["limit_db"] == 40
            assert_same_boxes(found["items"], expected)
        for size, scheme in ((DESK, "light"), (PHONE, "dark")):
            context = program.new_context(color_scheme=scheme)
            with opened(context, host.url, size) as (page, _):
                choose_photograph(page, tmp_path / "site" / "photo.png")
                assert page.locator("#items tr").count() == len(expected)
                assert all(page.inner_text(f"#time-{stage}") for stage in ("prepare", "run", "decode"))
                assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
                assert violations(page) == []
                page.screenshot(path=pictures / f"web-{size[0]}.png", full_page=True)
            context.close()


def test_the_second_load_needs_no_network(program: Any, npm_package: Path, tmp_path: Path) -> None:
    write_web(colours_bundle(), tmp_path / "site", [npm_package])
    context = program.new_context()
    with hosted(tmp_path / "site") as host, opened(context, host.url) as (page, _):
        page.wait_for_selector(OFFLINE, timeout=WAIT_MS)
        assert "works without a network" in page.inner_text("#offline")
    with opened(context, host.url) as (page, _):  # nothing listens there
        choose_photograph(page, save_photograph(tmp_path / "photo.png", FRAME))
        assert page.locator("#items tr").count() == 3
    context.close()


def test_a_file_that_was_changed_on_the_host_is_not_kept(
    program: Any, npm_package: Path, tmp_path: Path
) -> None:
    write_web(colours_bundle(), tmp_path / "site", [npm_package])
    with (tmp_path / "site" / "page.css").open("a") as file:
        file.write("body { color: red }")
    with hosted(tmp_path / "site") as host, opened(program.new_context(), host.url) as (page, _):
        page.locator("#offline", has_text="needs the network").wait_for(timeout=WAIT_MS)
        assert page.evaluate("caches.keys().then((names) => names.length)") == 0


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "an entry": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    "the manifest": lambda whole: whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
    "its end": lambda whole: whole[:-1],
    "its version": lambda whole: whole[:8] + b"\x02" + whole[9:],
    "nothing of a bundle": lambda _: b"PK\x03\x04",
    "an empty file": lambda _: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_bundle_is_refused_with_python_s_text(
    program: Any, site: Host, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "bad.edgekit"
    path.write_bytes(DAMAGE[damage](colours_bundle().save(path).read_bytes()))
    with pytest.raises(BundleError) as expected, Bundle.open(path) as python:
        python.verify_entries()
    with opened(program, site.url) as (page, _):
        choose_bundle(page, path)
        assert page.text_content("#problem") == str(expected.value).replace(str(path), path.name)
        assert page.get_attribute("body", "data-state") == "refused"
        assert page.is_disabled("#photo")
        assert not any(row.startswith("passed") for row in checks(page))


def test_an_engine_whose_outputs_are_wrong_is_left(program: Any, site: Host, tmp_path: Path) -> None:
    right = onnx_bytes(COLOURS)
    models = {"elsewhere": b"x", "damaged": b"no model", "wrong": onnx_bytes(SWAPPED), "right": right}
    several = model_bundle(models, right, COLOUR_CARD, {"elsewhere": "tflite"})
    alone = model_bundle({"wrong": onnx_bytes(SWAPPED)}, right, COLOUR_CARD)
    with opened(program, site.url) as (page, _):
        choose_bundle(page, several.save(tmp_path / "several.edgekit"))
        rows = checks(page)
        assert rows[1].startswith("not used elsewhere: LiteRT.js was not loaded: ")  # the site lacks it
        assert rows[2].startswith("not used damaged: onnxruntime-web did not load model.onnx: ")
        wrong = "wrong: output scores of a golden vector: SNR -6.0 dB; the limit is 40.0 dB"
        assert rows[3:5] == [
            "failed wrong, golden vector 1, scores: -6.0 dB (limit 40.0 dB)",
            f"not used {wrong}",
        ]
        assert rows[5].startswith("passed right, golden vector 1")
        assert page.is_enabled("#photo")
        choose_bundle(page, alone.save(tmp_path / "alone.edgekit"))
        assert page.inner_text("#problem").splitlines()[1].split() == wrong.replace("wrong:", "wrong").split()
        assert page.is_disabled("#photo")


def test_an_output_without_a_limit_is_not_trusted(program: Any, site: Host, tmp_path: Path) -> None:
    manifest, data = packed_parts(colours_bundle())
    manifest["variants"][0]["evidence"] = {}
    (tmp_path / "bare.edgekit").write_bytes(pack(json.dumps(manifest).encode(), data))
    with opened(program, site.url) as (page, _):
        choose_bundle(page, tmp_path / "bare.edgekit")
        assert "the bundle has no SNR limit that output scores could be held to" in page.inner_text(
            "#problem"
        )


def test_a_stranger_s_texts_are_text(program: Any, site: Host, tmp_path: Path) -> None:
    card: dict[str, Any] = json.loads(json.dumps(COLOUR_CARD))
    card["title"] = HOSTILE
    card["task"]["labels"] = [HOSTILE, "x" * 5000, "<b>blue</b>"]
    right = onnx_bytes(COLOURS)
    bundle = model_bundle({"v": right}, right, card)
    with opened(program, site.url) as (page, _):
        choose_bundle(page, bundle.save(tmp_path / "hostile.edgekit"))
        choose_photograph(page, save_photograph(tmp_path / "photo.png", FRAME))
        assert page.locator("main img, main script, main b, main i").count() == 0
        assert page.inner_text("h1").startswith("<img src=x")
        assert page.locator("#items bdi").count() == 3
        assert "<b>blue</b>" in page.inner_text("#items")
        assert page.evaluate("document.documentElement.scrollWidth") <= DESK[0]


def test_a_picture_that_is_none_is_an_error_and_the_page_goes_on(
    program: Any, site: Host, tmp_path: Path
) -> None:
    (tmp_path / "photo.png").write_bytes(b"no picture")
    with opened(program, site.url) as (page, _):
        choose_photograph(page, tmp_path / "photo.png")
        assert page.inner_text("#problem").startswith("the browser cannot read this picture: ")
        choose_photograph(page, save_photograph(tmp_path / "other.png", FRAME))
        assert page.is_hidden("#problem")
        assert page.locator("#items tr").count() == 3


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(site: Host, program: Any) -> None:
    folder = Path(write_web.__code__.co_filename).parent
    html = (folder / "index.html").read_text("utf-8")
    assert not re.search(r"<style| style=| on\w+=|<script(?![^>]* src=)", html)
    sources = "".join(path.read_text("utf-8") for path in folder.iterdir() if path.suffix in (".js", ".html"))
    assert "innerHTML" not in sources
    for identifier in (STATEMENT, PREDICATE):  # names in a signed statement, which nobody fetches
        assert identifier in sources
        sources = sources.replace(identifier, "")
    assert not re.search(r"https?://", sources)
    asked: list[str] = []
    with opened(program, site.url) as (page, _):
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        page.wait_for_selector(OFFLINE, timeout=WAIT_MS)
    assert len(asked) > 5
    own = (site.url, f"blob:{site.url}", "data:")
    assert {url for url in asked if not url.startswith(own)} == set()


def test_a_folder_on_the_host_below_its_root(program: Any, npm_package: Path, tmp_path: Path) -> None:
    write_web(colours_bundle(), tmp_path / "root" / "models" / "colours", [npm_package])
    shutil.copyfile(tmp_path / "root/models/colours/page.css", tmp_path / "root" / "other.css")
    with hosted(tmp_path / "root") as host, opened(program, f"{host.url}models/colours/") as (page, _):
        assert page.get_attribute("body", "data-state") == "ready"


def test_the_policy_stops_inline_scripts_and_other_hosts(program: Any, site: Host) -> None:
    violated = """async () => {
      const seen = [];
      document.addEventListener('securitypolicyviolation', (event) => seen.push(event.effectiveDirective));
      const script = document.createElement('script');
      script.textContent = 'window.ran = true';
      document.body.append(script);
      await fetch('http://127.0.0.1:9/').catch(() => {});
      await new Promise((done) => setTimeout(done, 300));
      return [window.ran ?? null, ...seen.sort()];
    }"""
    with opened(program, site.url) as (page, said):
        assert page.evaluate(violated) == [None, "connect-src", "script-src-elem"]
        said.clear()


def test_without_a_gpu_the_next_provider_runs(program: Any, npm_package: Path, tmp_path: Path) -> None:
    write_web(colours_bundle(), tmp_path / "site", [npm_package], webgpu=True)
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, said):
        if page.evaluate("navigator.gpu?.requestAdapter().then((adapter) => adapter !== null)"):
            pytest.skip("this Chromium has a WebGPU adapter without flags")
        assert checks(page)[1] == "not used colours on webgpu: this browser has no WebGPU for this page"
        assert "WebAssembly" in page.inner_text("#summary")
        said[:] = [line for line in said if "No available adapters" not in line]  # Chromium's own


def test_the_module_leaves_a_variant_that_fails_at_a_run(program: Any, site: Host, tmp_path: Path) -> None:
    right = onnx_bytes(COLOURS)
    bundle = model_bundle({"first": right, "second": right}, right, COLOUR_CARD)
    bundle.save(tmp_path / "two.edgekit")
    script = """async (bytes) => {
      const {Session, EdgeKitError} = await import('./edgekit.js');
      const session = await Session.open(Uint8Array.from(bytes).buffer), told = [];
      const run = async (value) => {
        const data = new Float32Array(3 * 16 * 16).fill(value);
        try {
          const image = {name: 'image', dtype: 'float32', shape: [1, 3, 16, 16], data};
          const [scores] = await session.run([image]);
          told.push(Array.from(scores.data));
        } catch (problem) {
          told.push([problem instanceof EdgeKitError, problem.message]);
        }
      };
      await run(2);
      await Promise.all([run(3), run(Infinity), run(4)]);
      return [told, session.variant];
    }"""
    with opened(program, site.url) as (page, _):
        told, active = page.evaluate(script, list((tmp_path / "two.edgekit").read_bytes()))
    assert told[0] == pytest.approx([2, 2, 2])
    assert told[1] == pytest.approx([3, 3, 3])
    why = "values of output scores are NaN or infinite, and those of its golden vectors are not"
    for is_ours, message in told[2:]:
        assert is_ours
        assert [line.split(maxsplit=1) for line in message.splitlines()[1:3]] == [
            ["first", why],
            ["second", why],
        ]
    assert active == "second"


def test_a_picture_of_another_page_s_element(program: Any, site: Host) -> None:
    script = """async () => {
      const {Session} = await import('./edgekit.js');
      const session = await Session.open('model.edgekit');
      const image = document.createElement('img'), canvas = document.createElement('canvas');
      image.src = 'photo.png';
      await image.decode();
      [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
      canvas.getContext('2d').drawImage(image, 0, 0);
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const blob = await (await fetch('photo.png')).blob(), found = [];
      for (const picture of [blob, image, canvas, pixels]) {
        found.push(JSON.stringify((await session.predict(picture)).items));
      }
      return found;
    }"""
    with opened(program, site.url) as (page, _):
        found = page.evaluate(script)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(json.loads(found[0])) == 3


@pytest.mark.parametrize("target", ["constructor", "toString"])
def test_a_target_that_is_a_property_of_every_object_has_no_engine(
    program: Any, site: Host, tmp_path: Path, target: str
) -> None:
    right = onnx_bytes(COLOURS)
    made = model_bundle({"first": right, "second": right}, right, COLOUR_CARD, {"first": target})
    with opened(program, site.url) as (page, _):
        choose_bundle(page, made.save(tmp_path / "t.edgekit"))
        rows = checks(page)
        assert rows[1] == f"not used first: no engine for target {target} in a page"
        assert rows[2].startswith("passed second, golden vector 1")
