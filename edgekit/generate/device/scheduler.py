"""Scheduler of a text session: which text the engine computes next, on which decoder and cache.

There is no thread of its own. Callers queue requests and wait for their results; one of the waiting callers
runs ``step`` for all of them, until it has its own result (docs/decisions/0050).

An interrupt may end any caller at any instruction, and leaves nothing to clean up: a caller holds the lock
``present`` of its request by ``with`` as long as it waits. Requests whose lock is free are dropped, and a
stepping caller whose lock is free is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock, RLock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from edgekit.errors import NonFiniteOutputError, UsageError
from edgekit.generate.device.cached_decoder import CachedDecoder, logits_of_batch
from edgekit.generate.device.loaded_decoder import LoadedDecoder
from edgekit.system.interrupts import pass_on
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.generate.device.text_stream import TextStream

T = TypeVar("T")

WAIT_SHARE = 0.25
"""Share of the last batch's time that the next batch waits for the texts of the last one. Sampling a token
takes far less; a slow reader delays the others this once."""
CHECK_S = 0.05
"""Seconds after which a waiting caller checks whether the stepping one was interrupted."""


class ScheduledCall:
    """A function that a caller wants to have run between two engine steps.

    Attributes:
        present: Lock that the caller holds while it waits for the result.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.present, self._signal = Lock(), Lock()
        self._signal.acquire()
        self.thread = get_ident()
        self.result: Any = None
        self.error: Exception | None = None
        self.done = False

    def wait(self, timeout_s: float) -> None:
        """Wait until ``wake`` or the timeout."""
        self._signal.acquire(timeout=timeout_s)

    def wake(self) -> None:
        """Wake the caller, or let its next ``wait`` return at once. The scheduler's lock must be held."""
        if self._signal.locked():
            self._signal.release()


class LogitsRequest(ScheduledCall):
    """A request for the logits of a text.

    Attributes:
        cache: Cache that holds the first parts of the prompt; None before the first part.
        computed: Number of tokens that ``cache`` had computed before the first part.
    """

    def __init__(self, stream: TextStream, tokens: list[int], rows: int) -> None:
        super().__init__(lambda: None)
        self.stream, self.tokens, self.rows = stream, tokens, rows
        self.cache: CachedDecoder | None = None
        self.computed = 0

    def use(self, cache: CachedDecoder) -> None:
        """Read the prompt into a cache from now on."""
        if cache is not self.cache:
            self.cache, self.computed = cache, cache.computed


class Scheduler:
    """Order in which the texts of a session are computed. Thread-safe.

    Attributes:
        decoder: The decoder of all texts; used between ``run`` and in ``step`` only.
        lost: Whether the engine's threads stayed in the parent of this process.
    """

    def __init__(self, decoder: LoadedDecoder) -> None:
        self.decoder = decoder
        self.closed = self.lost = False
        self._lock = RLock()  # reentrant: a signal handler of the app may call the session
        self._requests: list[ScheduledCall] = []
        self._stepper: ScheduledCall | None = None
        self._last_batch: list[LogitsRequest] = []
        self._step_s = 0.0
        self._batched = self._batched_tokens = 0

    # --- for callers -------------------------------------------------------------------------------------

    def logits(self, stream: TextStream, tokens: list[int], rows: int) -> Array | None:
        """Return the logits after the last ``rows`` tokens of a text; None if the stream is to stop.

        Raises:
            EngineError: no variant works, or ``strict``, and one failed.
            UsageError: the scheduler is closed; or a signal handler calls this while its thread steps.
        """
        if self._steps_here():
            raise UsageError(
                "a signal handler asked for a text while its thread was generating one; ask in another thread"
            )
        logits: Array | None = self._result_of(LogitsRequest(stream, tokens, rows))
        return logits

    def run(self, call: Callable[[], T]) -> T:
        """Return the result of a function that runs between two engine steps."""
        if self._steps_here():
            return call()
        result: T = self._result_of(ScheduledCall(call))
        return result

    def _steps_here(self) -> bool:
        """Return whether this thread is stepping: then a signal handler of the app calls."""
        stepper = self._stepper
        return stepper is not None and stepper.thread == get_ident() and stepper.present.locked()

    def _result_of(self, request: ScheduledCall) -> Any:
        with request.present:
            with self._lock:
                self._requests = [*self._requests, request]
                if self._stepper is not None:
                    self._stepper.wake()  # the next batch may wait for this text
            while not request.done:
                if self._is_stepper(request):
                    self.step()
                else:
                    request.wait(CHECK_S)
        with self._lock:
            self._stepper = None if self._stepper is request else self._stepper
            for other in self._requests:
                if other.present.locked():
                    other.wake()  # it steps from now on
                    break
        result, error, request.result, request.error = request.result, request.error, None, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return result

    def _is_stepper(self, request: ScheduledCall) -> bool:
        with self._lock:
            if self._stepper is None or not self._stepper.present.locked():
                self._stepper = request
            return self._stepper is request

    # --- for the caller that steps -----------------------------------------------------------------------

    def step(self) -> None:
        """Serve the request that was served least recently: run its function, read a part of its prompt, or
        compute its next token in one batch with those of other texts."""
        for request in self._waiting():
            try:
                if isinstance(request, LogitsRequest):
                    if not self._admit(request):
                        continue
                    self._compute(request)
                else:
                    self._reply(request, request.call())
            except Exception as problem:
                pass_on(problem)
                self._reply(request, error=problem)
            return

    def _waiting(self) -> list[ScheduledCall]:
        """Return the requests to serve. Drop those whose caller was interrupted; reply to those whose text is
        to stop."""
        with self._lock:
            self._requests = [request for request in self._requests if request.present.locked()]
            waiting = self._requests
        for request in waiting:
            if isinstance(request, LogitsRequest) and request.stream.stops:
                self._reply(request, None)
        return [request for request in waiting if not request.done]

    def _admit(self, request: LogitsRequest) -> bool:
        """Assign a cache to a text. Return False while all caches belong to prompts that are being read.

        Raises:
            NoVariantError, EngineError: no variant works.
            BundleError: the text's adapter is damaged.
            UsageError: the scheduler is closed.
        """
        if self.closed or self.lost:
            raise self.unusable()
        if request.cache is None:
            self.decoder.begin(request.stream)
        pool = self.decoder.load()
        with self._lock:
            others = [r for r in self._requests if isinstance(r, LogitsRequest) and r is not request]
        pinned = [other.cache for other in others]
        cache = pool.assign(request.stream, request.tokens, pinned, request.stream.adapter)
        if cache is not None:
            request.use(cache)
        return cache is not None

    def _compute(self, request: LogitsRequest) -> None:
        """Run one engine step for an admitted request; fall back if the decoder fails."""
        assert request.cache is not None
        try:
            if self._joins_batch(request):
                self._compute_batch(request)
                return
            rows = request.cache.read(request.tokens, request.rows)
        except Exception as problem:  # an engine may throw anything
            pass_on(problem)
            if isinstance(problem, UsageError):
                raise
            self.decoder.fall_back(problem, request.cache)
            return
        if rows is not None:
            self._reply_logits(request, rows)
            return
        with self._lock:  # others first, before the next part
            self._requests = [*(r for r in self._requests if r is not request), request]

    def _joins_batch(self, request: ScheduledCall) -> bool:
        pool = self.decoder.pool if self.decoder.batches else None
        if pool is None or not isinstance(request, LogitsRequest) or request.rows != 1:
            return False
        cache = pool.owned_by(request.stream)
        if cache is None or cache.adapter != request.stream.adapter or not cache.lacks_one(request.tokens):
            return False
        request.use(cache)
        return True

    def _compute_batch(self, request: LogitsRequest) -> None:
        """Compute the next tokens of all waiting texts with the request's adapter in one engine step."""
        adapter = request.stream.adapter
        self._wait_for_last_batch(adapter)
        waiting = [r for r in self._waiting() if isinstance(r, LogitsRequest)]
        batch = [r for r in waiting if r.stream.adapter == adapter and self._joins_batch(r)]
        caches = [r.cache for r in batch if r.cache is not None]
        if not batch:
            return
        began_s = time.monotonic()
        try:
            logits = logits_of_batch(caches, [r.tokens for r in batch])
        except NonFiniteOutputError:  # another text of the batch may be the cause
            assert request.cache is not None
            self._reply_logits(request, request.cache.logits(request.tokens))
            return
        self._step_s, self._last_batch = time.monotonic() - began_s, batch
        self._batched += len(batch) > 1
        self._batched_tokens += len(batch) if len(batch) > 1 else 0
        for member, row in zip(batch, logits, strict=True):
            self._reply_logits(member, row[None])

    def _wait_for_last_batch(self, adapter: str) -> None:
        """Wait for the texts of the last batch that have this adapter, which usually return soon. Do not wait
        for those of this thread, which generates them one after the other."""
        stepper = self._stepper
        assert stepper is not None
        last = [r for r in self._last_batch if r.stream.adapter == adapter]
        due = {r.stream for r in last if r.thread != stepper.thread and not r.stream.ended}
        end_s = time.monotonic() + WAIT_SHARE * self._step_s
        while (left_s := end_s - time.monotonic()) > 0:
            if due <= {r.stream for r in self._requests if isinstance(r, LogitsRequest)}:
                return
            stepper.wait(left_s)

    def _reply_logits(self, request: LogitsRequest, logits: Array) -> None:
        if request.stream.is_new and request.cache is not None:
            computed = request.cache.computed - request.computed
            request.stream.cached_tokens = max(0, len(request.tokens) - computed)
        self._reply(request, logits)

    def _reply(self, request: ScheduledCall, result: Any = None, error: Exception | None = None) -> None:
        with self._lock:
            if not request.done:
                request.result, request.error, request.done = result, error, True
            self._requests = [other for other in self._requests if other is not request]
            request.wake()

    # --- between two engine steps ------------------------------------------------------------------------

    def propose(self, stream: TextStream, tokens: list[int], limit: int) -> list[int]:
        """Return the draft's proposed tokens; none once the scheduler is closed."""
        usable = not (self.closed or self.lost)
        return self.run(lambda: self.decoder.propose(stream, tokens, limit)) if usable else []

    def keep(self, tokens: list[int]) -> None:
        """Save the cache of a text's beginning to disk, if it is still loaded and not saved yet."""
        self.run(lambda: self.decoder.keep(tokens))

    def facts(self) -> dict[str, Json]:
        """Return facts of the loaded decoder, of its caches and of the batches."""
        batches = {"on": self.decoder.batches, "steps": self._batched, "tokens": self._batched_tokens}
        return self.run(lambda: {**self.decoder.facts(), "together": batches})

    # --- its end -----------------------------------------------------------------------------------------

    def forked(self, lost: bool) -> None:
        """Replace the locks in a forked process.

        Args:
            lost: Whether the engine's threads stayed in the parent; then no text can be generated here.
        """
        stepper = self._stepper
        self.lost = lost or (stepper is not None and stepper.present.locked())
        self._lock, self._requests, self._stepper, self._last_batch = RLock(), [], None, []
        if self.lost:
            self.decoder.pool = None

    def close(self) -> None:
        """Free the decoder. Closing twice is fine."""
        self.closed = True
        if not self.lost:
            self.run(self.decoder.close)

    def unusable(self) -> UsageError:
        """Return the error of a closed session, or one whose engine's threads stayed in another process."""
        if not self.lost:
            return UsageError("the text session is closed; open a new one to generate")
        return UsageError(
            "the text session was opened before os.fork(), and its threads stayed in the parent process: open"
            " one in each process, after the fork, or begin processes with multiprocessing's 'spawn'"
        )
