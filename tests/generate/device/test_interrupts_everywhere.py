"""A signal handler that raises wherever one may be called in a text: the next text is right."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.generate import TextSession, device
from tests.fixtures.threads import until
from tests.generate.device.conftest import Open, queued
from tests.runtime.interrupted_everywhere import interrupted_at

pytestmark = pytest.mark.needs_tokenizers
PLACE = Path(device.__file__).parent
FILES = (PLACE / "scheduler.py",)


def everywhere(
    session: TextSession, texts: list[Callable[[], str]], files: tuple[Path, ...], step: int = 1
) -> int:
    """Interrupt the texts in turn at one instruction after the other, and check each one's next text.

    Returns:
        How many interrupts there were.
    """
    expected = [text() for text in texts]
    number, turn, uninterrupted = 1, 0, 0
    while uninterrupted < len(texts):
        place = interrupted_at(texts[turn], number, files, as_signals=True)
        uninterrupted = 0 if place else uninterrupted + 1
        turn = (turn + 1) % len(texts)
        assert texts[turn]() == expected[turn], f"a wrong text after an interrupt at {place}"
        assert session.history == ()
        number += 1
    return number


def once(session: TextSession, prompt: str, count: int = 3) -> Callable[[], str]:
    return lambda: session.generate(prompt, max_tokens=count).text()


def test_one_conversation(opened: Open) -> None:
    session = opened()
    assert everywhere(session, [once(session, "once")], FILES) > 20


def test_another_thread_is_not_disturbed(opened: Open) -> None:
    """Whichever instruction of the scheduler is interrupted: the other conversation goes on, and is right."""
    session, ended, texts = opened(conversations=2), threading.Event(), list[str]()
    expected = session.generate("other", max_tokens=5).text()

    def generate() -> None:
        while not ended.is_set():
            texts.append(session.generate("other", max_tokens=5).text())

    thread = threading.Thread(target=generate)
    thread.start()
    try:
        interrupts = everywhere(session, [once(session, "once")], FILES)
    finally:
        ended.set()
        thread.join(60)
    assert not thread.is_alive()
    assert interrupts > 20
    assert set(texts) == {expected}
    until(lambda: not queued(session._scheduler))
