"""Scheduler of a text session: which text the engine computes next, on which decoder and cache.

One thread runs the engine for all texts of a session. It begins with a request, and ends after a second
without one (docs/decisions/0050). Callers put requests into its queue and wait for their results, so an
interrupt of a caller never reaches the engine or the caches: its request is dropped, or its result unused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from edgekit.errors import NonFiniteOutputError, UsageError
from edgekit.generate.device.cached_decoder import PART_TOKENS, CachedDecoder, logits_of_batch
from edgekit.generate.device.loaded_decoder import LoadedDecoder
from edgekit.system.interrupts import Background, in_engine
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.generate.device.text_stream import TextStream

T = TypeVar("T")

IDLE_S = 1.0
"""Seconds without a request after which the thread ends."""
SHARED_PART_TOKENS = 32
"""Tokens of a prompt that one engine step reads while other texts are generated, which wait for the step."""
WAIT_SHARE = 0.25
"""Share of the last batch's time that the next batch waits for the texts of the last one. Sampling a token
takes far less; a slow reader delays the others this once."""


class ScheduledCall:
    """A function that a caller wants to have run between two engine steps, and its result.

    Attributes:
        left: Whether the caller was interrupted, and no longer waits.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.thread, self.context = get_ident(), copy_context()  # log messages have the caller's trace
        self.result: Any = None
        self.error: Exception | None = None
        self.done = self.left = False
        self._ended = Lock()
        self._ended.acquire()

    def wait(self) -> None:
        """Wait until ``reply``. A plain lock: an interrupt cannot leave it in another state."""
        self._ended.acquire()

    def reply(self, result: Any = None, error: Exception | None = None) -> None:
        """Set the result and wake the caller."""
        if not self.done:
            self.result, self.error, self.done = result, error, True
            self._ended.release()


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
        decoder: The decoder of all texts; used in the scheduler's thread only.
        lost: Whether the engine's threads stayed in the parent of this process.
    """

    def __init__(self, decoder: LoadedDecoder) -> None:
        self.decoder = decoder
        self.closed = self.lost = False
        self._inbox: SimpleQueue[ScheduledCall] = SimpleQueue()
        self._requests: list[ScheduledCall] = []  # taken from the inbox, the least recently served first
        self._serving = self._steps = False
        self._alone = Lock()
        self._last_batch: list[LogitsRequest] = []
        self._step_s = 0.0
        self._batched = self._batched_tokens = 0

    # --- for callers -------------------------------------------------------------------------------------

    def logits(self, stream: TextStream, tokens: list[int], rows: int) -> Array | None:
        """Return the logits after the last ``rows`` tokens of a text; None if the stream is to stop.

        Raises:
            EngineError: no variant works, or ``strict``, and one failed.
            UsageError: the scheduler is closed.
        """
        logits: Array | None = self._result_of(LogitsRequest(stream, tokens, rows))
        return logits

    def run(self, call: Callable[[], T]) -> T:
        """Return the result of a function that runs between two engine steps."""
        result: T = self._result_of(ScheduledCall(call))
        return result

    def _result_of(self, request: ScheduledCall) -> Any:
        self._inbox.put(request)  # atomic: a signal handler of the app may call the session meanwhile
        try:
            if not self._serving:
                Background(self._serve, "edgekit-texts")
            request.wait()
        except BaseException:  # an interrupt
            request.left = True
            raise
        result, error, request.result, request.error = request.result, request.error, None, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return result

    # --- for its thread ----------------------------------------------------------------------------------

    def _serve(self) -> None:
        with self._alone:  # a second thread, which callers began at the same time, waits and finds no request
            self._serving = True
            while self._serving:
                try:
                    self._requests.append(self._inbox.get(timeout=IDLE_S))
                except Empty:
                    self._serving = False  # a caller that sees this begins another thread
                    self._serving = not self._inbox.empty()
                with in_engine():
                    while waiting := self._waiting():
                        self._step(waiting)

    def _step(self, waiting: list[ScheduledCall]) -> None:
        """Serve the request that was served least recently: run its function, read a part of its prompt, or
        compute its next token in one batch with those of other texts."""
        self._steps = True
        for request in waiting:
            try:
                if request.context.run(self._serves, request):
                    break
            except Exception as problem:
                self._reply(request, error=problem)
                break
        self._steps = False

    def _serves(self, request: ScheduledCall) -> bool:
        if not isinstance(request, LogitsRequest):
            self._reply(request, request.call())
        elif self._admit(request):
            self._compute(request)
        else:
            return False
        return True

    def _waiting(self) -> list[ScheduledCall]:
        """Return the requests to serve. Drop those whose caller was interrupted; reply to those whose text is
        to stop."""
        self._take_inbox()
        self._requests = [request for request in self._requests if not (request.left or request.done)]
        for request in list(self._requests):
            if isinstance(request, LogitsRequest) and request.stream.stops:
                self._reply(request, None)
        return list(self._requests)

    def _take_inbox(self) -> None:
        while not self._inbox.empty():
            self._requests.append(self._inbox.get())

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
            rows = request.cache.read(request.tokens, request.rows, self._part_tokens(request))
        except UsageError:
            raise
        except Exception as problem:  # an engine may throw anything
            self.decoder.fall_back(problem, request.cache)
            return
        if rows is not None:
            self._reply_logits(request, rows)
            return
        self._take_inbox()
        self._requests.remove(request)  # others first, also those that came during this part
        self._requests.append(request)

    def _part_tokens(self, request: LogitsRequest) -> int:
        """Return the number of a prompt's tokens to read in one step: fewer if other texts wait for it."""
        pool = self.decoder.pool
        shared = len(self._requests) > 1 or (pool is not None and pool.is_used_by_another(request.stream))
        return SHARED_PART_TOKENS if shared else PART_TOKENS

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
        for a thread that waits itself, because it generates several texts one after the other."""
        end_s = time.monotonic() + WAIT_SHARE * self._step_s
        while (left_s := end_s - time.monotonic()) > 0:
            waiting = {r.thread for r in self._requests}
            last = [r for r in self._last_batch if r.stream.adapter == adapter and not r.stream.ended]
            if all(r.thread in waiting for r in last):
                return
            with suppress(Empty):
                self._requests.append(self._inbox.get(timeout=left_s))

    def _reply_logits(self, request: LogitsRequest, logits: Array) -> None:
        if request.stream.is_new and request.cache is not None:
            computed = request.cache.computed - request.computed
            request.stream.cached_tokens = max(0, len(request.tokens) - computed)
        self._reply(request, logits)

    def _reply(self, request: ScheduledCall, result: Any = None, error: Exception | None = None) -> None:
        self._requests = [other for other in self._requests if other is not request]
        self._steps = False  # the caller may fork as soon as it has its result
        request.reply(result, error)

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
        """Begin anew in a forked process, which has no thread of the scheduler.

        Args:
            lost: Whether the engine's threads stayed in the parent; then no text can be generated here.
        """
        self.lost = lost or self._steps
        waiting, self._requests, self._last_batch = self._requests, [], []
        self._inbox, self._alone, self._serving = SimpleQueue(), Lock(), False
        for request in waiting:  # of this thread, if a signal handler forked
            request.reply(error=self.unusable())
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
