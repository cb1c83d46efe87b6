"""Requests under random interrupts, in a process of its own: each must be answered right, or interrupted.

    python -m tests.runtime.interrupted MODE COUNT SEED RAISED

A timer raises KeyboardInterrupt in the main thread, as Ctrl-C does, or another exception, as an app's timeout
does, at a random moment of each request, and often again while the first one is handled. RAISED is its name.
Where nothing goes on for a while every thread's stack is printed
and the process ends with code 1. Else it prints one object: how the requests ended. For other calls than
these: give ``soak`` what asks.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from edgekit.bundle import Bundle
from edgekit.errors import BusyError, NoVariantError
from edgekit.generate import TextParts, TextSession
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Session
from edgekit.runtime.fallback import variant_health
from edgekit.runtime.latency import budget as budget_module
from edgekit.runtime.latency.budget import Budget
from edgekit.runtime.latency.system_signals import Signals
from edgekit.runtime.loading import unpacked_files
from edgekit.target import registry
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.fake_engines import Engines, doubled
from tests.fixtures.numpy_decoder import STOP_ID, NumpyDecoder, byte_tokenizer
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle

STUCK_S = 60.0
"""Nothing goes on for so long: a deadlock."""
LONGEST_US = {
    "load": 10_000.0,
    "generate": 5000.0,
    "generate_together": 20_000.0,
    "falling": 10_000.0,
    "falling_deadline": 10_000.0,
    "stream": 5000.0,
}
"""From a request's beginning until it is interrupted; else 600."""

Ask = Callable[[int], bool]
"""One request by its number: whether the answer was that request's."""


class Alarm(Exception):  # noqa: N818
    """As an app's own."""


RAISED: dict[str, type[BaseException]] = {
    each.__name__: each for each in (KeyboardInterrupt, Alarm, TimeoutError, RuntimeError, ValueError)
}


IGNORED: list[object] = []
"""What was raised in a ``__del__`` method or a weak reference's callback: Python itself passes that over."""


class Timer:
    """Raises an exception while it is armed."""

    def __init__(self, raised: type[BaseException]) -> None:
        self.armed = False
        self.interrupts = 0
        self._raised = raised
        signal.signal(signal.SIGALRM, self._fire)

    def _fire(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.interrupts += 1
            raise self._raised("the app's own")


def soak(
    ask: Ask,
    count: int,
    seed: int,
    longest_us: float = 600.0,
    raised: type[BaseException] = KeyboardInterrupt,
) -> Counter[str]:
    """Requests until ``count`` of interrupts were raised.

    Returns:
        ``right``, ``wrong``, ``interrupted`` requests and ``interrupts``; ``swallowed`` ones, which were
        interrupted and answered; and by name each EdgeKitError.
    """
    draw, timer, outcomes = random.Random(seed), Timer(raised), Counter[str]()
    number = 0
    assert ask(0)  # imports what it needs; in the time of a request that would never come to its end
    while timer.interrupts < count:
        if number % 500 == 0:
            faulthandler.dump_traceback_later(STUCK_S, exit=True)
        number += 1
        # Every twentieth request has time to end, also on a busy machine.
        first_s = 1e-6 * longest_us ** draw.random() if number % 20 else 1.0
        again_s = draw.choice((0.0, 0.0, 2e-5, 1e-4))
        outcome, before, ignored = "interrupted", timer.interrupts, len(IGNORED)
        try:
            timer.armed = True
            signal.setitimer(signal.ITIMER_REAL, first_s, again_s)
            outcome = "right" if ask(number) else "wrong"
            timer.armed = False
        except (BusyError, NoVariantError) as problem:
            timer.armed = False
            outcome = type(problem).__name__
        except BaseException as problem:
            timer.armed, outcome = False, "interrupted"
            if type(problem) is not raised or str(problem) != "the app's own":
                raise
        signal.setitimer(signal.ITIMER_REAL, 0)
        outcomes[outcome] += 1
        if outcome != "interrupted" and len(IGNORED) == ignored:
            outcomes["swallowed"] += timer.interrupts > before
    faulthandler.dump_traceback_later(STUCK_S, exit=True)
    for number in range(10**6, 10**6 + 100):  # and in peace
        outcomes["right in peace" if ask(number) else "wrong in peace"] += 1
    outcomes["interrupts"] = timer.interrupts
    return outcomes


# --- what is asked ---------------------------------------------------------------------------------------


def doubling() -> Bundle:
    return ort_bundle(good=onnx_bytes(DOUBLES), other=onnx_bytes(DOUBLES))


def feeds(number: int) -> dict[str, Array]:
    return {"x": np.full((1, 6), number % 100_003, np.float32)}


def is_right(number: int, outputs: Mapping[str, Array]) -> bool:
    return bool((outputs["y"] == 2 * (number % 100_003)).all())


@contextmanager
def of_run() -> Iterator[Ask]:
    with Session(doubling(), threads=1) as session:
        yield lambda number: is_right(number, session.run(feeds(number)))
        assert session.history == ()


@contextmanager
def of_deadline() -> Iterator[Ask]:
    with Session(doubling(), threads=1, deadline_ms=60_000) as session:
        yield lambda number: is_right(number, session.run(feeds(number)))
        assert session.history == ()


@contextmanager
def of_load() -> Iterator[Ask]:
    """A session a request. The second variant is there to be fallen back to, wrongly."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = doubling().save(Path(folder, "model.edgekit"))

        def ask(number: int) -> bool:
            with Session(path, threads=1) as session:
                assert session.history == ()
                return is_right(number, session.run(feeds(number)))

        yield ask


@contextmanager
def of_generate() -> Iterator[Ask]:
    """A text a request, of eight tokens."""
    with TextSession.of_parts(NumpyDecoder(), TextParts(byte_tokenizer(), (STOP_ID,))) as session:
        expected = session.generate("once", max_tokens=8).text()
        yield lambda number: session.generate("once", max_tokens=8).text() == expected


@contextmanager
def of_generate_together() -> Iterator[Ask]:
    """The same while two other threads, which nobody interrupts, generate texts in the same batches."""
    parts = TextParts(byte_tokenizer(), (STOP_ID,))
    with TextSession.of_parts(NumpyDecoder(), parts, conversations=3) as session:
        prompts = ("once", "twice", "a long prompt. " * 12)
        expected = [session.generate(prompt, max_tokens=8).text() for prompt in prompts]
        ended, wrong = threading.Event(), list[str]()

        def generate(index: int) -> None:
            while not ended.is_set():
                text = session.generate(prompts[index], max_tokens=8).text()
                if text != expected[index]:
                    wrong.append(text)

        others = [threading.Thread(target=generate, args=(index,)) for index in (1, 2)]
        for other in others:
            other.start()
        try:
            yield lambda number: session.generate("once", max_tokens=8).text() == expected[0] and not wrong
        finally:
            ended.set()
            for other in others:
                other.join()
        assert not wrong


@contextmanager
def of_budget() -> Iterator[Ask]:
    """A run a request, while another thread uses the same budget on a device that is hot now and then: the
    variant is switched again and again."""
    variants = [variant("float", "ort", p50_ms=2.0), variant("small", "ort", p50_ms=1.0, precision="int8")]
    registry.engine = Engines("ort")
    patched: Any = budget_module
    patched.CHECK_S = patched.SIGNALS_S = 0.0

    def clock() -> float:
        return 40_000 * time.monotonic()

    def signals() -> Signals:
        return Signals(throttled=clock() % 4000 < 2000)

    with (
        Session(small_bundle(variants), threads=1) as session,
        Budget(session, Latency(1000.0), signals=signals, clock=clock) as budget,
    ):
        ended, wrong = threading.Event(), list[int]()

        def run(number: int) -> bool:
            return is_right(number, budget.run(feeds(number)))

        def others() -> None:
            number = 0
            while not ended.is_set():
                number += 1
                if not run(number):
                    wrong.append(number)
                time.sleep(0.0005)

        other = threading.Thread(target=others)
        other.start()

        def ask(number: int) -> bool:
            while number >= 10**6 and {change.from_ for change in budget.history} != {"float", "small"}:
                run(number)  # in peace: it is switched there and back
            return run(number) and not wrong

        try:
            yield ask
        finally:
            ended.set()
            other.join()
        assert not wrong
        assert session.history == ()


@contextmanager
def of_async() -> Iterator[Ask]:
    with Session(doubling(), threads=1) as session:
        yield lambda number: is_right(number, session.run_async(feeds(number)).result())
        assert session.history == ()


@contextmanager
def of_stream() -> Iterator[Ask]:
    """Five frames of one stream a request, and another stream for the next one."""
    with Session(doubling(), threads=1) as session:

        def ask(number: int) -> bool:
            numbers = range(number, number + 5)
            with session.stream(map(feeds, numbers), workers=1) as stream:
                return all(is_right(n, result.answer) for n, result in zip(numbers, stream, strict=True))

        yield ask


@contextmanager
def of_falling(deadline_ms: float | None = None) -> Iterator[Ask]:
    """Three variants that fail now and then and return at once: most requests load, close or return one."""
    draw = random.Random(0)

    def fails_at_times(given: Mapping[str, Array]) -> dict[str, Array]:
        luck = draw.random()
        if luck < 0.2:
            raise RuntimeError("kernel died")
        return {"y": np.full((1, 6), np.nan, np.float32)} if luck < 0.3 else doubled(given)

    engines = Engines("ort", "tflite", "openvino")
    variants = []
    for place, name in enumerate(engines.by_name):
        variants.append(variant(f"{name}-fp32", name, p50_ms=1.0 + place))
        engines[name].behaviour[f"{name}-fp32"] = fails_at_times
    registry.engine = engines
    patched: Any = variant_health
    patched.monotonic = lambda: 40_000 * time.monotonic()
    bundle = small_bundle(variants)
    for each in bundle.variants:  # Python's rmtree passes over every OSError, a TimeoutError too
        unpacked_files.unpack(bundle, each)
    with Session(bundle, threads=1, deadline_ms=deadline_ms) as session:

        def ask(number: int) -> bool:
            outputs = session.run(feeds(number))
            assert session.active.variant in {v.name for v in variants}
            assert all(hop.reason for hop in session.fallbacks)
            return is_right(number, outputs)

        def peaceful(number: int) -> bool:
            if number >= 10**6:
                for name in engines.by_name:
                    engines[name].behaviour[f"{name}-fp32"] = doubled
                draw.random = lambda: 1.0  # type: ignore[method-assign]
            return ask(number)

        yield peaceful


@contextmanager
def of_falling_deadline() -> Iterator[Ask]:
    with of_falling(10_000) as ask:
        yield ask


MODES: dict[str, Any] = {
    "run": of_run,
    "deadline": of_deadline,
    "load": of_load,
    "generate": of_generate,
    "generate_together": of_generate_together,
    "budget": of_budget,
    "async": of_async,
    "stream": of_stream,
    "falling": of_falling,
    "falling_deadline": of_falling_deadline,
}


def in_child(mode: str, count: int, seed: int, raised: str = "KeyboardInterrupt") -> Counter[str]:
    """The same in a process of its own."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.runtime.interrupted", mode, str(count), str(seed), raised]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{mode} {seed} ended with {done.returncode}:\n{done.stderr[-20_000:]}"
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    mode, count, seed, raised = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), RAISED[sys.argv[4]]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["EDGEKIT_CACHE"] = folder
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        logging.disable()
        sys.unraisablehook = IGNORED.append
        with MODES[mode]() as ask:
            outcomes = soak(ask, count, seed, LONGEST_US.get(mode, 600.0), raised)
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
