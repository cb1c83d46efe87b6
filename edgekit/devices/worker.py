"""bench, evaluate, explain and verify as they run on a device: a request in, the verb's ``--json`` out."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.system import cpu


def answer(path: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a verb.

    Args:
        request: ``verb`` and its ``options``; if it needs samples, ``samples``: their path relative to the
            bundle's folder.

    Returns:
        ``{device, results}``: what the device is, and rows as the verb's ``--json`` has them; of ``evaluate``
        one row, all of it.

    Raises:
        EdgeKitError: as the verb.
    """
    from edgekit.bundle.bundle import Bundle

    verbs: dict[str, Callable[..., list[Any]]] = {
        "bench": _bench,
        "evaluate": _evaluate,
        "explain": _explain,
        "verify": _verify,
    }
    options = dict(request["options"])
    if "samples" in request:
        options["samples"] = os.path.join(os.path.dirname(path), *request["samples"].split("/"))
    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        results = verbs[request["verb"]](bundle, **options)
    return {"device": device_facts(), "results": results}


def device_facts() -> dict[str, Any]:
    """Return the facts that identify this device: ``{cpu, isa, machine, system, python, cores}``."""
    name, *isa = cpu.identity()
    return {
        "cpu": name,
        "isa": isa,
        "machine": cpu.processor_kind(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cores": os.cpu_count() or 1,
    }


def _bench(bundle: Bundle, **options: Any) -> list[Any]:
    from edgekit.compiler.bench.bench import bench_engines

    return list(bench_engines(bundle, **options))


def _evaluate(bundle: Bundle, **options: Any) -> list[Any]:
    from edgekit.compiler.accuracy.evaluate import evaluate

    return [evaluate(bundle, **options).as_json()]


def _verify(bundle: Bundle) -> list[Any]:
    from edgekit.compiler.evaluate.verify_bundle import verify_bundle

    return [check.as_json() for check in verify_bundle(bundle)]


def _explain(bundle: Bundle, **options: Any) -> list[Any]:
    from edgekit.compiler.explain.explain import explain

    return list(explain(bundle, **options))
