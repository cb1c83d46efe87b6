"""The worker of ``edgekit.js``: the page responds, its policy holds, and the worker's end is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.web.folder import write_web
from tests.native.models import colours_bundle
from tests.web.host import Host, hosted, opened

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]


def test_the_engine_is_loaded_in_the_worker_alone(program: Any, site: Host) -> None:
    """So the page responds during a run; tests/web/measure.py has the times."""
    loaded = "performance.getEntriesByType('resource').map(({name}) => name.split('/').pop())"
    with opened(program, site.url) as (page, _):
        (worker,) = page.workers
        assert {"edgekit.wasm", "ort-wasm-simd-threaded.wasm"} <= set(worker.evaluate(loaded))
        assert not [name for name in page.evaluate(loaded) if name.endswith(".wasm")]


def test_the_worker_has_the_page_s_policy(program: Any, site: Host) -> None:
    violated = """async () => {
      const seen = [];
      self.addEventListener('securitypolicyviolation', (event) => seen.push(event.effectiveDirective));
      await fetch('http://127.0.0.1:9/').catch(() => {});
      await new Promise((done) => setTimeout(done, 300));
      return seen;
    }"""
    with opened(program, site.url) as (page, said):
        (worker,) = page.workers
        assert worker.evaluate(violated) == ["connect-src"]
        said.clear()


ENDS = """async (broken) => {
  const {Session, EdgeKitError} = await import('./edgekit.js');
  const said = [], told = async (promise) => {
    try {
      await promise;
      said.push('done');
    } catch (problem) {
      said.push(`${problem instanceof EdgeKitError}: ${problem.message}`);
    }
  };
  const session = await Session.open('model.edgekit'), picture = new ImageData(8, 8);
  const first = session.predict(picture);
  const closing = session.close();
  await told(first);
  await told(closing);
  await told(session.close());
  await told(session.predict(picture));
  await told(session.run([{name: () => {}}]));
  const other = await Session.open('model.edgekit');
  await told(other.run([{name: () => {}}]));
  await told(other.predict(picture));
  await told(Session.open('nothing.edgekit'));
  return said;
}"""


def test_a_session_that_is_closed_refuses_calls(program: Any, site: Host) -> None:
    with opened(program, site.url) as (page, console):
        said = page.evaluate(ENDS)
        console.clear()  # the browser's line of a file that is missing
    assert said[:3] == ["done"] * 3
    assert said[3:5] == ["true: the session is closed"] * 2
    assert said[5].startswith("true: an argument cannot be sent to the worker: ")
    assert said[6] == "done"
    assert said[7] == f"true: {site.url}nothing.edgekit: the server answered 404"


def test_a_page_that_may_start_no_worker_computes_itself(
    program: Any, npm_package: Path, tmp_path: Path
) -> None:
    write_web(colours_bundle(), tmp_path / "site", [npm_package])
    html = tmp_path / "site" / "index.html"
    html.write_text(html.read_text().replace("worker-src 'self' blob:", "worker-src 'self'"))
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, console):
        assert page.get_attribute("body", "data-state") == "ready"
        assert page.workers == []
        assert page.evaluate(ENDS)[:3] == ["done"] * 3
        console.clear()  # the browser's lines of the worker, and of a file that is missing


def test_a_session_that_cannot_be_loaded_is_an_error(program: Any, npm_package: Path, tmp_path: Path) -> None:
    write_web(colours_bundle(), tmp_path / "site", [npm_package])
    (tmp_path / "site" / "session.js").unlink()
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, console):
        assert page.get_attribute("body", "data-state") == "refused"
        assert page.inner_text("#problem").startswith("session.js was not loaded: ")
        console.clear()


def test_a_measurement_of_the_variant_that_runs(program: Any, site: Host) -> None:
    script = """async () => {
      const {Session} = await import('./edgekit.js');
      const session = await Session.open('model.edgekit'), seen = [];
      const found = await session.bench({seconds: 0.5, onprogress: ({seconds}) => seen.push(seconds)});
      await session.close();
      return {...found, seen};
    }"""
    with opened(program, site.url) as (page, _):
        found = page.evaluate(script)
    assert len(found["slices_ms"]) == len(found["seen"]) == 10
    assert 0.5 <= found["seconds"] == found["seen"][-1] < 5
    assert 0 <= found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert found["runs"] >= 10
    assert found["p50_ms"] * found["runs"] / 2 <= found["seconds"] * 1000
