"""Engines that behave, and ones that misbehave in every way a session must survive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.errors import MissingDependency, ProfileError
from edgekit.runtime import Session
from edgekit.target import Array, Engine, Json, TensorSpec

Behaviour = Callable[[Mapping[str, Array]], dict[str, Array]]


def doubled(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": 2 * feeds["x"]}


class FakeRunner:
    device = "CPU"
    precision = "fp32"

    def __init__(self, engine: FakeEngine, behaviour: Behaviour) -> None:
        self._engine = engine
        self.behaviour = behaviour

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self.behaviour(feeds)

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self._engine.closed += 1


class FakeEngine:
    """An engine called ``name``: absent, refusing some files, or with any behaviour."""

    def __init__(self, name: str, version: str = "1.0") -> None:
        self.name = name
        self.version = version
        self.missing = False
        self.refused: dict[str, Exception] = {}
        self.behaviour: dict[str, Behaviour] = {}
        self.loaded: list[str] = []
        self.threads: list[int | None] = []
        self.closed = 0

    def engine_version(self) -> str:
        if self.missing:
            raise MissingDependency(self.name, "a test", f"pip install 'edgekit-sdk[{self.name}]'")
        return f"{self.name.title()} Runtime {self.version}"

    def open_runner(
        self,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> FakeRunner:
        variant = files["model.bin"].read_text("utf-8")
        if variant in self.refused:
            raise self.refused[variant]
        self.loaded.append(variant)
        self.threads.append(threads)
        return FakeRunner(self, self.behaviour.get(variant, doubled))


class Engines:
    """What stands in for ``edgekit.target.engine``."""

    def __init__(self, *names: str) -> None:
        self.by_name = {name: FakeEngine(name) for name in names}

    def __call__(self, name: str) -> Engine:
        if name not in self.by_name:
            raise ProfileError(f"no target is called {name!r}; there are {', '.join(self.by_name)}")
        return self.by_name[name]

    def __getitem__(self, name: str) -> FakeEngine:
        return self.by_name[name]


def change(session: Session, behaviour: Behaviour) -> None:
    """From now on the loaded variant behaves otherwise."""
    assert isinstance(session.runner, FakeRunner)
    session.runner.behaviour = behaviour


def throws(feeds: Mapping[str, Array]) -> dict[str, Array]:
    raise RuntimeError("kernel\n  died")


def wrong_shape(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": np.zeros((6, 1), np.float32)}


def wrong_dtype(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": np.zeros((1, 6), np.float16)}


def wrong_name(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"z": np.zeros((1, 6), np.float32)}


def nothing(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {}


def one_too_many(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {**doubled(feeds), "z": feeds["x"]}
