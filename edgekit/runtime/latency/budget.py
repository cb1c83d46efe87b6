"""Enforce a card's latency contract on this device: report slow stages, and switch to a faster variant.

    with Session(path) as session, Budget(session, on_alert=print) as budget:
        answer = budget.predict(frame)

The first predictions on a device become its baseline, which is stored; later a stage that has become slower
raises an alert (``drift.py``). When predictions miss the contract, a faster variant of the bundle is used,
and the accurate one again once it is expected to meet it (``switching.py``). All of them stay loaded, which
costs memory.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import local_timings
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.latency.choices import accuracy, choices, times_ms, variant_on_cpu
from edgekit.runtime.latency.drift import Baseline, DriftState, baseline_from, baseline_of, step
from edgekit.runtime.latency.switching import PrecisionChoice, SwitchingState, decide, missed, p95
from edgekit.runtime.latency.system_signals import Signals
from edgekit.runtime.metrics.metrics import Metrics, timed_predict
from edgekit.runtime.predictor import SessionProtocol
from edgekit.runtime.streaming.replica import Replica, variant_of
from edgekit.system import timings
from edgekit.system.closing import Closing
from edgekit.system.forked import tell_of_fork
from edgekit.system.interrupts import pass_on
from edgekit.tensor_spec import Array

WINDOW_S, WINDOW_LEAST, WINDOW_MOST = 1.0, 20, 2000
"""Sliding window of predictions: those of the last second, but no fewer or more than these limits."""
CHECK_S = 0.25
SIGNALS_S = 5.0
BASELINE_SAMPLES = 300
HISTORY_LIMIT = 100


@dataclass(frozen=True)
class Alert:
    """A stage has become too slow, or has recovered.

    Attributes:
        stage: Stage of ``processing/latency_contract.py``, or ``end_to_end``.
    """

    stage: str
    text: str


class _StageMonitor:
    """Baseline and drift of one stage of one variant; the baseline is None until it is complete."""

    def __init__(self, baseline: Baseline | None) -> None:
        self.baseline = baseline
        self.first: list[float] = []
        self.drift = DriftState()


class Budget(Closing):
    """Runs a session within a latency contract. Thread-safe. In a forked process the session answers.

    Args:
        session: Must outlive this. More accurate and faster variants of its engine are loaded as replicas.
        latency: The contract. None means the card's.
        on_alert: Called with each :class:`Alert`; it must return at once.
        signals: Reads heat and power (``system_signals.read``), every 5 s: on a throttled device a faster
            variant is used. If it raises, it is not called again, and ``notes`` says why.
        clock: Monotonic, in seconds.

    Attributes:
        notes: Variants and signals that are not used, and why, e.g. one that could not be loaded.

    Raises:
        UsageError: there is no contract.
    """

    def __init__(
        self,
        session: SessionProtocol,
        latency: Latency | None = None,
        *,
        on_alert: Callable[[Alert], None] | None = None,
        metrics: Metrics | None = None,
        signals: Callable[[], Signals] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if latency is None:
            latency = session.card.latency
        if latency is None:
            raise UsageError(
                f"the card of {session.bundle.name} has no [latency]; add one, "
                "or pass latency=edgekit.processing.latency_contract.Latency(p95_ms=...)"
            )
        self.latency = latency
        self.bundle = session.bundle
        self.history: tuple[Fallback, ...] = ()
        self.notes: tuple[str, ...] = ()
        self._session, self._metrics, self._clock = session, metrics, clock
        self._on_alert = on_alert
        self._signals, self._strained, self._read_s = signals, "", -math.inf
        self._lock = threading.Lock()
        self._running = threading.Lock()  # a replica takes one call at a time
        self._untold: deque[Alert] = deque()
        self._window: deque[tuple[float, float, Mapping[str, float]]] = deque(maxlen=WINDOW_MOST)
        self._checked_s = clock()
        self._stages_over_limit: set[str] = set()
        self._monitors: dict[str, dict[str, _StageMonitor]] = {}
        self._replicas: dict[str, Replica] = {}
        try:
            usable = choices(session, self._times_beside_copy(session))
            self._choices = [choice for choice in usable if self._load_replica(choice.name)]
        except BaseException:  # e.g. Ctrl-C
            self.close()
            raise
        self._note_if_session_is_no_choice(session)
        self._state = SwitchingState()
        if not self._choices:  # none of them loads: use the session's own variant
            variant = variant_of(session, session.active.variant)
            self._choices = [PrecisionChoice(variant.name, 1.0, accuracy(variant))]
        tell_of_fork(self)

    def _note_if_session_is_no_choice(self, session: SessionProtocol) -> None:
        """Note if the session's own variant is not among the choices, because then another one is used."""
        variant, names = session.active.variant, [choice.name for choice in self._choices]
        if names and variant not in names:
            reason = f"it is not faster than the more accurate {', '.join(names)}"
            if variant not in times_ms(session):
                reason = "its relative time is unknown"
            self.notes += (f"{variant} is not used: {reason}",)

    @property
    def active(self) -> str:
        """Return the variant in use."""
        replica = self._replicas.get(self._choices[self._state.index].name)
        return self._session.active.variant if replica is None or replica.failed else replica.variant.name

    # --- running -----------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run like ``Session.run``, on the variant in use; its time counts as end to end."""
        began, state = time.perf_counter(), self._state
        outputs = self._run(feeds)
        self._took({"infer": time.perf_counter() - began}, state)
        return outputs

    def predict(self, frame: Array, order: str = "rgb", **options: Any) -> Any:
        """Predict like ``Session.predict``, on the variant in use."""
        state = self._state
        answer, seconds = timed_predict(self._session, self._run, frame, order, options)
        self._took(seconds, state, answer)
        return answer

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        replica = self._replicas.get(self._choices[self._state.index].name)
        try:
            if replica is None:
                return self._session.run(feeds)
            with self._running:
                return replica.run(feeds)  # by the session if it was closed meanwhile
        except BaseException:
            if self._metrics is not None:
                self._metrics.answered("failed")
            raise

    # --- monitoring --------------------------------------------------------------------------------------

    def took(self, seconds: Mapping[str, float]) -> None:
        """Record the stage times of a prediction; ``run`` and ``predict`` call this themselves."""
        self._took(seconds, self._state)

    def _took(self, seconds: Mapping[str, float], state: SwitchingState, prediction: Any = None) -> None:
        """Record the stage times of a prediction that began in this state.

        One during which another thread's prediction switched the variant says nothing about either variant.
        """
        if self._metrics is not None:
            self._metrics.took(seconds)
            self._metrics.answered("ok", prediction=prediction)
        now_s = self._clock()
        with self._lock:
            if state is self._state:
                self._window.append((now_s, sum(seconds.values()), seconds))
                self._check_drift(seconds, now_s)
                if now_s - self._checked_s >= CHECK_S:
                    self._checked_s = now_s
                    self._check(now_s)
        self._notify()

    def _notify(self) -> None:
        while self._untold:
            try:
                alert = self._untold.popleft()
            except IndexError:  # another thread passed it on
                return
            if self._on_alert is not None:
                self._on_alert(alert)

    def _check_drift(self, seconds: Mapping[str, float], now_s: float) -> None:
        monitors = self._monitors.get(self.active)
        if monitors is None:
            stored = timings.recall(self._key(self.active), {"stages": dict}) or {}
            stages = stored.get("stages", {})
            recalled = {s: baseline_from(stages.get(s)) for s in seconds}
            monitors = self._monitors[self.active] = {s: _StageMonitor(recalled.get(s)) for s in seconds}
        for stage, stage_s in seconds.items():
            monitor = monitors.setdefault(stage, _StageMonitor(None))
            if monitor.baseline is None:
                monitor.first.append(stage_s)
                if len(monitor.first) >= BASELINE_SAMPLES:  # an interrupt may come after the last one
                    monitor.baseline, monitor.first = baseline_of(monitor.first), []
                    self._remember(monitors)
                continue
            drift, change = step(monitor.drift, monitor.baseline, stage_s, now_s)
            if change is None:
                monitor.drift = drift
                continue
            text = f"is {100 * change:.0f} % slower than its baseline" if change else "has recovered"
            alert = Alert(stage, f"{stage} {text} ({self.active})")
            # An interrupt comes before these two lines or after them: an alert is neither lost nor repeated.
            monitor.drift = drift
            self._untold.append(alert)

    def _remember(self, monitors: Mapping[str, _StageMonitor]) -> None:
        stages = {stage: w.baseline.as_json() for stage, w in monitors.items() if w.baseline is not None}
        if len(stages) == len(monitors):
            infer = monitors.get("infer")
            middle_ms = 1000 * math.exp(infer.baseline.centre) if infer and infer.baseline else 1.0
            timings.record(self._key(self.active), {"p50_ms": middle_ms, "stages": stages})

    def _check(self, now_s: float) -> None:
        window = self._window
        while len(window) > WINDOW_LEAST and now_s - window[0][0] > WINDOW_S:
            window.popleft()
        for stage, limit_ms in {"end_to_end": self.latency.p95_ms, **self.latency.stages}.items():
            times = [whole if stage == "end_to_end" else parts.get(stage, 0.0) for _, whole, parts in window]
            exceeded = missed(times, limit_ms / 1000)
            if exceeded and stage not in self._stages_over_limit:
                took_ms = 1000 * p95(times)
                text = f"{stage} takes {took_ms:.3g} ms (p95); the contract allows {limit_ms:.3g} ms"
                alert, alerted = Alert(stage, text), self._stages_over_limit | {stage}
                self._stages_over_limit = alerted
                self._untold.append(alert)
            elif not exceeded and len(times) >= WINDOW_LEAST:
                self._stages_over_limit.discard(stage)
        whole_s = [whole for _, whole, _ in window]
        infer_s = [parts.get("infer", 0.0) for *_, parts in window]
        if self._signals is not None and now_s - self._read_s >= SIGNALS_S:
            self._read_s, self._strained = now_s, self._read_signals()
        limit_s, strained = self.latency.p95_ms / 1000, bool(self._strained)
        state = decide(self._state, self._choices, infer_s, whole_s, limit_s, now_s, strained)
        if state is not self._state:
            self._switch(state, whole_s)

    def _read_signals(self) -> str:
        try:
            return "" if self._signals is None else self._signals().strained
        except Exception as problem:  # the app's function: it must not cost a prediction
            pass_on(problem)
            self._signals = None
            self.notes += (f"heat and power are not read: {reason_of(problem)}",)
            return ""

    def _switch(self, state: SwitchingState, whole_s: Sequence[float]) -> None:
        before, now = self._choices[self._state.index], self._choices[state.index]
        faster = state.index > self._state.index
        limit_ms = self.latency.p95_ms
        reason = f"{1000 * p95(whole_s):.3g} ms (p95) " + ("missed" if faster else "leave a margin in")
        reason += f" the contract of {limit_ms:.3g} ms"
        if faster and not missed(whole_s, limit_ms / 1000):
            reason = self._strained
        cost = (
            f"{now.time_ms:.3g} ms instead of {before.time_ms:.3g} ms; "
            f"{now.accuracy} instead of {before.accuracy}"
        )
        switch = Fallback(before.name, now.name, reason, cost)
        history = (*self.history, switch)[-HISTORY_LIMIT:]
        window: deque[tuple[float, float, Mapping[str, float]]] = deque(maxlen=WINDOW_MOST)
        exceeded = set[str]()
        # No call between these, so that no interrupt leaves a part of them: the window of another variant.
        self.history, self._state, self._window, self._stages_over_limit = history, state, window, exceeded

    # --- lifetime ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free the replicas once their runs have ended; the session stays open. Closing twice is fine."""
        with self._running:
            for replica in self._replicas.values():
                replica.close()
            self._replicas.clear()

    def _times_beside_copy(self, session: SessionProtocol) -> Mapping[str, float]:
        """Return the time of a run in ms of the active accelerated copy and of its variant on the CPU.
        Both are measured now. Empty if the session runs on the CPU."""
        name = session.active.variant
        if (cpu_name := variant_on_cpu(variant_of(session, name))) is None:
            return {}
        if not self._load_replica(cpu_name):
            return {}
        golden = session.bundle.golden
        feeds = golden[0][0] if golden else {spec.name: spec.zeros() for spec in session.inputs}
        own_ms, cpu_ms = local_timings.compare([session, self._replicas[cpu_name]], feeds)
        return {name: own_ms, cpu_name: cpu_ms}

    def forked(self) -> None:
        """Replace the locks in a forked process, and drop engines that another thread may have been using."""
        self._lock, self._running = threading.Lock(), threading.Lock()
        if self._replicas:
            self.notes += ("after os.fork() the session's own variant is used",)
            self._replicas = {}

    def _load_replica(self, name: str) -> bool:
        if name == self._session.active.variant or name in self._replicas:
            return True
        try:
            self._replicas[name] = Replica(self._session, name, self._session.threads)
        except (EdgeKitError, OSError, MemoryError) as problem:
            self.notes += (f"{name} could not be loaded: {reason_of(problem)}",)
            return False
        return True

    def _key(self, name: str) -> str:
        return local_timings.key(
            self.bundle, variant_of(self._session, name), self._session.threads, "budget"
        )
