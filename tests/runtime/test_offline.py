"""What did not ask for a network has none: no socket, and not even the code for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REFUSE = """
import sys
def audit(event, details):
    if event.startswith('socket.') and event != 'socket.gethostname':
        raise AssertionError('a socket was opened')
sys.addaudithook(audit)
"""

OUTBOX = """
from pathlib import Path
from edgekit.runtime.delivery.outbox import Outbox
from edgekit.runtime.delivery.sinks import FolderSink
with Outbox(Path(sys.argv[1]) / 'box', FolderSink(Path(sys.argv[1]) / 'out'), commit_s=0.0) as outbox:
    assert outbox.put(b'row').wait(20)
print(*({'socket', 'http.client', 'ssl', 'paho'} & set(sys.modules)))
"""

LOCAL_ONLY = """
import edgekit.target
from tests.bundles import X, small_bundle, variant
from tests.fake_engines import Engines
edgekit.target.engine = Engines('ort')
from edgekit.runtime import Session
from edgekit.runtime.servers.remote import RemoteSession
with Session(small_bundle([variant('onnx', 'ort')])) as session:
    with RemoteSession(session, 'http://127.0.0.1:9', 'm', policy='local-only') as both:
        print(both.run({'x': X}).path)
"""


def run_script(script: str, *arguments: str) -> str:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", REFUSE + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout


def test_an_outbox_with_a_folder(tmp_path: Path) -> None:
    assert run_script(OUTBOX, str(tmp_path)).split() == []


def test_a_remote_session_that_is_local_only() -> None:
    assert run_script(LOCAL_ONLY).split() == ["local"]
