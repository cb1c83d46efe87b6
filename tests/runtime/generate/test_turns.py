"""Turns are given in the order in which they were asked for, also after an interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from edgekit.runtime.generate.turns import Turns


def until(done: Callable[[], bool]) -> None:
    waited = threading.Event()
    while not done():
        waited.wait(0.001)


def test_each_has_its_turn_before_any_has_two() -> None:
    turns, order, going = Turns(), list[str](), threading.Event()

    def work(name: str) -> None:
        for _ in range(20):
            with turns:
                going.wait()
                order.append(name)

    threads = []
    with turns:
        for number, name in enumerate("abc"):
            threads.append(threading.Thread(target=work, args=(name,)))
            threads[-1].start()
            until(lambda expected=number + 1: turns.waiting == expected)  # type: ignore[misc]
        going.set()
    for thread in threads:
        thread.join()
    # A thread may miss a round: it asks again only once it runs again. The first round was asked for before.
    assert order[:3] == ["a", "b", "c"]
    assert sorted(order) == sorted("abc" * 20)


def test_a_turn_that_was_interrupted_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    entered, freed = threading.Event(), threading.Event()

    class Interrupted:
        """A lock whose waiting is interrupted."""

        def __init__(self) -> None:
            self.lock, self.asked = threading.Lock(), 0

        def acquire(self) -> None:
            self.asked += 1
            if self.asked == 2:
                raise KeyboardInterrupt
            self.lock.acquire()

    def hold() -> None:
        with turns:
            entered.set()
            freed.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    with monkeypatch.context() as patch:
        patch.setattr("edgekit.runtime.generate.turns.Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt), turns:
            pass
    assert turns.waiting == 0
    freed.set()
    thread.join()
    with turns:
        pass
