"""Request for a server: every option of ``edgekit serve``, declared once (docs/decisions/0047).

The command line loads this file for its help, so it imports nothing that a server needs.
"""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.system.declared_options import option

QUEUE = 64
DEADLINE_MS = 1000
TEXT_DEADLINE_MS = 600_000
CONVERSATIONS = 4
CONNECTIONS = 1024
ADDRESS_SHARE = 0.5
"""Share of the connections and of the request memory for one address, unless a proxy limits addresses."""
LEAST_MB = 16
"""Minimum memory for requests."""


def engines() -> Iterable[str]:
    """Return the names of installed targets."""
    from edgekit.target.registry import target_names

    return target_names()


def silent(url: str, grpc: str | None, made_token: str | None, models: Any) -> None:
    """Announce nothing."""


@dataclass(frozen=True)
class ServeRequest:
    """Arguments of a server, as ``edgekit.serve.server.serve`` takes them.

    Args:
        bundles: Bundles as on the command line: ``PATH`` or ``NAME=PATH``.
        listen: Address to listen on.
        grpc: Address for gRPC, e.g. 127.0.0.1:8081.
        split: Requests without a version that another version takes: a share of the users, e.g. net:2=10%,
            or those with a header, e.g. net:2=X-Group:beta.
        frigate: Serve one detector to Frigate's zmq detector at this address, and nothing over HTTP
            (``docs/frigate.md``).
        wyoming: Address for Wyoming, the protocol of Home Assistant's voice satellites (``docs/wyoming.md``).
        pixel_format: Colour order of Frigate's frames, its input_pixel_format.
        labelmap: Frigate's labelmap_path; classes are found in it by name.
        accelerator: With --frigate: Run on this processor or interface (edgekit doctor), once it has
            reproduced the golden vectors.
        repository: Folder of bundles to load from.
        memory_mb: Memory limit of loaded models; the least recently used ones are unloaded.
        behind_proxy: All clients come through a proxy, which has TLS and limits each address.
        token_file: File with the token that clients must send.
        admin_token_file: File with the token for loading and unloading models.
        tls_cert: Certificate (PEM) for TLS.
        tls_key: Private key (PEM) of the certificate.
        tls_clients: Certificate authority (PEM); clients need a certificate from it.
        deadline_ms: Deadline of a request in milliseconds.
        queue: Maximum number of queued requests per model.
        text_deadline_ms: Deadline of a text in milliseconds (language models).
        conversations: Number of texts that a language model generates at once.
        context: Maximum context length in tokens (language models).
        connections: Maximum number of connections per process.
        request_memory_mb: Memory limit of all requests.
        engine: Use this target's engine.
        threads: Number of threads for one inference.
        announce: Callback when the models are loaded, with the URL, gRPC's HOST:PORT, the token if
            a random one was made, and the ``ServedModels``.
    """

    bundles: Sequence[str] = field(default=(), metadata=option(
        "Bundles as on the command line: ``PATH`` or ``NAME=PATH``.", python_only=True,
    ))  # fmt: skip
    _: KW_ONLY
    listen: str | None = field(default=None, metadata=option(
        "Address to listen on. Only ``HOST`` or ``:PORT`` will do, and port 0 takes a free one.",
        default="127.0.0.1:8080, this machine only", metavar="HOST:PORT",
    ))  # fmt: skip
    grpc: str | None = field(default=None, metadata=option(
        "Address for gRPC, e.g. 127.0.0.1:8081. Without it, gRPC is off.", metavar="HOST:PORT",
    ))  # fmt: skip
    split: Sequence[str] = field(default=(), metadata=option(
        "Requests without a version that another version takes: a share of the users, e.g. net:2=10%, or "
        "those with a header, e.g. net:2=X-Group:beta.", metavar="NAME:VERSION=REQUESTS",
    ))  # fmt: skip
    frigate: str | None = field(default=None, metadata=option(
        "Serve one detector to Frigate's zmq detector at this address, and nothing over HTTP "
        "(``docs/frigate.md``).",
        metavar="ipc://...|tcp://HOST:PORT", heading="Frigate and Wyoming",
    ))  # fmt: skip
    wyoming: str | None = field(default=None, metadata=option(
        "Address for Wyoming, the protocol of Home Assistant's voice satellites (``docs/wyoming.md``).",
        metavar="tcp://HOST:PORT", heading="Frigate and Wyoming",
    ))  # fmt: skip
    pixel_format: str | None = field(default=None, metadata=option(
        "Colour order of Frigate's frames, its input_pixel_format.", choices=("rgb", "bgr"),
        heading="Frigate and Wyoming",
    ))  # fmt: skip
    labelmap: Path | None = field(default=None, metadata=option(
        "Frigate's labelmap_path; classes are found in it by name.", heading="Frigate and Wyoming",
    ))  # fmt: skip
    accelerator: str | None = field(default=None, metadata=option(
        "With --frigate: Run on this processor or interface (edgekit doctor), once it has reproduced the "
        "golden vectors. The CPU takes over when it fails.",
        metavar="gpu|npu|NAME", heading="Frigate and Wyoming",
    ))  # fmt: skip
    repository: Path | None = field(default=None, metadata=option(
        "Folder of bundles to load from. They are loaded on request.", folder=True,
    ))  # fmt: skip
    memory_mb: int | None = field(default=None, metadata=option(
        "Memory limit of loaded models; the least recently used ones are unloaded.",
        heading="Limits",
    ))  # fmt: skip
    behind_proxy: bool = field(default=False, metadata=option(
        "All clients come through a proxy, which has TLS and limits each address.",
        heading="Security",
    ))  # fmt: skip
    token_file: Path | None = field(default=None, metadata=option(
        "File with the token that clients must send. Without it, there is a random token if clients of other "
        "machines reach the server and need no certificate.",
        heading="Security",
    ))  # fmt: skip
    admin_token_file: Path | None = field(default=None, metadata=option(
        "File with the token for loading and unloading models.",
        heading="Security",
    ))  # fmt: skip
    tls_cert: Path | None = field(default=None, metadata=option(
        "Certificate (PEM) for TLS. It is for HTTP and gRPC.",
        heading="Security",
    ))  # fmt: skip
    tls_key: Path | None = field(default=None, metadata=option(
        "Private key (PEM) of the certificate.",
        heading="Security",
    ))  # fmt: skip
    tls_clients: Path | None = field(default=None, metadata=option(
        "Certificate authority (PEM); clients need a certificate from it.",
        heading="Security",
    ))  # fmt: skip
    deadline_ms: float = field(default=DEADLINE_MS, metadata=option(
        "Deadline of a request in milliseconds. A client may set an earlier one.",
        heading="Limits",
    ))  # fmt: skip
    queue: int = field(default=QUEUE, metadata=option(
        "Maximum number of queued requests per model.",
        heading="Limits",
    ))  # fmt: skip
    text_deadline_ms: float = field(default=TEXT_DEADLINE_MS, metadata=option(
        "Deadline of a text in milliseconds (language models). A text that has begun ends there.",
        heading="Limits",
    ))  # fmt: skip
    conversations: int = field(default=CONVERSATIONS, metadata=option(
        "Number of texts that a language model generates at once. Each has its own cache in memory.",
        minimum=1,
        heading="Limits",
    ))  # fmt: skip
    context: int | None = field(default=None, metadata=option(
        "Maximum context length in tokens (language models). Without it, the bundle's card has the number.",
        metavar="TOKENS", minimum=1,
        heading="Limits",
    ))  # fmt: skip
    connections: int = field(default=CONNECTIONS, metadata=option(
        "Maximum number of connections per process. HTTP and gRPC count together; gRPC has a quarter.",
        heading="Limits",
    ))  # fmt: skip
    request_memory_mb: int | None = field(default=None, metadata=option(
        "Memory limit of all requests.", default="a quarter of the free memory",
        heading="Limits",
    ))  # fmt: skip
    engine: str | None = field(default=None, metadata=option(
        "Use this target's engine.", default="the best one available",
        metavar="TARGET", completions=engines,
    ))  # fmt: skip
    threads: int | None = field(default=None, metadata=option(
        "Number of threads for one inference.", default="the number of cores", minimum=1,
    ))  # fmt: skip
    announce: Callable[[str, str | None, str | None, Any], None] = field(
        default=silent, metadata=option(
            "Callback when the models are loaded, with the URL, gRPC's HOST:PORT, the token if a random one "
            "was made, and the ``ServedModels``.",
            stored=False, local=True, python_only=True,
    ))  # fmt: skip

    def check(self) -> None:
        """Raise UsageError if an option is out of its range."""
        if self.frigate is None and (self.pixel_format or self.labelmap or self.accelerator):
            raise UsageError("--pixel-format, --labelmap and --accelerator go with --frigate")
        if not 0 < self.deadline_ms < float("inf") or self.queue < 1:
            raise UsageError("--deadline-ms must be above 0, and --queue at least 1")
        if not 0 < self.text_deadline_ms < float("inf") or not 1 <= self.conversations <= 64:
            raise UsageError("--text-deadline-ms must be above 0, and --conversations from 1 to 64")
        if not self.bundles and self.repository is None:
            raise UsageError("give bundles, or a folder of them (--repository)")
        if self.memory_mb is not None and self.memory_mb < 1:
            raise UsageError("--memory-mb must be at least 1")
        if self.connections < 8:
            raise UsageError("--connections must be at least 8")
        if self.request_memory_mb is not None and self.request_memory_mb < LEAST_MB:
            raise UsageError(f"--request-memory-mb must be at least {LEAST_MB}")
