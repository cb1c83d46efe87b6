"""A session: one bundle opened, its best variant loaded, with fallback to the next ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NoReturn, cast

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError, no_attribute
from edgekit.processing.generation import refuse_generation
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.session_chain import SessionChain
from edgekit.runtime.session_state import Active, SessionOptions, States
from edgekit.system.closing import Closing
from edgekit.system.cpu import allowed_threads, default_threads
from edgekit.system.forked import tell_of_fork
from edgekit.system.interrupts import pass_on
from edgekit.target.tensor_checks import filled, fitted, misfit
from edgekit.tensor_spec import Array, Signature

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import TypeVar

    from edgekit.processing.card import Card
    from edgekit.processing.predictions.prediction import AnyPrediction
    from edgekit.runtime.cascade import Cascade
    from edgekit.runtime.predictor import SessionProtocol
    from edgekit.runtime.scheduling.request_queue import Requests
    from edgekit.runtime.streaming.carried import Carried
    from edgekit.runtime.streaming.listening import Listening
    from edgekit.runtime.streaming.stream import Stream
    from edgekit.target.contract import Runner

    Answer = TypeVar("Answer", default=AnyPrediction)
else:
    from typing import TypeVar

    Answer = TypeVar("Answer")


HABITS = {
    "benchmark": "edgekit.bench(bundle) times it",
    "get_inputs": "inputs",
    "get_outputs": "outputs",
    "infer": "run",
    "plot": "predict(image).draw(image) draws",
}
"""Names that people try on a session -> ours."""


class Session(Closing, Generic[Answer]):
    """Opens a bundle and runs it. Thread-safe: concurrent calls run one after the other.

    The first variant that loads is used, in this order: ``variant``, those of ``engine``, verified ones,
    measured fastest (here, else where the bundle was built), bundle order. If a variant's engine is missing,
    or it fails to load, raises, or its outputs have wrong names, dtypes or shapes, or NaN where the golden
    outputs are finite, the session falls back to the next one and records it in ``fallbacks``. A variant
    that failed while running is retried in the background after a cooldown. If every variant fails on one
    input, ``run`` raises, and the next call starts from the state before. An interrupt (Ctrl-C, a signal
    handler that raises) at any moment leaves the session usable. A forked process can use a session with one
    thread and no deadline; open any other after the fork. ``Session[Detections]`` tells a type checker what
    ``predict`` returns.

    Args:
        bundle: A path, or an open bundle, which is not closed.
        engine: The engine to try first, e.g. ``"tflite"``.
        variant: The variant to try first, by its name in the bundle, e.g. ``"tflite-int8"``.
        threads: Threads of one run. None means the cores that this process may use, at most 4.
        deadline_ms: Time of a request. Shortly before its end the standby variant runs too; the first answer
            is taken, late if need be. It costs a thread and the memory of a second variant.
        probe: Load each variant first in a child process, once: a crash costs a fallback, not the app.
        warm: Run once before the first request, which is then as fast as later ones.
        device: ``cpu``, ``gpu``, ``npu``, ``auto`` for the fastest, or an interface, e.g. ``cuda`` or
            ``delegate:FILE,OPTION=VALUE`` (TFLite; docs/accelerators.md). It is verified in the
            background; until then, and if it fails, the CPU answers. ``strict`` waits for it.
        allow_split: Let a strict session run nodes that the accelerator lacks on the CPU.
        measure: Measure the bundle's variants on this machine once, in a child process of low priority; later
            sessions start with the fastest. No child is started for ``engine``, ``variant`` or ``strict``.
        on_state: Called with each new state and the variant it is about; see ``state``.

    Attributes:
        shapes: Inputs and outputs at each shape, the largest last: ``inputs``, ``outputs`` (docs/shapes.md).

    Raises:
        BundleError: the bundle cannot be opened.
        UsageError: the bundle has no ``variant`` or nothing for ``engine``, ``threads`` is not from 1 to
            1024, ``deadline_ms`` is not positive, or ``device`` is unknown.
        NoVariantError: no variant works here; the message lists every reason.
        EngineError, MissingDependency: ``strict``, and the first variant did not load, or has no engine.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] | Bundle,
        *,
        engine: str | None = None,
        variant: str | None = None,
        strict: bool = False,
        threads: int | None = None,
        deadline_ms: float | None = None,
        probe: bool = False,
        warm: bool = False,
        device: str = "cpu",
        allow_split: bool = False,
        measure: bool = True,
        on_state: Callable[[str, str], None] | None = None,
    ) -> None:
        self.threads: int = default_threads() if threads is None else allowed_threads(threads)
        self.strict = strict
        self._lock, self._queue_lock = Lock(), Lock()
        self._queue: Requests | None = None
        self._closed = self._lost_in_fork = False
        self._states = States(on_state)
        self._card: Card | None = None
        self._cards: list[Card] = []
        self._carried: Carried | None = None
        self._owned = not isinstance(bundle, Bundle)
        self.bundle: Bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        try:
            refuse_generation(self.bundle.card, self.bundle.name)
            self.shapes: tuple[Signature, ...] = self.bundle.shapes
            self.inputs, self.outputs = self.shapes[-1]
            self._takes = [(spec.name, np.dtype(spec.dtype), spec.shape) for spec in self.inputs]
            deadline = None
            if deadline_ms is not None:
                from edgekit.runtime.deadline.deadline import Deadline  # here: most have none

                deadline = Deadline(deadline_ms, self.shapes)
            options = SessionOptions(
                engine, variant, strict, self.threads, probe, warm, device, allow_split, measure
            )
            self._chain = SessionChain(self.bundle, options, self._states, deadline)
            self._check = self._chain.output_checks.check
            self._cascade: Cascade | None = None
            if self.bundle.stages:
                from edgekit.runtime import cascade  # here: most bundles are one model

                try:
                    self._cascade = cascade.Cascade(
                        self.bundle,
                        lambda stage: Session(stage, engine=engine, strict=strict, threads=threads),
                    )
                except BaseException:
                    self._chain.close()
                    raise
        except BaseException:
            if self._owned:
                self.bundle.close()
            raise
        tell_of_fork(self)

    def run(self, feeds: Mapping[str, Array], *, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Run once.

        Args:
            feeds: Every input by name, of exactly the declared dtype and one of ``shapes``; nothing is
                converted. Arrays that are not contiguous are copied.
            out: Arrays that some outputs are copied into, by name, e.g. in shared memory. A loop needs none:
                results that nobody holds any more are filled again.

        Returns:
            Every output by name, of the declared dtype and shape; the arrays are the caller's.

        Raises:
            UsageError: ``feeds`` or ``out`` does not fit, or the session is closed.
            NoVariantError: every variant failed on this input.
            EngineError: ``strict``, and the variant failed.
        """
        # The hot path calls none of our functions.
        if (type(feeds) is not dict and not isinstance(feeds, Mapping)) or len(feeds) != len(self._takes):
            raise misfit(feeds, self.shapes)
        checked = {}
        for name, dtype, shape in self._takes:
            array = feeds.get(name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
                checked = fitted(feeds, self.shapes)  # a further shape, or it raises
                break
            flags = array.flags
            checked[name] = array if flags.c_contiguous and flags.aligned else array.copy(order="C")
        chain = self._chain
        with self._lock:
            if chain.changes_pending:
                chain.between_requests()
            if chain.runner is None:
                if self._closed or self._lost_in_fork:
                    raise self._not_loaded()
                outputs = chain.run_on_next(checked, None)
            else:
                try:
                    outputs = chain.runner.run(checked)
                    self._check(outputs)
                except Exception as problem:  # an engine may throw anything
                    pass_on(problem)
                    outputs = chain.run_on_next(checked, problem)
        return outputs if out is None else filled(out, outputs)

    def predict(self, frame: Any, order: str = "rgb", *, rate: int | None = None, **options: Any) -> Answer:
        """Predict for an image, audio or a string: prepare, run, decode, by the bundle's card.

        States and the context of audio carry over between calls, of all threads, until ``reset``.

        Args:
            frame: An image: uint8 [rows, columns, 3]. Audio of at most one window (else see ``listen``):
                floats (-1 to 1) or int16, [n] or [n, channels]. A string. Or a path of an image, a .wav or a
                text, the bytes of one, a Pillow image, or nested lists.
            order: An array's colour order: ``rgb``, ``bgr`` (OpenCV's), or a camera's ``nv12``, ``i420``,
                ``yuyv`` (processing/yuv_frames.py has their shapes).
            rate: Samples a second (audio), in Hz. None means the card's.
            options: Decoding options that override the card's, e.g. ``score=0.6``.

        Raises:
            UsageError: the bundle has no card, the frame does not fit it, or an option is unknown.
            EngineError: as ``run``.
        """
        from edgekit.processing import processing

        if not isinstance(frame, np.ndarray):
            frame, order, rate = self._read(frame, order, rate)
        if processing.predicts_in_parts(self.card):
            return cast("Answer", processing.predict_whole(self.card, self.run, frame, rate, options))
        if self.card.carries:
            outputs, placed = self._stream_of_predict().run(frame, order, rate)
            return self.decode(outputs, placed, **options)
        feeds, placed = self.prepare(frame, order, rate=rate)
        return self.decode(self.run(feeds), placed, **options)

    __call__ = predict

    def _read(self, item: Any, order: str, rate: int | None) -> tuple[Any, str, int | None]:
        from edgekit.processing.read_item import read_item  # here: cameras give arrays

        return read_item(self.card.sources()[0].kind, item, order, rate)

    def reset(self) -> None:
        """Begin a new stream: states and context of ``predict`` are zero again."""
        self._stream_of_predict().reset()

    def prepare(
        self, frame: Any, order: str = "rgb", rate: int | None = None
    ) -> tuple[dict[str, Array], Any]:
        """Prepare the feeds of ``run``: the first step of ``predict``, to time or overlap the steps."""
        card = self.card  # first: a missing card has a better error than what follows
        from edgekit.processing import processing

        card.check_steps()
        if not isinstance(frame, np.ndarray):
            frame, order, rate = self._read(frame, order, rate)
        if len(self.shapes) > 1:
            from edgekit.processing.shape_choice import card_for, cards_at

            self._cards = self._cards or cards_at(card, self.shapes)
            card = card_for(self._cards, frame, rate, order)
        feeds, placed = processing.prepare(card, frame, order, rate=rate)
        return feeds, placed if self._cascade is None else self._cascade.keep(frame, order, placed)

    def decode(self, outputs: Mapping[str, Array], placed: Any, **options: Any) -> Answer:
        """Decode the outputs of ``run``: the last step of ``predict``, with its options."""
        from edgekit.processing import processing

        decoded: Any
        if self._cascade is not None:
            decoded = self._cascade.decode(self.card, outputs, placed, options)
        else:
            decoded = processing.decode(self.card, outputs, placed, **options)
        return cast("Answer", decoded)

    def listen(self, sound: Any, *, rate: int | None = None, **options: Any) -> Listening:
        """Open long or live audio, window by window; see ``streaming.listening.Listening``."""
        from edgekit.runtime.streaming.listening import Listening

        if isinstance(sound, str | os.PathLike | bytes):
            sound, _, rate = self._read(sound, "rgb", rate)
        return Listening(self, sound, rate=rate, **options)

    def _stream_of_predict(self) -> Carried:
        from edgekit.runtime.streaming.carried import Carried

        with self._queue_lock:
            self._carried = self._carried or Carried(self)
        return self._carried

    @property
    def card(self) -> Card:
        """Return the bundle's card. Raises UsageError: it has none."""
        if self._card is None:
            from edgekit.runtime.session_card import card_of

            self._card = card_of(self.bundle)
        return self._card

    @property
    def state(self) -> str:
        """``verifying``, ``loading``, ``warming``, ``ready`` or ``closed`` (session_state.py)."""
        return self._states.now

    @property
    def active(self) -> Active:
        return self._chain.active

    @property
    def reason(self) -> str:
        """Return why the active variant runs, e.g. the times measured on this machine."""
        return self._chain.reason

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the fallbacks that led to the active variant; empty if it is the best one."""
        return self._chain.fallbacks

    @property
    def history(self) -> tuple[Fallback, ...]:
        """Return the last 100 changes of the active variant, recoveries included."""
        return self._chain.history

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings, e.g. an unusable cache or a hung variant."""
        return self._chain.notes

    @property
    def hanging(self) -> int:
        """Runs that timed out and have not returned; each holds a thread and a loaded model."""
        return 0 if self._chain.deadline is None else self._chain.deadline.hanging

    @property
    def late(self) -> int:
        """Answers after the deadline; ``notes`` has the longest time of one."""
        return 0 if self._chain.deadline is None else self._chain.deadline.late

    @property
    def runner(self) -> Runner:
        """Return the loaded variant, to compare it with the bare engine. It bypasses the session's lock."""
        runner = self._chain.runner  # once: another thread's request may drop it
        if runner is None:
            raise self._not_loaded()
        return runner

    @property
    def preparing(self) -> Mapping[str, str]:
        """Variants being prepared in the background: name -> ``building``, ``verifying``, ``warming`` ..."""
        return self._chain.preparations.states()

    @property
    def skipped(self) -> Mapping[str, str]:
        """Variants that are never loaded, e.g. rejected ones: name -> reason."""
        return self._chain.load_order.skipped

    def run_async(
        self, feeds: Mapping[str, Array], deadline_ms: float | None = None
    ) -> Future[dict[str, Array]]:
        """Run like ``run``, in a thread; return a future at once. Up to 64 requests are queued, the earliest
        deadline first. For batching see ``scheduling.request_queue.Requests``.

            outputs = session.run_async(feeds, deadline_ms=100).result()  # or: await asyncio.wrap_future(...)
        Raises UsageError: ``feeds`` does not fit, or the session is closed. BusyError: the queue is full."""
        with self._queue_lock:
            if self._closed or self._lost_in_fork:
                raise self._not_loaded()
            if self._queue is None:
                from edgekit.runtime.scheduling.request_queue import Requests

                self._queue = Requests(self)
        return self._queue.run_async(feeds, deadline_ms)

    def stream(self, items: Iterable[Any], **options: Any) -> Stream:
        """Return a stream that turns frames into predictions, in order, on all cores. The options are those
        of ``streaming.stream.Stream``.

            for result in session.stream(frames, order="bgr"):
                show(result.frame, result.answer)

        Raises UsageError: an option is invalid, or the frames are a path."""
        if isinstance(items, (str, bytes, os.PathLike)):
            raise UsageError(
                f"stream takes the frames of a video, not {items!r}; read them, e.g. with cv2.VideoCapture, "
                "or use `edgekit run BUNDLE -i VIDEO --show`"
            )
        from edgekit.runtime.streaming.stream import Stream

        if self._lost_in_fork:
            raise self._not_loaded()
        return Stream(self, items, **options)

    def close(self) -> None:
        """Free the engine, and the bundle if it was opened here. Closing twice is fine, also after Ctrl-C."""
        with self._queue_lock:
            self._closed, queue = True, self._queue
        if queue is not None:
            queue.close()
        with self._lock:
            if not self._lost_in_fork:
                self._chain.close()
            if self._cascade is not None:
                self._cascade.close()
            if self._owned:
                self.bundle.close()
            self._states.enter("closed")

    @property
    def stages(self) -> Mapping[str, SessionProtocol]:
        """Return the sessions of a cascade's later stages, by name; empty for one model."""
        return {} if self._cascade is None else self._cascade.sessions

    def __repr__(self) -> str:
        return f"<Session {self.bundle.name}: {self.active.variant} on {self.active.engine}>"

    def _repr_html_(self) -> str:
        from edgekit.system.formats.shown import html_table

        fallbacks = [("fallback", f"{hop.from_} -> {hop.to}: {hop.reason}") for hop in self.fallbacks]
        return html_table((), [("bundle", self.bundle.name), *self.active._asdict().items(), *fallbacks])

    if not TYPE_CHECKING:  # a type checker finds wrong names itself

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, HABITS)

    def forked(self) -> None:
        """Replace the locks in a forked process, and drop an engine that needs threads."""
        mid_run = self._lock.locked()
        self._lock, self._queue_lock, self._queue, self._carried = Lock(), Lock(), None, None
        if self._closed:
            return
        self._lost_in_fork = mid_run or self.threads > 1 or self._chain.deadline is not None
        self._chain.forked()
        if self._lost_in_fork:
            self._chain.runner, self._chain.changes_pending = None, False

    def _not_loaded(self) -> UsageError:
        if self._lost_in_fork:
            return UsageError(
                f"the session on {self.bundle.name} was opened before os.fork(), and its threads stayed in "
                "the parent process: open one in each process, after the fork, or begin processes with "
                "multiprocessing's 'spawn'"
            )
        return UsageError(f"the session on {self.bundle.name} is closed; open a new one to run")
