"""Figures of docs/measured/browser.md: weight of the folder, and times of YOLOX-nano in Chromium.

python -m tests.web.measure SHARED onnxruntime-web-1.30.0.tgz
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import time
from pathlib import Path

from edgekit.web.folder import write_web
from tests.native.models import yolox_bundle
from tests.report.browser import browser
from tests.web.host import OFFLINE, WAIT_MS, hosted, opened

RUNS = 30
TIMES = """async (runs) => {
  const {Session} = await import('./edgekit.js');
  const session = await Session.open('model.edgekit');
  const picture = new ImageData(1280, 720), least = {};
  for (let i = 0; i < picture.data.length; i++) picture.data[i] = (i * 2654435761) >>> 24;
  for (let i = 0; i < runs; i++) {
    for (const [stage, ms] of Object.entries((await session.predict(picture)).times_ms)) {
      least[stage] = Math.min(least[stage] ?? Infinity, ms);
    }
  }
  return {least, db: session.golden[0].snr_db};
}"""
RESPONSE = """async (runs) => {
  const {Session} = await import('./edgekit.js');
  const session = await Session.open('model.edgekit'), picture = new ImageData(1280, 720);
  await session.predict(picture);
  const gaps = [], run_ms = [], pause = () => new Promise((done) => setTimeout(done, 0));
  let last = performance.now(), running = true, gap = 0;
  const pulse = () => {  // one short task of the page's thread after the other
    const now = performance.now();
    gap = Math.max(gap, now - last);
    last = now;
    if (running) setTimeout(pulse, 0);
  };
  pulse();
  for (let i = 0; i < runs; i++) {
    await pause();
    gap = 0;
    run_ms.push((await session.predict(picture)).times_ms.run);
    await pause();
    gaps.push(gap);
  }
  running = false;
  await session.close();
  const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
  return {median_gap_ms: median(gaps), longest_gap_ms: Math.max(...gaps), run_ms: median(run_ms)};
}"""
"""Longest time in which the page's thread did nothing else, for each prediction; and the median of a run."""


def main(shared: Path, package: Path) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        site = Path(name) / "site"
        for path in write_web(yolox_bundle(shared), site, [package]).files:
            content = path.read_bytes()
            compressed = len(gzip.compress(content))
            print(f"{path.relative_to(site)!s:48} {len(content):>10} bytes {compressed:>10} compressed")
        with hosted(site) as host, browser() as program:
            context = program.new_context()
            for load in ("first", "second"):
                began = time.perf_counter()
                with opened(context, host.url) as (page, _):
                    print(f"{load} load: {time.perf_counter() - began:.2f} s until the bundle is checked")
                    page.wait_for_selector(OFFLINE, timeout=WAIT_MS)
                    if load == "second":
                        print(page.evaluate(TIMES, RUNS), "least of", RUNS, "in ms")
                        print(
                            page.evaluate(RESPONSE, RUNS), "page does not respond, in ms", RUNS, "predictions"
                        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
