"""Bundles as a deployment of Ray Serve: replicas, autoscaling, several models in a replica, rolling updates.

    from ray import serve
    from edgekit.serve.ray import deployment

    handle = serve.run(deployment({"detector": "detector.edgekit"}, max_replicas=8), name="detector")
    outputs = infer(handle, {"images": x})

Over HTTP it speaks the Open Inference Protocol v2: ``POST /v2/models/NAME/infer`` below the route of the
application. It needs the extra ``ray``; the cluster's nodes need the bundles at the same paths.
https://docs.ray.io/en/latest/serve/index.html
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import BusyError, EngineError, UsageError, need_package
from edgekit.runtime.remote.inference_protocol import about_tensors
from edgekit.serve.bundle_names import NAME
from edgekit.serve.inference_requests import LENGTH, Request, RequestError
from edgekit.serve.served_model import ServedModel, ServeOptions

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response

    from edgekit.tensor_spec import Array

RETRY_S = 0.1
"""Before a request is sent again whose replica was lost: its end has to be noticed."""


class ModelReplica:
    """One replica: some models of the deployment, each a session with its queue.

    Args:
        paths: Name -> path of a bundle.
        options: Options for running models.
        max_models: Maximum number of models in memory; the least recently used one is evicted.
    """

    def __init__(self, paths: Mapping[str, str], options: ServeOptions, max_models: int) -> None:
        from ray import serve

        self._paths, self._options = dict(paths), options
        self._load = serve.multiplexed(max_num_models_per_replica=max_models)(_load)
        self._first = next(iter(self._paths))
        self._warm: ServedModel | None = None
        if len(self._paths) == 1:  # open before the first request: a warm pool is min_replicas of these
            self._warm = ServedModel(self._first, "1", (Path(self._paths[self._first]),), options)

    async def infer(self, feeds: Mapping[str, Array], model: str = "") -> dict[str, Array]:
        """Run a model on arrays: exactly its inputs.

        Raises:
            UsageError: the model does not exist, or the arrays do not fit.
            BusyError: the queue is longer than the deadline.
            EngineError: no variant answers.
        """
        served = await self._model(model)
        request = Request(dict(feeds), {}, "", None)
        try:
            return await asyncio.wrap_future(served.run(request))
        except RequestError as problem:
            raise BusyError(str(problem)) from None

    async def __call__(self, request: HttpRequest) -> Response:
        """Handle a request of the Open Inference Protocol over HTTP."""
        from starlette.responses import JSONResponse

        try:
            return await self._answered(request)
        except RequestError as problem:
            headers = {} if problem.retry_after_s is None else {"Retry-After": str(problem.retry_after_s)}
            return JSONResponse({"error": str(problem)}, problem.status, headers)
        except BusyError as problem:
            return JSONResponse({"error": str(problem)}, 503, {"Retry-After": "1"})
        except EngineError:  # its text may name paths
            return JSONResponse({"error": "the model failed"}, 500)

    async def check_health(self) -> None:
        """Run the golden vector's input: Ray replaces a replica whose model does not answer any more.

        Raises:
            EngineError: no variant answers.
        """
        if self._warm is not None and (golden := self._warm.session.bundle.golden):
            await asyncio.to_thread(self._warm.session.run, golden[0][0])

    async def _answered(self, request: HttpRequest) -> Response:
        from starlette.responses import JSONResponse
        from starlette.responses import Response as Answer

        parts = request.url.path.rstrip("/").split("/")
        if parts[-2:] == ["health", "ready"] or parts[-2:] == ["health", "live"]:
            return Answer()
        named = parts.index("models") + 1 if "models" in parts else len(parts)
        if named >= len(parts):
            raise RequestError("this path does not exist; models are at /v2/models/NAME", 404)
        try:
            served = await self._model(parts[named])
        except UsageError as problem:
            raise RequestError(str(problem), 404) from None
        if parts[-1] != "infer":
            tensors = about_tensors(served.shapes)
            return JSONResponse({"name": served.name, "versions": ["1"], "platform": "edgekit", **tensors})
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > served.limit_bytes:
                raise RequestError(f"the body is larger than {served.limit_bytes} bytes", 413)
        parsed = served.read(bytes(body), request.headers.get(LENGTH))
        arrays = await asyncio.wrap_future(served.run(parsed))
        content, headers = served.answer(parsed, arrays)
        return Answer(content, headers=headers)

    async def _model(self, name: str) -> ServedModel:
        from ray import serve

        name = name or serve.get_multiplexed_model_id() or self._first
        if name not in self._paths:
            raise UsageError(f"unknown model {name!r}; available: {', '.join(self._paths)}")
        if self._warm is not None:
            return self._warm
        model: ServedModel = await self._load(self, name)
        return model


async def _load(replica: ModelReplica, name: str) -> ServedModel:
    path = Path(replica._paths[name])
    return await asyncio.to_thread(ServedModel, name, "1", (path,), replica._options)


def deployment(
    bundles: Mapping[str, str | Path],
    *,
    min_replicas: int = 1,
    max_replicas: int = 1,
    requests_a_replica: float | None = None,
    cpus: float = 1,
    gpus: float = 0,
    engine: str | None = None,
    deadline_ms: float = 1000.0,
    max_models: int = 3,
    scaling: Mapping[str, Any] | None = None,
) -> Any:
    """Return an application of Ray Serve, for ``serve.run``.

    Running it again with another bundle is a rolling update: new replicas answer before the old ones end.

    Args:
        bundles: Name of a model -> path of its bundle.
        min_replicas: Number of replicas that are always open with their model loaded. 0: scale to zero.
        max_replicas: Maximum number of replicas.
        requests_a_replica: Number of concurrent requests per replica that starts another one. None: the
            number that a replica answers in half of the deadline, by the latency in the bundle. Scaling then
            depends on queue and latency.
        cpus: Number of cores of each replica, and of threads of its sessions.
        gpus: Number of GPUs of each replica.
        engine: Engine to try first.
        deadline_ms: Maximum waiting time of a request in milliseconds; longer ones are rejected.
        max_models: Number of models in a replica's memory, if there are several (model multiplexing).
        scaling: Other settings of Ray's ``AutoscalingConfig``, e.g. ``downscale_delay_s``.

    Raises:
        UsageError: no bundle, or a wrong name or number.
        BundleError: a bundle can't be read.
        MissingDependency: ray is not installed.
    """
    with need_package("ray", "a deployment of Ray Serve", extra="ray"):
        from ray import serve
    wrong = [name for name in bundles if not NAME.fullmatch(name)]
    if not bundles or wrong:
        raise UsageError(f"bundles is {dict(bundles)}; give at least one, with names for a URL")
    if not (0 <= min_replicas <= max_replicas and max_replicas >= 1 and max_models >= 1 and deadline_ms > 0):
        raise UsageError(
            "min_replicas must be at most max_replicas, max_replicas and kept at least 1, "
            "and deadline_ms above 0"
        )
    paths = {name: str(Path(path).absolute()) for name, path in bundles.items()}
    target = requests_a_replica or min(_at_once(path, deadline_ms) for path in paths.values())
    options = ServeOptions(engine, max(1, int(cpus)), deadline_ms)
    ray_deployment = serve.deployment(
        ModelReplica,
        name="-".join(paths)[:60],
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        max_ongoing_requests=max(2, int(2 * target)),
        autoscaling_config={
            "min_replicas": min_replicas,
            "max_replicas": max_replicas,
            "target_ongoing_requests": target,
            **(scaling or {}),
        },
    )
    return ray_deployment.bind(paths, options, max_models)


def infer(
    handle: Any, feeds: Mapping[str, Array], model: str = "", *, retries: int = 3, timeout_s: float = 60.0
) -> dict[str, Array]:
    """Ask a deployment, again where the replica was lost that had the request.

    Args:
        handle: Handle from ``serve.run``.
        feeds: Every input by name.
        model: Its name, where there are several: requests go to replicas that have it in memory.
        retries: Maximum number of retries of a request.
        timeout_s: For an answer.

    Raises:
        BusyError, EngineError, UsageError: the replica's.
        TimeoutError: no answer came.
    """
    from ray.exceptions import RayActorError, RayTaskError
    from ray.serve.exceptions import RayServeException

    chosen = handle.options(multiplexed_model_id=model) if model else handle
    for left in range(retries, -1, -1):
        try:
            arrays: dict[str, Array] = chosen.infer.remote(dict(feeds), model).result(timeout_s=timeout_s)
            return arrays
        except RayTaskError as problem:  # the replica's own error, which another one would have too
            cause = problem.cause
            raise cause if isinstance(cause, Exception) else problem from None
        except (RayActorError, RayServeException):
            if not left:
                raise
            time.sleep(RETRY_S)
    raise AssertionError("unreachable")


def _at_once(path: str, deadline_ms: float) -> float:
    """Return the number of requests that a replica answers in half of the deadline."""
    from edgekit.bundle.bundle import Bundle

    with Bundle.open(os.fspath(path)) as bundle:
        times = [(v.evidence.get("timing") or {}).get("p50_ms") for v in bundle.variants if v.usable]
    measured = [p50_ms for p50_ms in times if p50_ms]
    return float(max(1, min(64, int(deadline_ms / 2 / min(measured))))) if measured else 1.0
