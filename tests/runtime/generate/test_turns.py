"""Turns are given in the order in which they were asked for, also after an interrupt."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edgekit.runtime.generate.turns import Turns
from tests.fixtures.threads import until
from tests.runtime.interrupted_everywhere import interrupted_at


def test_each_has_its_turn_before_any_has_two() -> None:
    turns, order, going = Turns[str](), list[str](), threading.Event()

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
    turns = Turns[str]()
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


def test_the_holder_fulfils_a_wish_and_then_it_is_nobody_s_turn() -> None:
    turns, answers = Turns[list[str]](), list[bool]()
    first, second = ["first"], ["second"]
    with turns:
        threads = []
        for number, wish in enumerate((first, second)):
            threads.append(threading.Thread(target=lambda wish=wish: answers.append(turns.ask(wish))))
            threads[-1].start()
            until(lambda expected=number + 1: turns.waiting == expected)  # type: ignore[misc]
        assert turns.wishes() == [first, second]
        assert turns.wishes(lambda wishes: second in wishes, wait_s=60) == [first, second]
        turns.fulfilled(first)
        turns.fulfilled(["one who waits no longer"])
        threads[0].join()
        assert answers == [False]
        assert turns.wishes() == [second]
    threads[1].join()
    assert answers == [False, True]


def test_who_does_not_come_is_waited_for_only_so_long() -> None:
    turns = Turns[str]()
    with turns:
        assert turns.wishes(lambda wishes: False, wait_s=0.01) == []


def test_a_turn_enters_no_lock_that_is_written_in_python() -> None:
    """An interrupt inside one, e.g. a Condition, may leave it locked for all other threads."""
    turns = Turns[str]()

    def turn() -> None:
        with turns:
            turns.wishes(lambda wishes: False, wait_s=0.001)

    assert interrupted_at(turn, 1, (Path(threading.__file__),)) == ""
