"""The versions of models in one process: which are loaded, who uses them, and the memory they take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from edgekit.bundle.bundle import Bundle
from edgekit.errors import reason_of
from edgekit.processing.generation import is_generation
from edgekit.runtime.store.candidate_check import check_candidate
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.model_entries import LOADING, READY, UNAVAILABLE, Candidate, Entry, Key, scanned
from edgekit.serve.served_model import Paths, ServedModel, ServeOptions
from edgekit.serve.served_parts import ServedSpeech, ServedText2Text
from edgekit.serve.served_text import ServedText
from edgekit.system.memory import resident_bytes
from edgekit.tasks.text2text import TASK as TEXT2TEXT
from edgekit.tasks.transcribe import TASK as TRANSCRIBE
from edgekit.tensor_spec import Json

AHEAD = timedelta(minutes=5)
"""Time by which a model is loaded before its hours."""


class ModelTable:
    """The versions of models in one process. Thread-safe.

    Attributes:
        calendar: Returns the local time, to which the schedules of cards refer.
    """

    def __init__(
        self,
        bundles: Mapping[Key, Paths],
        options: ServeOptions,
        repository: Path | None,
        memory_bytes: int | None,
        clock: Callable[[], float],
    ) -> None:
        self.options, self._repository, self._memory_bytes = options, repository, memory_bytes
        self._clock = clock
        self.calendar: Callable[[], datetime] = datetime.now
        self._lock, self._loads = threading.RLock(), threading.Lock()
        self._entries = {key: Entry(paths, True) for key, paths in bundles.items()}
        self._current: dict[str, str] = {}
        self._candidates: dict[str, Candidate] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._scan()

    def __iter__(self) -> Iterator[ServedModel | ServedText]:
        with self._lock:
            return iter([entry.model for entry in self._entries.values() if entry.model is not None])

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model that can answer, the newest last."""
        with self._lock:
            available = [v for (n, v), e in self._entries.items() if n == name and e.answers]
        return sorted(available, key=int)

    def index(self) -> list[dict[str, Json]]:
        """Return all known versions in the form of Triton's model repository extension."""
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

    def current(self) -> list[tuple[str, ServedModel | ServedText | None]]:
        """Return the names of the models that respond, each with its current version, or
        None if it is evicted."""
        with self._lock:
            pairs = [(name, self._entries[name, version]) for name, version in sorted(self._current.items())]
            return [(name, entry.model) for name, entry in pairs if entry.answers]

    def resolve(self, name: str, version: str | None) -> Key:
        """Return the requested version, or for None the model's current version.

        Raises:
            RequestError: 404: it does not exist, or is not loaded.
        """
        with self._lock:
            quick = (name, str(self._current.get(name) if version is None else version))
            entry = self._entries.get(quick)
            if entry is not None and entry.answers:
                return quick
            names = sorted({n for n, _ in self._entries})
            if name not in names:
                raise RequestError(
                    f"there is no model {name[:64]!r}; this server has {', '.join(names)}", 404
                )
            versions = self.versions(name)
            resolved = self._current.get(name) if version is None else version
            if resolved in versions:
                return name, str(resolved)
            if resolved is None or (name, resolved) in self._entries:
                label = name if resolved is None else f"{name} {resolved}"
                raise RequestError(f"{label} is not loaded", 404)
            raise RequestError(f"{name} has no version {resolved[:32]!r}; it has {', '.join(versions)}", 404)

    def find(self, name: str, version: str | None) -> ServedModel:
        """Return a version of a model that runs on arrays, or for None its current version.

        Raises:
            RequestError: 404: it does not exist; 503: it is not loaded now; 400: it is a language model.
        """
        return _on_arrays(self.served(name, version))

    def served(self, name: str, version: str | None) -> ServedModel | ServedText:
        """Return a version of any model, or for None its current version.

        Raises:
            RequestError: 404: it does not exist; 503: it is not loaded now.
        """
        key = self.resolve(name, version)
        with self._lock:
            model = self._entries[key].model
        if model is None:
            raise RequestError(f"{name} {key[1]} is not loaded now", 503, 1)
        return model

    def is_out(self, key: Key) -> bool:
        """Return whether a version was evicted for memory. :meth:`load_again` loads it again."""
        with self._lock:
            return self._entries[key].model is None and self._entries[key].left_by_memory

    @contextmanager
    def used(self, key: Key) -> Iterator[ServedModel]:
        """Hold a version that runs on arrays open during a request.

        Raises:
            RequestError: 503: it is no longer loaded; 400: it is a language model.
        """
        with self.hold(key) as model:
            yield _on_arrays(model)

    @contextmanager
    def hold(self, key: Key) -> Iterator[ServedModel | ServedText]:
        """Hold a version open during a request.

        Raises:
            RequestError: 503: it is no longer loaded.
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

    def _observe(self, key: Key) -> None:
        """Handle the end of a version's request (hook for subclasses)."""

    def _fill(self, key: Key, *, candidate: bool) -> None:
        entry = self._entries[key]
        with self._lock:
            if self._closed:
                raise RequestError("the server is shutting down", 503, 1)
            entry.state, entry.reason, entry.left_by_memory = LOADING, "", False
        self._make_room(entry.size_bytes, key)
        before_bytes = resident_bytes()
        try:
            model = _served_class(entry.paths[0])(*key, entry.paths, self.options, probe=candidate)
            if candidate:
                try:
                    if isinstance(model, ServedText):
                        model.check()
                    else:
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
            entry.schedule = model.schedule
        self._make_room(0, key)

    def _make_room(self, more_bytes: int, requested: Key) -> None:
        """Evict the least recently used versions, and scheduled ones last. Never evict versions that run or
        are under observation."""
        if self._memory_bytes is None:
            return
        with self._lock:
            watched = {(n, v) for n, c in self._candidates.items() for v in (c.version, c.before)}
            idle = sorted(
                (self._is_scheduled(entry), entry.used_s, key)
                for key, entry in self._entries.items()
                if entry.model is not None
                and not entry.model.users
                and key != requested
                and key not in watched
            )
            for _, _, key in idle:
                in_use = sum(entry.size_bytes for entry in self._entries.values() if entry.model is not None)
                if in_use + more_bytes <= self._memory_bytes:
                    return
                self._retire(key, "left by memory")
                self._entries[key].left_by_memory = True

    def _is_scheduled(self, entry: Entry) -> bool:
        schedule, now = entry.schedule, self.calendar()
        return schedule is not None and (schedule.covers(now) or schedule.covers(now + AHEAD))

    def _retire(self, key: Key, reason: str) -> None:
        """Retire a version, which closes after its last request. The caller holds the lock."""
        entry = self._entries[key]
        model, entry.model = entry.model, None
        entry.state, entry.reason, entry.left_by_memory = UNAVAILABLE, reason, False
        if model is not None:
            model.retired = True
            if model.users == 0:
                self._close(model)

    def _close(self, model: ServedModel | ServedText) -> None:
        """Close in a thread: freeing an engine takes time, and the event loop may be the caller."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            thread = threading.Thread(target=model.close, name="edgekit-unload", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _scan(self) -> None:
        if self._repository is None:
            return
        with self._lock:
            current_paths = {path for entry in self._entries.values() for path in entry.paths}
        paths_by_key = scanned(self._repository, current_paths)
        with self._lock:
            for key, paths in paths_by_key.items():
                self._entries.setdefault(key, Entry(paths, False))

    def close(self) -> None:
        """Close all models, including one that is being loaded. No model can be loaded afterwards."""
        with self._lock:
            self._closed = True
        with self._loads, self._lock:
            models = [entry.model for entry in self._entries.values() if entry.model is not None]
            for entry in self._entries.values():
                entry.model = None
            threads = list(self._threads)
        for model in models:
            model.close()
        for thread in threads:
            thread.join()


BY_TASK: Mapping[str, type[ServedModel]] = {TRANSCRIBE.kind: ServedSpeech, TEXT2TEXT.kind: ServedText2Text}
"""Task of a card -> class that serves such a model; others have ServedModel."""


def _served_class(path: Path) -> type[ServedModel] | type[ServedText]:
    """Return the class that serves a bundle.

    Raises:
        BundleError: it can't be opened.
    """
    with Bundle.open(path) as bundle:
        if is_generation(bundle.card):
            return ServedText
        task = bundle.card.get("task") if bundle.card else None
        return BY_TASK.get(task["kind"], ServedModel) if isinstance(task, dict) else ServedModel


def _on_arrays(model: ServedModel | ServedText) -> ServedModel:
    if isinstance(model, ServedText):
        raise RequestError(
            f"{model.name} is a language model, which does not run on arrays: use /v1/chat/completions or "
            "/v1/completions"
        )
    return model
