"""Forked processes, and variants that are loaded in a child process first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.errors import NoVariantError
from edgekit.generate import TextSession
from edgekit.runtime.loading import probe
from tests.fixtures.gguf_files import write_tiny

SCRIPT = """
import os, sys, threading
from edgekit.errors import UsageError
from edgekit.generate import TextParts, TextSession
from tests.fixtures.numpy_decoder import STOP_ID, NumpyDecoder, byte_tokenizer

session = TextSession.of_parts(NumpyDecoder(), TextParts(byte_tokenizer(), (STOP_ID,)))
session._threads = int(sys.argv[1])
expected = session.generate("once", max_tokens=9).text()
going = session.generate("once", max_tokens=9)
begun = next(going)
entered, freed = threading.Event(), threading.Event()
other = threading.Thread(target=session._scheduler.run, args=(lambda: entered.set() or freed.wait(),))
if sys.argv[2] == "mid":
    other.start()
    entered.wait()
pid = os.fork()
if pid:
    _, status = os.waitpid(pid, 0)
    freed.set()
    assert begun + "".join(going) == expected
    session.close()
    sys.exit(os.waitstatus_to_exitcode(status))
try:
    print(session.generate("once", max_tokens=9).text() == expected)
except UsageError as error:
    print(error)
session.close()
"""


@pytest.mark.needs_tokenizers
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(("threads", "when"), [("1", "between"), ("2", "between"), ("1", "mid")])
def test_a_forked_process(threads: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, threads, when],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if (threads, when) == ("1", "between"):
        assert done.stdout == "True\n"
    else:
        assert done.stdout.startswith("the text session was opened before os.fork(), and its threads stayed")


@pytest.mark.needs_ort
@pytest.mark.needs_tokenizers
def test_a_variant_is_loaded_in_a_child_process_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    edgekit.build(write_tiny(tmp_path / "tiny.gguf"), targets=["ort"]).save(tmp_path / "tiny.edgekit")
    bundle = Bundle.open(tmp_path / "tiny.edgekit")
    (variant,) = bundle.variants
    found = probe.probe(bundle, variant, 1)
    assert (found.reason, found.engine.split()[0]) == ("", "ONNX")
    with TextSession(bundle, probe=True, speculate="off", threads=1) as session:
        assert session.active.variant == variant.name
        session.generate("once", max_tokens=2).text()
    crash = probe.ProbeResult("it crashed the probe process (SIGSEGV)", found.engine)
    monkeypatch.setattr(probe, "probe_once", lambda *_: crash)
    with pytest.raises(NoVariantError, match=r"it crashed the probe process \(SIGSEGV\)"):
        TextSession(bundle, probe=True, speculate="off")
