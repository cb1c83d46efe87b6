"""The models of a server, by name and version: which are loaded, which one answers, and what they take.

A version that is loaded beside one that answers is a candidate, by the rules of a device's store: it is
probed and its golden vectors are run first; it then answers for the model, is watched for its health window,
and the version before it answers again if more of its answers are bad.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import EdgeKitError, UsageError, reason_of
from edgekit.runtime.store.candidate_check import check_candidate
from edgekit.runtime.store.health import Counts, HealthWindow, Watched
from edgekit.serve.bundle_names import Key, bundles_by_name
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.served_model import Paths, ServedModel, ServeOptions
from edgekit.system.resident_memory import resident_bytes
from edgekit.tensors import Json

LOOKED_S = 0.5
"""A candidate's health is judged at most this often."""
READY, LOADING, UNAVAILABLE = "READY", "LOADING", "UNAVAILABLE"
"""States, as Triton's model repository extension names them."""


class _Entry:
    """A version that is known, loaded or not."""

    def __init__(self, paths: Paths, pinned: bool) -> None:
        self.paths, self.pinned = paths, pinned
        self.state, self.reason = UNAVAILABLE, ""
        self.model: ServedModel | None = None
        self.left_by_memory = False
        self.size_bytes = sum(path.stat().st_size for path in paths if path.exists())
        self.used_s = 0.0


class _Candidate:
    """A version that is watched, and the one before it."""

    def __init__(self, version: str, before: str, now_s: float) -> None:
        self.version, self.before, self.looked_s = version, before, now_s
        self.watched = Watched(now_s)


class ServedModels:
    """All models of a server. Thread-safe.

    Args:
        bundles: By name and version, see :func:`bundles_by_name`; of each all versions are loaded.
        options: How they are run.
        repository: Folder of more bundles, whose newest versions are loaded, and which :meth:`load` looks
            into; None: nothing can be loaded later.
        memory_bytes: Most that models may take; those that were not asked for the longest time leave, and are
            loaded again when they are asked for. None: no limit.
        window: Of a candidate.
        clock: Monotonic, in seconds.

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
        self.options, self._repository, self._memory_bytes = options, repository, memory_bytes
        self._window, self._clock = window or HealthWindow(), clock
        self._lock, self._loads = threading.RLock(), threading.Lock()
        self._entries = {key: _Entry(paths, True) for key, paths in bundles.items()}
        self._current: dict[str, str] = {}
        self._candidates: dict[str, _Candidate] = {}
        self._given_up: set[Key] = set()
        self._threads: list[threading.Thread] = []
        self._scan()
        try:
            for key, entry in list(self._entries.items()):
                newest = max((v for n, v in self._entries if n == key[0]), key=int)
                if entry.pinned or key[1] == newest:
                    self._fill(key, candidate=False)
                if key[1] == newest:
                    self._current[key[0]] = newest
        except BaseException:
            self.close()
            raise
        if repository is not None and not self._entries:
            self.close()
            raise UsageError(f"there is no bundle in {repository}; put NAME.edgekit there")

    # --- reading -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ServedModel]:
        with self._lock:
            return iter([entry.model for entry in self._entries.values() if entry.model is not None])

    def versions(self, name: str) -> list[str]:
        """The versions of a model that can answer, the newest last."""
        with self._lock:
            found = [v for (n, v), e in self._entries.items() if n == name and (e.model or e.left_by_memory)]
        return sorted(found, key=int)

    def index(self) -> list[dict[str, Json]]:
        """Every version that is known, as Triton's model repository extension has them."""
        with self._lock:
            return [
                {"name": name, "version": version, "state": entry.state, "reason": self._shown(name, version)}
                for (name, version), entry in sorted(self._entries.items())
            ]

    def _shown(self, name: str, version: str) -> str:
        candidate = self._candidates.get(name)
        if candidate is not None and candidate.version == version:
            return f"candidate; {candidate.before} answers again if it does worse"
        return self._entries[name, version].reason

    def resolve(self, name: str, version: str | None) -> Key:
        """The version that is asked for; None: the one that answers for the model.

        Raises:
            RequestError: 404: there is none, or it is not loaded.
        """
        with self._lock:
            quick = (name, str(self._current.get(name) if version is None else version))
            if (entry := self._entries.get(quick)) and (entry.model or entry.left_by_memory):
                return quick
            known = sorted({n for n, _ in self._entries})
            if name not in known:
                raise RequestError(f"there is no model {name[:64]!r}; there are {', '.join(known)}", 404)
            versions = self.versions(name)
            found = self._current.get(name) if version is None else version
            if found in versions:
                return name, str(found)
            if found is None or (name, found) in self._entries:
                what = name if found is None else f"{name} {found}"
                raise RequestError(f"{what} is not loaded", 404)
            raise RequestError(f"{name} has no version {found[:32]!r}; it has {', '.join(versions)}", 404)

    def find(self, name: str, version: str | None) -> ServedModel:
        """A version of a model; None: the one that answers.

        Raises:
            RequestError: 404: there is none; 503: it is not loaded now.
        """
        key = self.resolve(name, version)
        with self._lock:
            model = self._entries[key].model
        if model is None:
            raise RequestError(f"{name} {key[1]} is not loaded now", 503, 1)
        return model

    def is_out(self, key: Key) -> bool:
        """Whether a version left by memory: :meth:`load_again` brings it back."""
        with self._lock:
            return self._entries[key].model is None and self._entries[key].left_by_memory

    @contextmanager
    def used(self, key: Key) -> Iterator[ServedModel]:
        """A version around a request: it is not closed before the end of it.

        Raises:
            RequestError: 503: it is not loaded any more.
        """
        with self._lock:
            entry = self._entries[key]
            model = entry.model
            if model is None:
                raise RequestError(f"{key[0]} {key[1]} is not loaded now", 503, 1)
            model.users += 1
            entry.used_s = self._clock()
        try:
            yield model
        finally:
            with self._lock:
                model.users -= 1
                last = model.retired and model.users == 0
            if last:
                self._close(model)
            self._observe(key)

    # --- loading and unloading ---------------------------------------------------------------------------

    def load(self, name: str, version: str | None = None) -> str:
        """Load a version from the repository, or again; it answers for the model from now on.

        Args:
            name: The model.
            version: None: the newest that was not given up.

        Returns:
            The version.

        Raises:
            RequestError: 404: there is none; 409: it can't be loaded; what answers is as before.
        """
        self._scan()
        with self._loads:
            with self._lock:
                versions = [v for n, v in self._entries if n == name]
                good = [v for v in versions if (name, v) not in self._given_up] or versions
                if version is None and good:
                    version = max(good, key=int)
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
            self._candidates[name] = _Candidate(version, before, self._clock())

    def unload(self, name: str, version: str | None = None) -> None:
        """Unload a version, or all of a model; requests that run are answered.

        Raises:
            RequestError: 404: there is none.
        """
        with self._lock:
            keys = [key for key in self._entries if key[0] == name and version in (None, key[1])]
            if not keys:
                raise RequestError(f"there is no {name[:64]} {(version or '')[:32]}".strip(), 404)
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

    def _fill(self, key: Key, *, candidate: bool) -> None:
        """Open a version. One at a time."""
        entry = self._entries[key]
        with self._lock:
            entry.state, entry.reason, entry.left_by_memory = LOADING, "", False
        self._make_room(entry.size_bytes, key)
        before_bytes = resident_bytes()
        try:
            model = ServedModel(*key, entry.paths, self.options, probe=candidate)
            if candidate:
                try:
                    check_candidate(model.session)
                except BaseException:
                    model.close()
                    raise
        except BaseException as problem:
            with self._lock:
                entry.state = UNAVAILABLE
                entry.reason = reason_of(problem) if isinstance(problem, Exception) else "interrupted"
            raise
        with self._lock:
            entry.size_bytes = max(entry.size_bytes, resident_bytes() - before_bytes)
            entry.model, entry.state, entry.used_s = model, READY, self._clock()
        self._make_room(0, key)

    def _make_room(self, more_bytes: int, but: Key) -> None:
        """Let those leave that were not asked for the longest time; not those that run or are watched."""
        if self._memory_bytes is None:
            return
        with self._lock:
            watched = {(n, v) for n, c in self._candidates.items() for v in (c.version, c.before)}
            idle = sorted(
                (entry.used_s, key)
                for key, entry in self._entries.items()
                if entry.model is not None and not entry.model.users and key != but and key not in watched
            )
            for _, key in idle:
                taken = sum(entry.size_bytes for entry in self._entries.values() if entry.model is not None)
                if taken + more_bytes <= self._memory_bytes:
                    return
                self._retire(key, "left by memory")
                self._entries[key].left_by_memory = True

    def _retire(self, key: Key, reason: str) -> None:
        """Take a version out; it is closed when its last request has its answer. Called with the lock."""
        entry = self._entries[key]
        model, entry.model = entry.model, None
        entry.state, entry.reason, entry.left_by_memory = UNAVAILABLE, reason, False
        if model is not None:
            model.retired = True
            if model.users == 0:
                self._close(model)

    def _close(self, model: ServedModel) -> None:
        """In a thread: freeing an engine takes time, and the event loop may be the caller."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            thread = threading.Thread(target=model.close, name="edgekit-unload", daemon=True)
            thread.start()
            self._threads.append(thread)

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
            verdict, why = candidate.watched.judge(counts, (old.answers, old.bad), self._window, now_s)
            if verdict == "candidate":
                return
            del self._candidates[key[0]]
            if verdict == "committed":
                if before is not None and not before.pinned:
                    self._retire((key[0], candidate.before), f"{key[1]} was committed")
                return
            self._current[key[0]] = candidate.before
            self._given_up.add(key)
            self._retire(key, why)
        print(
            f"{key[0]} {key[1]} is given up, {candidate.before} answers: {why}", file=sys.stderr, flush=True
        )

    def _scan(self) -> None:
        """Take new bundles of the repository."""
        if self._repository is None:
            return
        with self._lock:
            known = {path for entry in self._entries.values() for path in entry.paths}
        fresh = [str(path) for path in sorted(self._repository.glob("*.edgekit")) if path not in known]
        whole: list[str] = []
        for each in fresh:  # one that is damaged, or still being copied, is left out
            try:
                bundles_by_name([*whole, each])
                whole.append(each)
            except EdgeKitError as problem:
                print(f"{each} is left out: {problem}", file=sys.stderr, flush=True)
        with self._lock:
            for key, paths in bundles_by_name(whole).items():
                self._entries.setdefault(key, _Entry(paths, False))

    def close(self) -> None:
        """Close every model."""
        with self._lock:
            models = [entry.model for entry in self._entries.values() if entry.model is not None]
            for entry in self._entries.values():
                entry.model = None
            threads = list(self._threads)
        for model in models:
            model.close()
        for thread in threads:
            thread.join()
