"""The models of a server, by name and version: a session each, with a queue and metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import model_version
from edgekit.errors import BusyError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.metrics import prometheus
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.remote.inference_protocol import DATATYPES
from edgekit.runtime.scheduling.batching import Batching
from edgekit.runtime.scheduling.request_queue import Requests
from edgekit.serve.inference_requests import DEFAULT_PRIORITY, Request, RequestError, body_limit_bytes

if TYPE_CHECKING:
    from concurrent.futures import Future

    from edgekit.tensors import Array

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Of a model in a URL."""
Paths = Sequence[Path]
"""Of a model's bundle, and of the one with a larger batch size, if there is one."""
QUEUE = 64
DEADLINE_MS = 1000.0


@dataclass(frozen=True)
class ServeOptions:
    """How models are run.

    Attributes:
        engine: As of a Session.
        threads: Of one run, of each model.
        deadline_ms: How long a request may take; a client may ask for less.
        queue: Most requests of a model that wait.
    """

    engine: str | None = None
    threads: int | None = None
    deadline_ms: float = DEADLINE_MS
    queue: int = QUEUE


class ServedModel:
    """One version of a model.

    Args:
        name: In URLs.
        version: Likewise.
        paths: Of the bundle, and of the same model with a larger batch size, if there is one. It is used if
            batches are faster, which is measured here, once per machine.
        options: How it is run.

    Raises:
        As ``Session``; UsageError: the protocol has no type for an input or an output, or the second bundle
        is not one of the same model.
    """

    def __init__(self, name: str, version: str, paths: Paths, options: ServeOptions) -> None:
        self.name, self.version, self.options = name, version, options
        self.many: Session | None = None
        self.session = Session(paths[0], engine=options.engine, threads=options.threads, warm=True)
        try:
            for spec in (*self.session.inputs, *self.session.outputs):
                if spec.dtype not in DATATYPES:
                    raise UsageError(f"{paths[0]}: {spec} can't be served: the protocol has no such type")
            self.batching = None
            if len(paths) > 1:
                self.many = Session(paths[1], engine=options.engine, threads=self.session.threads)
                self.batching = Batching(self.session, self.many)
                if not self.batching.pays:
                    self.many.close()
                    self.many = None
        except BaseException:
            if self.many is not None:
                self.many.close()
            self.session.close()
            raise
        self.metrics = Metrics(self.session)
        self.requests = Requests(
            self.session, options.queue, batching=self.batching, shed=True, metrics=self.metrics
        )
        self.limit_bytes = body_limit_bytes(self.session.inputs)

    def run(self, asked: Request) -> Future[dict[str, Array]]:
        """Queue a request.

        Raises:
            RequestError: 503: the queue is full, or too long for the deadline: refused at once, so that the
                client can go elsewhere.
        """
        deadline_ms = min(self.options.deadline_ms, asked.timeout_ms or math.inf)
        try:
            return self.requests.run_async(asked.feeds, deadline_ms, asked.priority or DEFAULT_PRIORITY)
        except BusyError as problem:
            raise self.overdue(problem) from None

    def overdue(self, problem: BusyError) -> RequestError:
        """What a client is told whose request was not run."""
        return RequestError(str(problem), 503, max(1, math.ceil(self.requests.expected_s())))

    def close(self) -> None:
        """Let the running request end, cancel those that wait, and free the engine."""
        self.requests.close()
        self.session.close()
        if self.many is not None:
            self.many.close()


class ServedModels:
    """All models of a server. Loaded at once; see :func:`bundles_by_name` for how they are named.

    Raises:
        As ``ServedModel``; what was loaded is closed.
    """

    def __init__(self, bundles: Mapping[tuple[str, str], Paths], options: ServeOptions) -> None:
        self._models: dict[tuple[str, str], ServedModel] = {}
        try:
            for (name, version), paths in bundles.items():
                self._models[name, version] = ServedModel(name, version, paths, options)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def versions(self, name: str) -> list[str]:
        """The versions of a model, the newest last."""
        return sorted((v for n, v in self._models if n == name), key=int)

    def find(self, name: str, version: str | None) -> ServedModel:
        """A version of a model; None: its newest.

        Raises:
            RequestError: 404: there is none.
        """
        versions = self.versions(name)
        if not versions:
            known = ", ".join(sorted({n for n, _ in self._models}))
            raise RequestError(f"there is no model {name[:64]!r}; there are {known}", 404)
        if version is not None and version not in versions:
            raise RequestError(f"{name} has no version {version[:32]!r}; it has {', '.join(versions)}", 404)
        return self._models[name, version or versions[-1]]

    def prometheus(self) -> str:
        """Metrics of all models in Prometheus' text format; each metric is declared once."""
        families: dict[str, list[str]] = {}
        for model in self._models.values():
            snapshot = {**model.metrics.snapshot(), "model": model.name, "version": model.version}
            family = ""
            for line in prometheus.text(snapshot).splitlines():
                if line.startswith("# HELP "):
                    family = line.split(" ", 3)[2]
                lines = families.setdefault(family, [])
                if not line.startswith("# ") or line not in lines:
                    lines.append(line)
        return "\n".join(line for lines in families.values() for line in lines) + "\n"

    def close(self) -> None:
        """Close every model."""
        for model in self._models.values():
            model.close()


def bundles_by_name(given: Sequence[str]) -> dict[tuple[str, str], Paths]:
    """The bundles of a command line: ``PATH``, named as its source model, or ``NAME=PATH``; with the version
    in the bundle (``edgekit build --bundle-version``), or 1. Two of one name and version are one model if one
    of them has a larger batch size.

    Raises:
        UsageError: a name is malformed, or two bundles have the same name and version.
        BundleError: a bundle can't be opened.
    """
    found: dict[tuple[str, str], list[Path]] = {}
    sizes: dict[Path, tuple[str, int]] = {}
    for each in given:
        before, equals, after = each.partition("=")
        named = bool(equals) and not Path(each).exists()
        path = Path(after if named else each)
        with Bundle.open(path) as bundle:
            name = before if named else Path(str(bundle.manifest["source"]["file"])).stem
            version = str(model_version(bundle) or 1)
            size = min((spec.shape[0] if spec.shape else 1 for spec in bundle.inputs), default=1)
            sizes[path] = (str(bundle.manifest["source"]["sha256"]), size)
        if not NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} can't be a name in a URL (letters, digits, '.', '_', '-'): give NAME={path}"
            )
        paths = found.setdefault((name, version), [])
        if paths and (len(paths) > 1 or not _batches(sizes[paths[0]], sizes[path])):
            raise UsageError(
                f"{paths[0]} and {path} are both {name} {version}; name one of them (NAME=PATH), "
                "or build it with --bundle-version"
            )
        paths.append(path)
        paths.sort(key=lambda each: sizes[each][1])
    return {key: tuple(paths) for key, paths in found.items()}


def _batches(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether two bundles, by source and batch size, are one model for single requests and for batches."""
    return one[0] == other[0] and min(one[1], other[1]) == 1 < max(one[1], other[1])
