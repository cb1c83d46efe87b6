"""What tests of text sessions share: a tokenizer of bytes, and sessions on the small numpy decoder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.scheduler import Scheduler
from tests.fixtures.fake_engines import Engines
from tests.fixtures.language_bundles import Loader
from tests.fixtures.numpy_decoder import STOP_ID, NumpyDecoder, byte_tokenizer


@pytest.fixture(scope="session")
def parts() -> TextParts:
    return TextParts(byte_tokenizer(), (STOP_ID,))


Open = Callable[..., TextSession]


@contextmanager
def held(scheduler: Scheduler) -> Iterator[None]:
    """The scheduler's thread serves nobody before the block's end."""
    entered, freed = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        freed.wait()

    thread = threading.Thread(target=scheduler.run, args=(hold,))
    thread.start()
    entered.wait()
    try:
        yield
    finally:
        freed.set()
        thread.join()


def queued(scheduler: Scheduler) -> int:
    """Number of requests that are not served yet, the one that is being served among them."""
    return len(scheduler._requests) + scheduler._inbox.qsize()


@pytest.fixture
def opened(parts: TextParts) -> Iterator[Open]:
    """Opens sessions, which are closed at the end."""
    sessions: list[TextSession] = []

    def open_session(runner: NumpyDecoder | None = None, **options: Any) -> TextSession:
        session = TextSession.of_parts(runner or NumpyDecoder(), parts, **options)
        sessions.append(session)
        return session

    yield open_session
    for session in sessions:
        session.close()


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loader:
    """Small decoders instead of what ort and tflite load."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort", "tflite"))
    loader = Loader()
    monkeypatch.setattr("edgekit.generate.device.decoder_registry.open_decoder", loader)
    return loader
