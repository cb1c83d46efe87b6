"""The device: frames through the runtime, tracks, zones, and what the runtime did, in words.

One thread runs the loop over ``session.stream``. Switches and the page only set wishes, which it reads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgekit.errors import EdgeKitError, reason_of
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Bundle, Metrics, Session, Store
from edgekit.runtime.caching.frame_signature import frame_distances, signature_of
from edgekit.runtime.latency.budget import Budget
from edgekit.runtime.latency.choices import choices
from edgekit.runtime.latency.system_signals import read as read_signals
from edgekit.runtime.predictor import SessionProtocol
from edgekit.runtime.store.bundle_store import HealthWindow
from live.faults import Faults
from live.pictures import Shown
from live.sources import Source
from live.tracks import Box, Tracks
from live.zones import Zones

DEADLINE_MS = 1000.0
"""Of one run: a hanging engine costs at most this, then the next variant answers."""
STILL = 3.0
"""Greatest change of a block's mean, in levels of 0 to 255, up to which a frame shows nothing new."""
LOOK_S = 1.0
"""A still scene is looked at that often."""
MODES = {"interactive": 0.0, "background": 0.2, "battery": 0.5}
"""Power mode -> least seconds between two runs. On battery the fastest variant runs."""
SLOWER_S = 0.1
"""Between two runs where the budget is tight and no variant is faster."""
TIGHT, LEAST_MS = 0.6, 0.01
"""The tightened budget, as a share of what an answer takes now, and the least one."""
HEALTHY = HealthWindow(seconds=10.0, answers=100)
"""What an update must show before it is committed."""
OBSERVED_FRAMES = 10
"""The store is asked after so many."""
WINDOW = 300
EVENTS = 50
STAGES = {"prepare": "prepare", "infer": "infer", "decode": "decode_outputs"}


class Device:
    """Runs a bundle on a source from ``start`` to ``close``.

    Args:
        bundle: The factory's; updates are installed beside it, in ``home``.
        source: Frames.
        home: A folder for the store of bundles.
        engine: The one to try first.
        on_shown: Called in the loop's thread with each frame that has boxes; must return at once.
        on_fired: Called with a zone, a box and the frame when a rule fires.
    """

    def __init__(
        self, bundle: Path, source: Source, home: Path, engine: str | None, on_shown: Any, on_fired: Any
    ) -> None:
        self.source, self.zones, self.faults = source, Zones(), Faults()
        self.mode, self.tight, self._slower = "interactive", False, False
        self.every_frame = False  # a frame without a run of its own is not shown
        self.store = Store(home / "models", factory=bundle, window=HEALTHY)
        self.newest: Shown | None = None
        self.frames = self.dropped = 0
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._engine, self._on_shown, self._on_fired = engine, on_shown, on_fired
        self._seconds: dict[str, deque[float]] = {
            stage: deque(maxlen=WINDOW) for stage in (*STAGES, "track", "total")
        }
        self._shown_s: deque[float] = deque(maxlen=WINDOW)
        self._taken: dict[int, float] = {}
        self._tracks = Tracks()
        self._boxes: tuple[Box, ...] = ()
        self._reference: Any = None
        self._ran_s = 0.0
        self._variant: str | None = None
        self._budget: Budget | None = None
        self._told: tuple[Any, ...] = ()
        self._reopen, self._stop = threading.Event(), threading.Event()
        with Bundle.open(self.store.path) as opened:
            self.faults.install(variant.target for variant in opened.variants)
        self.session = self._open()
        self.metrics = Metrics(cast(SessionProtocol, self))
        self._thread = threading.Thread(target=self._work, name="camera-device", daemon=True)

    def start(self) -> None:
        """Begin with the first frame."""
        self._thread.start()

    # --- what Metrics asks, of whatever session is open ----------------------------------------------------

    @property
    def bundle(self) -> Any:
        return self.session.bundle

    @property
    def active(self) -> Any:
        return self.session.active

    @property
    def fallbacks(self) -> Any:
        return self.session.fallbacks

    @property
    def history(self) -> Any:
        return self.session.history

    # --- wishes --------------------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        """Note what happened, for the page."""
        self.events.appendleft({"time": time.time(), "text": text})

    def set_mode(self, mode: str) -> None:
        """The app's context: ``interactive``, ``background`` or ``battery``."""
        if mode == self.mode:
            return
        self.mode = mode
        least_s = MODES[mode]
        self.tell(f"power: {mode}; " + (f"at most {1 / least_s:g} frames a second" if least_s else
                                        "every frame is looked at"))  # fmt: skip
        self._choose()

    def tighten(self, tight: bool) -> None:
        """Allow an answer less time than it takes now, or the usual time again."""
        self.tight = tight
        if tight:
            stages = [list(self._seconds[stage]) for stage in STAGES]
            times = [sum(each) for each in zip(*stages, strict=False)]
            limit_ms = max(LEAST_MS, 1000 * TIGHT * float(np.median(times))) if times else LEAST_MS
            self._budget = Budget(self.session, Latency(limit_ms), on_alert=self._over_budget)
            self.tell(f"budget: an answer may take {limit_ms:.3g} ms (p95)")
        else:
            budget, self._budget, self._slower = self._budget, None, False
            if budget is not None:
                budget.close()
            self.tell("budget: as before")
            self._choose()

    def active_target(self) -> str:
        """The target of the active variant, e.g. ``ort``."""
        name = self.session.active.variant
        return next((v.target for v in self.session.bundle.variants if v.name == name), "")

    def reopen(self) -> None:
        """Open the store's bundle again, between two frames."""
        self._reopen.set()

    def close(self) -> None:
        """Stop the loop and free the engine."""
        self._stop.set()
        self.faults.uninstall()
        self._thread.join(1.5)

    # --- the loop ------------------------------------------------------------------------------------------

    def _open(self) -> Session:
        options: dict[str, Any] = {"deadline_ms": DEADLINE_MS, "probe": False}
        return self.store.open(engine=self._engine, variant=self._variant, **options)

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                self._stream()
            except Exception as problem:  # every variant failed, or the source: said, and tried again
                self.tell(f"no answers: {reason_of(problem).splitlines()[0]}; trying again")
                self._stop.wait(1.0)
            if self._reopen.is_set() and not self._stop.is_set():
                self._reopen.clear()
                self._switch()
        if self._budget is not None:
            self._budget.close()
        self.session.close()
        self.source.close()

    def _switch(self) -> None:
        """Open what the store and the wishes say now, instead of the open session."""
        known = dict(self.store.state.given_up)
        try:
            session = self._open()
        except (EdgeKitError, OSError) as problem:
            self.tell(f"the open bundle goes on: {reason_of(problem).splitlines()[0]}")
            return
        for digest, why in self.store.state.given_up:
            if digest not in known:
                self.tell(f"the update {digest[:12]} was rolled back: {why.splitlines()[0]}")
        before, self.session = self.session, session
        if self._budget is not None:
            self._budget.close()  # its variants are those of the session before; it goes on with the times
        before.close()
        self._told = ()
        self.tell(f"{session.active.variant} runs on {session.active.engine}")

    def _stream(self) -> None:
        seen = 0
        self._taken.clear()
        with self.session.stream(
            self._worth_a_run(),
            decode=self._decoded,
            order="bgr",
            newest=True,
            workers=1,
            metrics=self.metrics,
        ) as stream:
            for result in stream:
                began = time.perf_counter()
                boxes = tuple(self._tracks.update(result.answer))
                track_s = time.perf_counter() - began
                taken_s, taken_unix = self._taken.pop(id(result.frame)), time.time()
                taken_unix -= time.monotonic() - taken_s
                self._boxes = boxes
                self._note(result.seconds, track_s, time.monotonic() - taken_s)
                self._show(result.frame, boxes, taken_unix, True)
                self.dropped += stream.dropped - seen
                seen = stream.dropped
                self._tell_fallbacks()
                if self.frames % OBSERVED_FRAMES == 0 and self.store.observe(self.metrics) == "rolled back":
                    self.reopen()
                if self._reopen.is_set() or self._stop.is_set():
                    return

    def _decoded(self, item: tuple[Any, float]) -> Any:
        frame, taken_s = item
        self._taken[id(frame)] = taken_s
        return frame

    def _worth_a_run(self) -> Iterator[tuple[Any, float]]:
        """Frames that are due and show something new; still ones are shown with the boxes before them."""
        for frame in self.source.frames(self._stop):
            if self._reopen.is_set():
                return
            now_s = time.monotonic()
            least_s = max(MODES[self.mode], SLOWER_S if self._slower else 0.0)
            if now_s - self._ran_s < least_s - 0.01:
                continue
            signature = signature_of(frame)
            still = (
                self._reference is not None and frame_distances(self._reference[None], signature)[0] <= STILL
            )
            if still and not self.every_frame and now_s - self._ran_s < LOOK_S:
                self._show(frame, self._boxes, time.time(), False)
                continue
            self._reference, self._ran_s = signature, now_s
            yield frame, now_s

    def _show(self, frame: Any, boxes: tuple[Box, ...], taken: float, motion: bool) -> None:
        self.frames += 1
        self._shown_s.append(time.monotonic())
        shown = self.newest = Shown(self.frames, taken, frame, boxes, motion)
        rows, columns = frame.shape[:2]
        for zone, box in self.zones.update(list(boxes), columns, rows, time.monotonic()):
            self.tell(f"{box.label} {box.id} has been in {zone.name} for {zone.seconds:g} s")
            self._on_fired(zone, box, shown)
        self._on_shown()

    def _note(self, seconds: Any, track_s: float, total_s: float) -> None:
        for stage, name in STAGES.items():
            self._seconds[stage].append(seconds[name])
        self._seconds["track"].append(track_s)
        self._seconds["total"].append(total_s)
        if self._budget is not None:
            self._budget.took({name: seconds[name] for name in STAGES.values()})

    def _tell_fallbacks(self) -> None:
        history = self.session.history
        for hop in history[len(self._told) :] if history[: len(self._told)] == self._told else history[-1:]:
            self.tell(f"{hop.from_} -> {hop.to}: {hop.reason}")
        self._told = history

    # --- budget --------------------------------------------------------------------------------------------

    def _over_budget(self, alert: Any) -> None:
        self.tell(f"budget: {alert.text}")
        self._choose(faster=True)

    def _choose(self, faster: bool = False) -> None:
        """The variant that the wishes ask for: the fastest on battery or over budget, else the best one."""
        known = choices(self.session)
        wanted = known[-1].name if faster or self.mode == "battery" or self.tight else None
        if wanted == self.session.active.variant and faster:
            if not self._slower:
                self.tell(f"budget: {wanted} is the fastest variant here; {1 / SLOWER_S:g} frames a second")
            self._slower = True
        elif wanted != self._variant:
            self._variant = wanted
            self.reopen()

    # --- for the page --------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """The device's part of the state (see /api/state)."""
        now_s, shown = time.monotonic(), list(self._shown_s)
        recent = [t for t in shown if now_s - t <= 2.0]
        session = self.session
        active, model = session.active, session.bundle.manifest["source"]
        return {
            "source": {"name": self.source.name, "rate": self.source.rate, "live": self.source.live,
                       "ended": self.source.lost},
            "fps": round(len(recent) / 2.0, 1), "frames": self.frames, "dropped": self.dropped,
            "stages": {stage: _percentiles(list(times)) for stage, times in self._seconds.items()},
            "active": {"variant": active.variant, "engine": active.engine, "precision": active.precision,
                       "threads": session.threads, "device": active.device},
            "model": {"name": Path(str(model["file"])).stem, "version": str(model["sha256"])[:12],
                      "sha256": str(model["sha256"])},
            "temperature_c": read_signals().temperature_c,
            "fallbacks": [
                {"time": event["time"], "text": event["text"]}
                for event in list(self.events) if " -> " in event["text"]
            ],
            "events": list(self.events),
            "power": self.mode,
            "zones": self.zones.as_json(),
            "labels": list(self.labels),
        }  # fmt: skip

    @property
    def labels(self) -> tuple[str, ...]:
        """What the detector can find."""
        task = self.session.card.task
        return () if task is None else tuple(task.labels)


def _percentiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"p50": 0.0, "p95": 0.0, "p99": 0.0}
    values = 1000 * np.quantile(seconds, [0.5, 0.95, 0.99])
    return {name: round(float(value), 2) for name, value in zip(("p50", "p95", "p99"), values, strict=True)}
