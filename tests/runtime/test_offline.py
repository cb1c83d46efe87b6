"""What did not ask for a network has none: no socket, and not even the code for one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REFUSE = """
import sys
def audit(event, details):
    if event.startswith('socket.') and event != 'socket.gethostname':
        raise AssertionError('a socket was opened')
sys.addaudithook(audit)
"""

OUTBOX = """
from pathlib import Path
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.sinks import FolderSink
with Outbox(Path(sys.argv[1]) / 'box', FolderSink(Path(sys.argv[1]) / 'out'), commit_s=0.0) as outbox:
    assert outbox.put(b'row').wait(20)
print(*({'socket', 'http.client', 'ssl', 'paho'} & set(sys.modules)))
"""

LOCAL_ONLY = """
import edgekit.target.contract
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines
edgekit.target.registry.engine = Engines('ort')
from edgekit.runtime import Session
from edgekit.runtime.remote.remote_session import RemoteSession
with Session(small_bundle([variant('onnx', 'ort')])) as session:
    with RemoteSession(session, 'http://127.0.0.1:9', 'm', policy='local-only') as both:
        print(both.run({'x': X}).path)
"""


ROOT = Path(__file__).resolve().parents[2]


def run_script(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", REFUSE + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_an_outbox_with_a_folder(tmp_path: Path) -> None:
    assert run_script(OUTBOX, str(tmp_path)).split() == []


def test_a_remote_session_that_is_local_only() -> None:
    assert run_script(LOCAL_ONLY).split() == ["local"]


REFUSE_ALL = """
import socket
def refused(*given, **named):
    raise OSError('no network here')
for name in ('socket', 'create_connection', 'create_server', 'getaddrinfo', 'gethostbyname'):
    setattr(socket, name, refused)
"""

EVERYTHING = """
import sys
import time
from pathlib import Path
import numpy as np
import edgekit
from edgekit.runtime import Session
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.sinks import FolderSink
from edgekit.runtime.metrics.metrics import Metrics, append
from tests.fixtures.models import SMALL_CNN, write

folder = Path(sys.argv[1])
bundle = edgekit.build(write(folder, SMALL_CNN), targets=['ort', 'openvino', 'tflite'])
path = bundle.save(folder / 'b.edgekit')
opened = edgekit.Bundle.open(path)
feeds, expected = opened.golden[0]
with Outbox(folder / 'box', FolderSink(folder / 'out'), commit_s=0.0) as outbox:
    for engine in ('ort', 'openvino', 'tflite'):
        with Session(path, engine=engine, strict=True, probe=True, warm=True) as session:
            assert np.allclose(session.run(feeds)['scores'], expected['scores'], atol=1e-5)
            metrics = Metrics(session)
            assert np.allclose(metrics.run(feeds)['scores'], expected['scores'], atol=1e-5)
            for result in session.stream([feeds] * 5):
                assert np.allclose(result.answer['scores'], expected['scores'], atol=1e-5)
            append(folder / 'metrics.jsonl', metrics.snapshot())
            assert outbox.put(engine.encode()).wait(20)
    limit = time.monotonic() + 20
    while outbox.counts()['delivered'] < 3 and time.monotonic() < limit:
        time.sleep(0.01)
print(*sorted(p.read_text() for p in (folder / 'out').rglob('*') if p.is_file()))
"""


@pytest.mark.needs_ort
@pytest.mark.needs_openvino
@pytest.mark.needs_tflite
def test_all_but_the_remote_variant_works_where_sockets_are_refused(tmp_path: Path) -> None:
    """Build, open, probe, run, stream, metrics, outbox; in the children that they start too."""
    (tmp_path / "sitecustomize.py").write_text(REFUSE + REFUSE_ALL)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for refused in ("import socket; socket.socket()", "import _socket; _socket.socket()"):
        command = [sys.executable, "-c", refused]
        assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 1
    command = [sys.executable, "-c", EVERYTHING, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["openvino", "ort", "tflite"]), done.stderr
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
