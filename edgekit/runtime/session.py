"""A session: one bundle opened, its best variant loaded, and the next one when that fails."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit import measured, target
from edgekit.bundle import Bundle, Variant
from edgekit.errors import (
    EngineError,
    MissingDependency,
    NoVariantError,
    ProfileError,
    UsageError,
)
from edgekit.runtime import cache, preparing, strict, times_here
from edgekit.runtime.fallback import (
    Candidate,
    Failure,
    Fallback,
    Plan,
    estimates,
    first,
    hops,
    nothing_works,
    put_first,
    rank,
    reason_of,
)
from edgekit.runtime.feeds import misfit, wrong_answer
from edgekit.target import Array, Runner, TensorSpec

if TYPE_CHECKING:
    from edgekit.card import Card
    from edgekit.runtime.answers import Placement

THREADS_LIMIT = 4


@dataclass(frozen=True)
class Active:
    """What runs: the variant's name, the engine and its version, the device, the precision it executes."""

    variant: str
    engine: str
    device: str
    precision: str


class Session:
    """Opens a bundle and runs it. Safe to share between threads: calls wait for each other.

    The first variant that loads is taken, in this order: those of ``engine``, verified ones, measured fastest
    (here, else where the bundle was built), the bundle's own order. When a variant's engine is missing, or it
    fails to load, throws, or answers other names, dtypes or shapes than the model's, the next one takes over,
    and ``fallbacks`` says so. When every variant fails on one input, that input is to blame: ``run`` raises,
    and the next call starts from where this one did.

    Args:
        bundle: A path, or a bundle that is open (and stays so).
        engine: The target to try first, e.g. ``"tflite"``.
        strict: Raise where a fallback would be taken.
        threads: Threads of one run. None: the cores that this process may use, at most 4. Small batches scale
            little beyond four cores, and the rest of the app needs some; the engines' own defaults differ
            (ONNX Runtime takes every core, XNNPACK one).

    Raises:
        BundleError: the bundle cannot be opened.
        UsageError: the bundle has nothing for ``engine``, or ``threads`` is no positive number.
        NoVariantError: no variant works here; every reason is named.
        MissingDependency: ``strict``, and the engine of the first variant is not installed.
        EngineError: ``strict``, and the first variant did not load.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] | Bundle,
        *,
        engine: str | None = None,
        strict: bool = False,
        threads: int | None = None,
    ) -> None:
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise UsageError(f"threads must be a whole number from 1, not {threads!r}")
        self.threads: int = threads if threads is not None else default_threads()
        self.strict = strict
        self._lock = Lock()
        self._closed = False
        self._runner: Runner | None = None
        self._owned = not isinstance(bundle, Bundle)
        self.bundle: Bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        try:
            self.inputs: tuple[TensorSpec, ...] = self.bundle.inputs
            self.outputs: tuple[TensorSpec, ...] = self.bundle.outputs
            self._takes = [(spec.name, np.dtype(spec.dtype), spec.shape) for spec in self.inputs]
            self._gives = [(spec.name, np.dtype(spec.dtype), spec.shape) for spec in self.outputs]
            self._card: Card | None = None
            self._asked = engine
            self._times_here = times_here.recalled(self.bundle, self.threads)
            self._plan = self._ranked()
            self._failures: dict[str, Failure] = {}
            self._candidate: Candidate
            self.active: Active
            self.notes: tuple[str, ...] = ()
            self.fallbacks: tuple[Fallback, ...] = ()
            self._preparations = preparing.Preparations()
            self._settle()
            self._prepare()
        except BaseException:
            if self._owned:
                self.bundle.close()
            raise

    # --- running -----------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Args:
            feeds: Every input by name, of exactly the declared dtype and shape; nothing is converted. Arrays
                that are not contiguous are copied.

        Returns:
            Every output by name, of the declared dtype and shape; the arrays are the caller's.

        Raises:
            UsageError: ``feeds`` does not fit, or the session is closed.
            NoVariantError: every variant failed on this input.
            EngineError: ``strict``, and the variant failed.
        """
        # The path whose microseconds are counted: no call of ours on it, what is wrong is told elsewhere.
        if len(feeds) != len(self._takes):
            raise misfit(feeds, self.inputs)
        checked = {}
        for name, dtype, shape in self._takes:
            array = feeds.get(name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
                raise misfit(feeds, self.inputs)
            flags = array.flags
            checked[name] = array if flags.c_contiguous and flags.aligned else array.copy(order="C")
        with self._lock:
            if self._preparations.waiting:
                self._take_over(checked)
            if self._runner is None:
                return self._run_on_next(checked, None)
            try:
                answers = self._runner.run(checked)
                if len(answers) != len(self._gives):
                    raise wrong_answer(answers, self.outputs)
                for name, dtype, shape in self._gives:
                    answer = answers[name]
                    if answer.shape != shape or answer.dtype != dtype:
                        raise wrong_answer(answers, self.outputs)
            except Exception as problem:  # an engine may throw anything
                return self._run_on_next(checked, problem)
            return answers

    def predict(self, frame: Array, order: str = "rgb") -> Any:
        """The task's answer for a photograph: prepare, run, decode, as the bundle's card says.

        Args:
            frame: uint8 [rows, columns, 3].
            order: Its colours, ``rgb`` or ``bgr``; OpenCV's cameras give BGR.

        Raises:
            UsageError: the bundle has no card, or the frame does not fit it.
            EngineError: as ``run``.
        """
        feeds, placed = self.prepare(frame, order)
        return self.decode(self.run(feeds), placed)

    def prepare(self, frame: Array, order: str = "rgb") -> tuple[dict[str, Array], Placement]:
        """The first third of ``predict``, for apps that time or overlap its parts: what ``run`` takes."""
        card = self.card  # first: without one there is a better error than what follows
        from edgekit.runtime import tasks

        return tasks.prepare(card, frame, order)

    def decode(self, outputs: Mapping[str, Array], placed: Placement) -> Any:
        """The last third of ``predict``: the answer from what ``run`` gave."""
        from edgekit.runtime import tasks

        return tasks.decode(self.card, outputs, placed)

    @property
    def card(self) -> Card:
        """The bundle's card.

        Raises: UsageError: it has none.
        """
        if self._card is None:
            if self.bundle.card is None:
                raise UsageError(
                    f"{self.bundle.name} has no card, so it does not say how a frame becomes inputs; "
                    "build it with --card, or use run() on arrays"
                )
            from edgekit.card import parse_card

            self._card = parse_card(self.bundle.card, self.inputs, self.outputs)
        return self._card

    # --- what ran ----------------------------------------------------------------------------------------

    @property
    def runner(self) -> Runner:
        """The loaded variant itself, for comparing with the bare engine. Not behind the lock."""
        if self._runner is None:
            raise self._not_loaded()
        return self._runner

    @property
    def preparing(self) -> Mapping[str, str]:
        """What is made ready in the background: variant -> ``building``, ``verifying``, ``warming`` ..."""
        return self._preparations.states()

    @property
    def skipped(self) -> Mapping[str, str]:
        """Variants that are never tried, e.g. rejected ones: name -> reason."""
        return self._plan.skipped

    def remember_timing(self, p50_ms: float) -> bool:
        """Record how long a run takes here, so that sessions rank by it. False where it cannot be written."""
        variant = self._candidate.variant
        return times_here.remember(self.bundle, variant, self.active.engine, self.threads, p50_ms)

    def close(self) -> None:
        """Free the engine, and the bundle if it was opened here. Closing twice is fine."""
        with self._lock:
            self._closed = True
            self._preparations.give_up()
            self._drop_runner()
            if self._owned:
                self.bundle.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.bundle.name}: {self.active.variant} on {self.active.engine}>"

    # --- choosing ----------------------------------------------------------------------------------------

    def _ranked(self) -> Plan:
        variants = self.bundle.variants
        targets = sorted({variant.target for variant in variants})
        if self._asked is not None and self._asked not in targets:
            raise UsageError(
                f"{self.bundle.name} has no variant for engine {self._asked!r}; "
                f"it has {', '.join(targets) or 'none at all'}"
            )
        built = {v.name: measured.milliseconds_of(v.evidence.get("timing")) for v in variants}
        here = {name: time_ms for name, (time_ms, _) in self._times_here.items()}
        known = {name: time_ms for name, time_ms in built.items() if time_ms is not None}
        return rank(variants, estimates(known, here), self._asked)

    def _settle(self) -> None:
        """Load the best candidate that has not failed; its hops are recorded."""
        if self.strict and self._plan.asked_in_vain is not None:
            raise strict.asked_in_vain(self._plan, self._asked)
        while True:
            candidate = first(self._plan, self._failures)
            if candidate is None:
                raise nothing_works(self.bundle.name, self._plan, self._failures)
            try:
                if not self._load(candidate):
                    continue
            except (MissingDependency, ProfileError) as problem:
                self._fail_missing(candidate, problem)
            except Exception as problem:  # an engine may throw anything
                self._fail(candidate, problem)
            else:
                self._candidate = candidate
                self.fallbacks = hops(self._plan, self._failures, candidate)
                return

    def _load(self, candidate: Candidate) -> bool:
        """Load a candidate. False: its recorded time was of another engine version, and the order is new."""
        variant = candidate.variant
        engine = target.engine(variant.target)
        version = engine.engine_version()
        if self._times_here.get(variant.name, (0.0, version))[1] != version:
            del self._times_here[variant.name]
            self._plan = self._ranked()
            return False
        self._runner = runner = self._open(variant)
        self.active = Active(variant.name, version, runner.device, runner.precision)
        return True

    def _open(self, variant: Variant) -> Runner:
        engine = target.engine(variant.target)
        unpacked = cache.unpack_noted(self.bundle, variant)
        if unpacked.note and unpacked.note not in self.notes:
            self.notes += (unpacked.note,)
        open_it = partial(preparing.open_ready, engine) if self.strict else engine.open_runner
        return open_it(unpacked.files, self.inputs, self.outputs, variant.options, self.threads)

    def _prepare(self) -> None:
        """Begin to make ready, in the background, what is made ready on the device."""
        failed, variants = self._failures, () if self.strict else self.bundle.variants
        out = {v.target for v in variants if v.name in failed and failed[v.name].missing}
        for variant in preparing.worth_it(variants, {*out, self._candidate.variant.target}, self._asked):
            self._preparations.begin(variant.name, partial(self._open, variant))

    def _take_over(self, feeds: Mapping[str, Array]) -> None:
        """Between two requests: what is ready now serves from here on, if it is faster. The lock is held."""
        for name, runner, why in self._preparations.settled(None if self._asked else self._runner, feeds):
            if runner is None:
                self._failures[name] = Failure(why)
                self.fallbacks = hops(self._plan, self._failures, self._candidate)
                continue
            self._drop_runner()
            self._failures.pop(name, None)
            self._candidate, self._plan = put_first(self._plan, name)
            version = target.engine(self._candidate.variant.target).engine_version()
            self._runner, self.active = runner, Active(name, version, runner.device, runner.precision)
            self.fallbacks = ()

    def _run_on_next(self, feeds: Mapping[str, Array], problem: Exception | None) -> dict[str, Array]:
        """Run on the next variant that works, after ``problem`` of the active one. The lock is held."""
        if self._closed:
            raise self._not_loaded()
        before = dict(self._failures)
        try:
            while True:
                if problem is not None:
                    self._fail(self._candidate, problem)
                    self._drop_runner()
                    self._settle()
                    _log().warning("fell back: %s", self.fallbacks[-1])
                elif self._runner is None:
                    self._settle()
                assert self._runner is not None
                try:
                    answers = self._runner.run(feeds)
                    if self._gives != [(name, a.dtype, a.shape) for name, a in answers.items()]:
                        raise wrong_answer(answers, self.outputs)
                    return answers
                except Exception as again:
                    problem = again
        except NoVariantError:
            # Every variant failed on this very input: the next call begins where this one did.
            self._failures = before
            self._drop_runner()
            raise

    def _fail(self, candidate: Candidate, problem: Exception) -> None:
        reason = reason_of(problem)
        name = candidate.variant.name
        if self.strict:
            raise EngineError(f"{name} does not run: {reason}; strict allows no fallback") from problem
        self._failures[name] = Failure(reason)

    def _fail_missing(self, candidate: Candidate, problem: MissingDependency | ProfileError) -> None:
        """No variant of a missing engine can be loaded."""
        missing = candidate.variant.target
        if self.strict:
            raise strict.engine_missing(self._plan, candidate, self._asked, problem) from None
        install = f" ({problem.install})" if isinstance(problem, MissingDependency) else ""
        for other in self._plan.candidates:
            if other.variant.target == missing:
                self._failures[other.variant.name] = Failure(
                    f"{missing} is not installed{install}", missing=True
                )

    def _not_loaded(self) -> UsageError:
        return UsageError(f"the session on {self.bundle.name} is closed; open a new one to run")

    def _drop_runner(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                runner.close()
            except Exception as problem:  # it is not needed any more, whatever it says
                _log().warning("%s did not close: %s", self.active.engine, problem)


def default_threads() -> int:
    """The cores that this process may use, at most 4."""
    own = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if own else os.cpu_count() or 1
    return min(THREADS_LIMIT, cores)


def _log() -> Any:
    import logging  # here: most sessions have nothing to log

    return logging.getLogger("edgekit.runtime")
