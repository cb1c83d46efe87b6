"""Manifests for Kubernetes: ``edgekit export BUNDLE --kubernetes FILE``.

Both run ``edgekit serve`` in a container. KServe's InferenceService has the bundle fetched by KServe's own
storage initializer; the Knative Service fetches it by fsspec as it starts. Fields:
https://kserve.github.io/website/docs/reference/crd-api and
https://knative.dev/docs/serving/reference/serving-api
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.tensor_spec import Json

PORT = 8080
DEADLINE_MS = 1000.0
"""Deadline of ``edgekit serve``."""
MOST_AT_ONCE = 64
"""Queue length of ``edgekit serve``."""
NAME_LIMIT_CHARS = 52
"""Maximum length of a service name. The limit is 63 (RFC 1123), and both platforms add to the name."""
MOST_REPLICAS = 10
MEMORY_MB = 512
"""Memory for Python, numpy and one engine, in addition to twice the bundle's size."""
FETCH = (
    'python -c "import sys, fsspec; fsspec.core.url_to_fs(sys.argv[1])[0].get_file(*sys.argv[1:3])" '
    '"$1" "$2" && shift && exec edgekit serve "$@"'
)


def manifests(bundle: Bundle, url: str, image: str) -> str:
    """Return an InferenceService of KServe and a Service of Knative, in YAML's JSON form.

    Args:
        bundle: Bundle to serve.
        url: URL of the bundle's file, e.g. ``s3://models/detector.edgekit``.
        image: Container with EdgeKit, its extra ``serve`` and the engine; for Knative with ``fsspec`` too.

    Raises:
        UsageError: the URL is not valid or does not end in ``.edgekit``, or the image has white space in it.
    """
    if "://" not in url or not url.endswith(".edgekit") or not url.isprintable() or " " in url:
        raise UsageError(
            f"--bundle-url is {url!r}; it must be the bundle's URL, e.g. s3://models/detector.edgekit"
        )
    if not image or not image.isprintable() or " " in image:
        raise UsageError(f"--image is {image!r}; it must be the name of a container image")
    name, target = service_name(bundle), requests_at_once(bundle)
    lines = [
        f"# {bundle.manifest['source']['file']}, served by edgekit serve. Clients send a token:",
        f"# kubectl create secret generic {name}-token --from-file=token",
    ]
    documents = [
        _inference_service(bundle, name, url, image, target),
        _knative(bundle, name, url, image, target),
    ]
    return "\n".join([*lines, *(f"---\n{json.dumps(document, indent=2)}" for document in documents)]) + "\n"


def service_name(bundle: Bundle) -> str:
    """Return a name of RFC 1123 for the model's name."""
    stem = bundle.manifest["source"]["file"].replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:NAME_LIMIT_CHARS].strip("-") or "model"


def requests_at_once(bundle: Bundle) -> int:
    """Return the number of concurrent requests per replica before another one is started. A replica answers
    that many in half of the deadline, by its measured time; 1 if the bundle was not timed."""
    times = [
        (variant.evidence.get("timing") or {}).get("p50_ms") for variant in bundle.variants if variant.usable
    ]
    measured = [p50_ms for p50_ms in times if p50_ms]
    return max(1, min(MOST_AT_ONCE, int(DEADLINE_MS / 2 / min(measured)))) if measured else 1


def _inference_service(bundle: Bundle, name: str, url: str, image: str, target: int) -> dict[str, Json]:
    file = url.rpartition("/")[2]
    container = _container(bundle, image, ["serve", f"{name}=/mnt/models/{file}"])
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {
            "predictor": {
                "minReplicas": 0,
                "maxReplicas": MOST_REPLICAS,
                "scaleMetric": "concurrency",
                "scaleTarget": target,
                "containers": [
                    {
                        "name": "kserve-container",
                        "command": ["edgekit"],
                        **container,
                        "env": [{"name": "STORAGE_URI", "value": url}],
                    }
                ],
                "volumes": [_token(name)],
            }
        },
    }


def _knative(bundle: Bundle, name: str, url: str, image: str, target: int) -> dict[str, Json]:
    file = f"/tmp/{name}.edgekit"  # the model has the file's name
    container = _container(bundle, image, [])
    container["args"] = [FETCH, "sh", url, *_arguments([file])]
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-knative"},
        "spec": {
            "template": {
                "metadata": {
                    "annotations": {
                        "autoscaling.knative.dev/min-scale": "0",
                        "autoscaling.knative.dev/max-scale": str(MOST_REPLICAS),
                        "autoscaling.knative.dev/metric": "concurrency",
                        "autoscaling.knative.dev/target": str(target),
                    }
                },
                "spec": {
                    "timeoutSeconds": 30,
                    "containers": [{"name": "edgekit", "command": ["sh", "-c"], **container}],
                    "volumes": [_token(name)],
                },
            }
        },
    }


def _container(bundle: Bundle, image: str, arguments: list[str]) -> dict[str, Json]:
    memory_mb = MEMORY_MB + 2 * sum(entry["size"] for entry in bundle.manifest["entries"]) // 1_000_000
    ready: dict[str, Json] = {"httpGet": {"path": "/v2/health/ready", "port": PORT}}
    return {
        "image": image,
        "args": list(_arguments(arguments)),
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": ready,
        "resources": {"requests": {"cpu": "1", "memory": f"{memory_mb}Mi"}},
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/edgekit", "readOnly": True}],
    }


def _arguments(first: list[str]) -> list[str]:
    return [*first, "--listen", f"0.0.0.0:{PORT}", "--token-file", "/var/run/edgekit/token",
            "--deadline-ms", f"{DEADLINE_MS:g}"]  # fmt: skip


def _token(name: str) -> dict[str, Json]:
    return {"name": "token", "secret": {"secretName": f"{name}-token"}}
