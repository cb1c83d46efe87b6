"""Files by which a device's platform runs ``edgekit serve`` on a bundle.

Sources of their forms: systemd.service(5) and systemd.exec(5); the component recipe reference of AWS IoT
Greengrass (recipe format 2020-01-25); the deployment manifest of Azure IoT Edge (schema version 1.1); the
Compose specification, which balena follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._version import __version__
from edgekit.bundle.model_version import model_version
from edgekit.errors import UsageError, index_line
from edgekit.system.atomic_files import write_atomically

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.tensor_spec import Json

ENGINES = ("ort", "tflite", "openvino", "coreml")
"""Targets with an extra of their own that installs the engine."""
PORT = 8080
MEMORY_MB = 1024
IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:@-]{0,199}")
"""Of a container image's reference, without what few use."""


@dataclass(frozen=True)
class PlatformService:
    """Service that serves a bundle.

    Attributes:
        name: Name of the service, and of the model in URLs.
        bundle: File name of the bundle.
        version: Version of the model, as MAJOR.0.0.
        requirement: Requirement that pip installs.
        image: Container image, for platforms that use containers.
        uri: URI from which the platform fetches the bundle; "" if it is beside the files.
    """

    name: str
    bundle: str
    version: str
    requirement: str
    image: str
    uri: str


def service_of(bundle: Bundle, path: Path, name: str = "", image: str = "", uri: str = "") -> PlatformService:
    """Describe the service of a bundle.

    Args:
        bundle: The bundle.
        path: Its file.
        name: Name of the service; "": that of the source model.
        image: Reference of a container image, e.g. ``registry.example/detector:3``; "": ``NAME:VERSION``.
        uri: URI from which a platform fetches the bundle, e.g. ``s3://bucket/detector.edgekit``.

    Raises:
        UsageError: a name or reference has characters that a platform rejects.
        BundleError: the bundle's version is not valid.
    """
    service = name or re.sub(
        r"[^a-z0-9-]+", "-", Path(str(bundle.manifest["source"]["file"])).stem.lower()
    ).strip("-")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", service):
        raise UsageError(
            f"{service!r} can't be a service's name: give --model, up to 63 small letters, digits and -"
        )
    if re.search(r"[\s'\"%$\\]", path.name):
        raise UsageError(f"{path.name!r} cannot be used in the command line of a service: rename the file")
    version = model_version(bundle) or 1
    image = image or f"{service}:{version}"
    if not IMAGE.fullmatch(image):
        raise UsageError(f"{image!r} is not a container image reference, e.g. registry.example/{service}:3")
    if not re.fullmatch(r"(s3|https)://[^\s'\"]+", uri or "s3://x"):
        raise UsageError(f"{uri!r} is not the URL of a bundle: use s3://BUCKET/KEY or https://...")
    engines = sorted({v.target for v in bundle.variants if v.usable and v.target in ENGINES})
    named = index_line(",".join(["serve", *engines])).split("'")[1]
    return PlatformService(service, path.name, f"{version}.0.0", f"{named}=={__version__}", image, uri)


def platform_files(platform: str, service: PlatformService) -> dict[str, str]:
    """Return the files of a platform, by name.

    Raises:
        UsageError: ``service`` lacks something that the platform needs.
    """
    return PLATFORMS[platform](service)


def write_platform_files(files: Mapping[str, str], bundle: Path, folder: Path) -> list[Path]:
    """Write files and a copy of the bundle into a new folder, all or none.

    Raises:
        UsageError: the folder exists and is not empty, or can't be written to.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder; choose another. Nothing was written")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            written.append(folder / name)
            write_atomically(written[-1], [content.encode("utf-8")])
        with bundle.open("rb") as file:
            written.append(folder / bundle.name)
            write_atomically(written[-1], iter(lambda: file.read(1 << 20), b""))
    except OSError as problem:
        for path in written:
            path.unlink(missing_ok=True)
        raise UsageError(f"can't write to {folder}: {problem.strerror}. Nothing was written") from None
    return written


def _systemd(service: PlatformService) -> dict[str, str]:
    """Return a unit that reads its bundle and no user's files, and is restarted."""
    state = f"/opt/edgekit/{service.name}"
    return {
        f"edgekit-{service.name}.service": f"""\
# sudo install -d {state} && sudo python3 -m venv {state}/venv
# sudo {state}/venv/bin/pip install '{service.requirement}'
# sudo install -m 644 {service.bundle} {state}/
# sudo install -m 644 edgekit-{service.name}.service /etc/systemd/system/
# sudo systemctl daemon-reload && sudo systemctl enable --now edgekit-{service.name}
[Unit]
Description=EdgeKit serves {service.name}
After=network.target

[Service]
ExecStart={state}/venv/bin/edgekit serve {service.name}={state}/{service.bundle} --listen 127.0.0.1:{PORT}
Restart=on-failure
RestartSec=2
TimeoutStopSec=30
DynamicUser=yes
CacheDirectory=edgekit-{service.name}
Environment=EDGEKIT_CACHE=%C/edgekit-{service.name}
MemoryMax={MEMORY_MB}M
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
PrivateTmp=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0077

[Install]
WantedBy=multi-user.target
"""
    }


def _greengrass(service: PlatformService) -> dict[str, str]:
    """Return a component whose bundle is an artifact in S3."""
    if not service.uri.startswith("s3://"):
        raise UsageError(
            "Greengrass fetches artifacts from S3: give --bundle-url s3://BUCKET/KEY of the bundle"
        )
    file = service.uri.rpartition("/")[2]
    run = (
        '"{work:path}/venv/bin/edgekit" serve '
        f'"{service.name}={{artifacts:path}}/{file}" --listen 127.0.0.1:{{configuration:/port}}'
    )
    install = (
        'python3 -m venv "{work:path}/venv" && '
        f'"{{work:path}}/venv/bin/pip" install --quiet "{service.requirement}"'
    )
    recipe: Json = {
        "RecipeFormatVersion": "2020-01-25",
        "ComponentName": f"edgekit.{service.name}",
        "ComponentVersion": service.version,
        "ComponentType": "aws.greengrass.generic",
        "ComponentDescription": f"EdgeKit serves {service.name} by the Open Inference Protocol on loopback.",
        "ComponentPublisher": "EdgeKit",
        "ComponentConfiguration": {"DefaultConfiguration": {"port": str(PORT)}},
        "Manifests": [
            {
                "Platform": {"os": "linux"},
                "Lifecycle": {
                    "Setenv": {"EDGEKIT_CACHE": "{work:path}/cache"},
                    "Install": {"Script": install, "Timeout": 900},
                    "Run": {"Script": run},
                },
                "Artifacts": [
                    {
                        "Uri": service.uri,
                        "Unarchive": "NONE",
                        "Permission": {"Read": "OWNER", "Execute": "NONE"},
                    }
                ],
            }
        ],
    }
    return {"recipe.json": _json(recipe)}


def _iotedge(service: PlatformService) -> dict[str, str]:
    """Return a module and its container, next to the two modules of the platform."""
    limits: Json = {
        "HostConfig": {
            "PortBindings": {f"{PORT}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(PORT)}]},
            "Memory": MEMORY_MB << 20,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "Tmpfs": {"/tmp": ""},
        }
    }
    part = "mcr.microsoft.com/azureiotedge-"
    module: Json = {
        "version": service.version,
        "type": "docker",
        "status": "running",
        "restartPolicy": "always",
        "settings": {"image": service.image, "createOptions": json.dumps(limits)},
    }
    manifest: Json = {
        "modulesContent": {
            "$edgeAgent": {
                "properties.desired": {
                    "schemaVersion": "1.1",
                    "runtime": {"type": "docker", "settings": {}},
                    "systemModules": {
                        "edgeAgent": {"type": "docker", "settings": {"image": f"{part}agent:1.5"}},
                        "edgeHub": {
                            "type": "docker",
                            "status": "running",
                            "restartPolicy": "always",
                            "settings": {"image": f"{part}hub:1.5"},
                        },
                    },
                    "modules": {service.name: module},
                }
            },
            "$edgeHub": {
                "properties.desired": {
                    "schemaVersion": "1.1",
                    "routes": {},
                    "storeAndForwardConfiguration": {"timeToLiveSecs": 7200},
                }
            },
        }
    }
    return {"deployment.json": _json(manifest), "Dockerfile": _dockerfile(service)}


def _balena(service: PlatformService) -> dict[str, str]:
    """Return the files of one service in a container fleet. They also work with ``docker compose up``."""
    return {
        "Dockerfile": _dockerfile(service),
        "docker-compose.yml": f"""\
services:
  {service.name}:
    build: .
    restart: always
    read_only: true
    tmpfs:
      - /tmp
    cap_drop:
      - ALL
    mem_limit: {MEMORY_MB}m
    ports:
      - "127.0.0.1:{PORT}:{PORT}"
""",
    }


def _dockerfile(service: PlatformService) -> str:
    """Return the Dockerfile. Other containers and the host connect with the token that the server prints, or
    with one of ``--token-file``."""
    command = ["edgekit", "serve", f"{service.name}=/models/{service.bundle}", "--listen", f"0.0.0.0:{PORT}"]
    return f"""\
FROM python:3.12-slim
RUN pip install --no-cache-dir '{service.requirement}' && useradd --create-home edgekit
COPY {service.bundle} /models/
USER edgekit
ENV EDGEKIT_CACHE=/tmp/edgekit
EXPOSE {PORT}
CMD {json.dumps(command)}
"""


def _json(value: Json) -> str:
    return json.dumps(value, indent=2) + "\n"


PLATFORMS: Mapping[str, Callable[[PlatformService], dict[str, str]]] = {
    "systemd": _systemd,
    "greengrass": _greengrass,
    "iotedge": _iotedge,
    "balena": _balena,
}
