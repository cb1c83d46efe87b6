"""The models of a server, by name and version: which are loaded, which one answers, and what they take.

A version that is loaded beside one that answers is a candidate, by the rules of a device's store: it is
probed and its golden vectors are run first; it then answers for the model, is watched for its health window,
and the version before it answers again if more of its answers are bad.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from edgekit.errors import EdgeKitError, UsageError
from edgekit.runtime.metrics.labelled_counts import Counts
from edgekit.runtime.store.health import HealthWindow
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.model_entries import Candidate, Key
from edgekit.serve.model_table import ModelTable
from edgekit.serve.served_model import Paths, ServeOptions

LOOKED_S = 0.5
"""A candidate's health is judged at most this often."""


class ServedModels(ModelTable):
    """All models of a server. Thread-safe.

    Args:
        bundles: Bundles by name and version, from :func:`bundles_by_name`; all versions are loaded.
        repository: Folder of more bundles, whose newest versions are loaded, and which :meth:`load` looks
            into. None means nothing can be loaded later.
        memory_bytes: Maximum memory of models in bytes. The least recently used ones are evicted, and loaded
            again on request. None means no limit.

    Raises:
        As ``ServedModel``; what was loaded is closed.
    """

    def __init__(
        self,
        bundles: Mapping[Key, Paths],
        options: ServeOptions,
        *,
        repository: Path | None = None,
        memory_bytes: int | None = None,
        window: HealthWindow | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window = window or HealthWindow()
        self._given_up: set[Key] = set()
        super().__init__(bundles, options, repository, memory_bytes, clock)
        try:
            self._load_newest()
        except BaseException:
            self.close()
            raise
        if repository is not None and not self._entries:
            self.close()
            raise UsageError(f"there is no bundle in {repository}; put NAME.edgekit there")

    def _load_newest(self) -> None:
        for key, entry in list(self._entries.items()):
            newest = max((v for n, v in self._entries if n == key[0]), key=int)
            if entry.pinned or key[1] == newest:
                self._fill(key, candidate=False)
            if key[1] == newest:
                self._current[key[0]] = newest

    # --- loading and unloading ---------------------------------------------------------------------------

    def load(self, name: str, version: str | None = None) -> str:
        """Load a version from the repository, or again. It becomes the model's current version.

        Returns:
            The version.

        Raises:
            RequestError: 404: it does not exist; 409: it cannot be loaded. The current version stays.
        """
        self._scan()
        with self._loads:
            with self._lock:
                versions = [v for n, v in self._entries if n == name]
                usable = [v for v in versions if (name, v) not in self._given_up] or versions
                if version is None and usable:
                    version = max(usable, key=int)
                if version is None or version not in versions:
                    raise RequestError(
                        f"there is no bundle of {name[:64]} {(version or '')[:32]}".strip(), 404
                    )
                key, before = (name, version), self._current.get(name)
                if version == before and self._entries[key].model is not None:
                    return version
            try:
                if self._entries[key].model is None:
                    self._fill(key, candidate=before is not None)
            except (EdgeKitError, OSError, MemoryError) as problem:
                print(f"error: {name} {version} can't be loaded: {problem}", file=sys.stderr, flush=True)
                raise RequestError(
                    f"{name} {version} can't be loaded; the server's log says why", 409
                ) from None
            with self._lock:
                self._promote(name, version, before)
        return version

    def _promote(self, name: str, version: str, before: str | None) -> None:
        self._given_up.discard((name, version))
        watched = self._candidates.pop(name, None)
        if watched is not None:  # it did not have the time to show what it can
            if before is not None and before != version:
                self._retire((name, before), "replaced before it was committed")
            before = watched.before
        self._current[name] = version
        if before is not None and before != version and self._entries[name, before].model is not None:
            self._candidates[name] = Candidate(version, before, self._clock())

    def unload(self, name: str, version: str | None = None) -> None:
        """Unload a version, or all of a model; requests that run are answered.

        Raises:
            RequestError: 404: there is none.
        """
        with self._lock:
            keys = [key for key in self._entries if key[0] == name and version in (None, key[1])]
            if not keys:
                raise RequestError(f"there is no model {name[:64]} {(version or '')[:32]}".strip(), 404)
            for key in keys:
                self._retire(key, "unloaded")
            left = self.versions(name)
            self._candidates.pop(name, None)
            if left:
                self._current[name] = self._current[name] if self._current[name] in left else left[-1]
            else:
                self._current.pop(name, None)

    def load_again(self, key: Key) -> None:
        """Load a version that left by memory.

        Raises:
            RequestError: 503: it can't be loaded.
        """
        with self._loads:
            if not self.is_out(key):
                return
            try:
                self._fill(key, candidate=False)
            except (EdgeKitError, OSError, MemoryError) as problem:
                print(f"error: {' '.join(key)} can't be loaded: {problem}", file=sys.stderr, flush=True)
                raise RequestError(
                    f"{' '.join(key)} can't be loaded; the server's log says why", 503, 10
                ) from None

    def keep_hours(self) -> None:
        """Load again what left by memory and is needed now by its card, as far as there is room beside the
        others that are."""
        with self._lock:
            due, used_bytes = [], 0
            for key, entry in self._entries.items():
                if entry.left_by_memory and self._is_scheduled(entry):
                    due.append(key)
                elif entry.model is not None and (entry.model.users or self._is_scheduled(entry)):
                    used_bytes += entry.size_bytes
        for key in due:
            used_bytes += self._entries[key].size_bytes
            if self._memory_bytes is None or used_bytes <= self._memory_bytes:
                with suppress(RequestError):  # it was told
                    self.load_again(key)

    # --- candidates --------------------------------------------------------------------------------------

    def _observe(self, key: Key) -> None:
        candidate = self._candidates.get(key[0])
        if candidate is None or candidate.version != key[1]:
            return
        now_s = self._clock()
        with self._lock:
            model, before = self._entries[key].model, self._entries.get((key[0], candidate.before))
            if self._candidates.get(key[0]) is not candidate or model is None:
                return
            counts = model.metrics.counts
            if now_s < candidate.looked_s + LOOKED_S and not counts.failed:
                return
            candidate.looked_s = now_s
            old = Counts() if before is None or before.model is None else before.model.metrics.counts
            verdict, reason = candidate.watched.judge(counts, old, self._window, now_s)
            if verdict == "candidate":
                return
            del self._candidates[key[0]]
            if verdict == "committed":
                if before is not None and not before.pinned:
                    self._retire((key[0], candidate.before), f"{key[1]} was committed")
            else:
                self._current[key[0]] = candidate.before
                self._given_up.add(key)
                self._retire(key, reason)
                message = f"{key[0]} {key[1]} is given up, {candidate.before} answers: {reason}"
                print(message, file=sys.stderr, flush=True)
