"""Served version of a language model: a text session, and its texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import NoVariantError, UsageError
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.text_metrics import COUNTS
from edgekit.generate.device.text_session import TextSession
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.traces.traces import about_run
from edgekit.serve.request_traces import RequestTrace
from edgekit.serve.served_model import Paths, ServeOptions
from edgekit.serve.text_queue import TextQueue
from edgekit.tensor_spec import Json, Signature


class ServedText(TextQueue):
    """Version of a language model.

    Attributes:
        retired: Whether it closes after its last request.

    Raises:
        EdgeKitError: ``TextSession`` fails; UsageError: two bundles were given.
    """

    schedule = None
    """Cards of language models have no schedule."""
    shapes = (Signature((), ()),)
    """The protocol does not have its texts."""

    def __init__(
        self, name: str, version: str, paths: Paths, options: ServeOptions, *, probe: bool = False
    ) -> None:
        if len(paths) > 1:
            raise UsageError(f"{paths[1]}: language models do not take a second bundle for batches")
        super().__init__(name, options)
        self.version, self.users, self.retired = version, 0, False
        self.session = _opened(paths[0], options, probe)
        self.metrics = _TextMetrics(self.session)

    @property
    def state(self) -> str:
        """Return ``ready``, or ``closed``."""
        return "closed" if self.closed else "ready"

    def check(self) -> None:
        """Check a candidate: it generates a token.

        Raises:
            EdgeKitError: no variant works.
        """
        self.session.generate("a", max_tokens=1).text()

    def generated(self, result: Any, waited_s: float) -> None:
        """Count a text."""
        self.metrics.generated(result, waited_s)

    def failed(self, problem: BaseException | None) -> None:
        """Count a text that failed, or that did not begin in time (None)."""
        if problem is None:
            self.metrics.answered("refused")
        elif not isinstance(problem, UsageError):
            self.metrics.answered("failed")

    def changes(self) -> Sequence[Fallback]:
        """Return the last changes of the variant."""
        return self.session.history

    def trace(
        self,
        trace: RequestTrace,
        result: GeneratedText,
        begun_s: tuple[float, float],
        fallbacks: Sequence[Fallback],
    ) -> None:
        """Record the spans of a text: up to its first token, and the others."""
        about: dict[str, Any] = about_run(self.session.active)
        about["prompt_tokens"], about["tokens"] = result.prompt_tokens, result.tokens
        asked_s, there_s = begun_s
        first_s = max(there_s, asked_s + result.first_token_ms / 1000)
        trace.part("first_token", there_s, first_s, about, fallbacks)
        trace.part("tokens", first_s, max(first_s, time.monotonic()), about)

    def close(self) -> None:
        """End all texts and free the engine."""
        self.end_texts()
        bundle = self.session.bundle
        self.session.close()
        if bundle is not None:
            bundle.close()


def _opened(path: Path, options: ServeOptions, probe: bool) -> TextSession:
    """Open a session with as many conversations as the options ask for, or as fit into memory."""
    bundle = Bundle.open(path)
    count = options.conversations
    try:
        while True:
            try:
                return TextSession(
                    bundle,
                    engine=options.engine,
                    threads=options.threads,
                    probe=probe,
                    context=options.context,
                    conversations=count,
                )
            except NoVariantError:
                if count == 1:
                    raise
                count //= 2
    except BaseException:
        bundle.close()
        raise


class _TextMetrics(Metrics):
    def __init__(self, session: TextSession) -> None:
        super().__init__(session)  # type: ignore[arg-type]  # reads what every session has
        self._tokens = dict.fromkeys(COUNTS, 0)

    def generated(self, result: GeneratedText, waited_s: float) -> None:
        first_s = result.first_token_ms / 1000
        self.took({"wait": waited_s, "first_token": first_s, "tokens": result.total_ms / 1000 - first_s})
        self.answered("cancelled" if result.reason == "cancelled" else "ok")
        with self._lock:
            for name in COUNTS:
                self._tokens[name] += getattr(result, name)

    def snapshot(self) -> dict[str, Json]:
        metrics = super().snapshot()
        with self._lock:
            return {**metrics, "texts": dict(self._tokens)}
