"""File descriptors that point elsewhere for a while."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from edgekit.system.redirection import redirected


def test_what_is_written_within_the_block_goes_elsewhere(tmp_path: Path) -> None:
    with (tmp_path / "shown").open("wb") as shown, (tmp_path / "aside").open("wb") as aside:
        with suppress(ValueError), redirected(shown.fileno(), aside.fileno()):
            os.write(shown.fileno(), b"within")
            raise ValueError("a fault")
        os.write(shown.fileno(), b"after")
    assert [(tmp_path / name).read_bytes() for name in ("shown", "aside")] == [b"after", b"within"]


def test_threads_leave_the_descriptor_as_it_was(tmp_path: Path) -> None:
    begun, overlaps, go = threading.Event(), threading.Event(), threading.Event()
    with (tmp_path / "shown").open("wb") as shown, (tmp_path / "aside").open("wb") as aside:

        def first() -> None:
            with redirected(shown.fileno(), aside.fileno()):
                begun.set()
                assert go.wait(30)

        def second() -> None:
            with redirected(shown.fileno(), aside.fileno()):
                overlaps.set()
                one.join()

        one, other = threading.Thread(target=first), threading.Thread(target=second)
        one.start()
        assert begun.wait(30)
        other.start()
        overlaps.wait(0.2)  # never, as long as the first one is within
        go.set()
        other.join()
        os.write(shown.fileno(), b"after")
    assert (tmp_path / "shown").read_bytes() == b"after"


def test_a_process_without_the_descriptor_goes_on(tmp_path: Path) -> None:
    with (tmp_path / "aside").open("wb") as aside, redirected(1 << 20, aside.fileno()):
        pass
