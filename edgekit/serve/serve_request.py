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
    """Arguments of a server, as ``edgekit.serve.server.serve`` takes them."""

    bundles: Sequence[str] = field(default=(), metadata=option(
        "Bundles as on the command line: ``PATH`` or ``NAME=PATH``.",
    ))  # fmt: skip
    _: KW_ONLY
    listen: str | None = field(default=None, metadata=option(
        "Address on which HTTP listens: ``HOST:PORT``, ``HOST`` or ``:PORT``; port 0 takes a free one. None: "
        "port 8080 of loopback.",
        help="Address to listen on.  [default: 127.0.0.1:8080, this machine only]", metavar="HOST:PORT",
    ))  # fmt: skip
    grpc: str | None = field(default=None, metadata=option(
        "Address on which gRPC listens; None: gRPC is off.",
        help="Address for gRPC, e.g. 127.0.0.1:8081.", metavar="HOST:PORT",
    ))  # fmt: skip
    repository: Path | None = field(default=None, metadata=option(
        "Folder of bundles, which are loaded on request.",
        help="Folder of bundles to load from.", folder=True,
    ))  # fmt: skip
    memory_mb: int | None = field(default=None, metadata=option(
        "Memory limit of loaded models; the least recently used ones are unloaded. None: no limit.",
        help="Memory limit of loaded models; the least recently used ones are unloaded.",
        heading="Limits",
    ))  # fmt: skip
    behind_proxy: bool = field(default=False, metadata=option(
        "Whether all clients come through a proxy, which has TLS and limits each address.",
        help="A proxy has TLS and limits each client's address.", heading="Security",
    ))  # fmt: skip
    token_file: Path | None = field(default=None, metadata=option(
        "File with the token that clients must send. None means a random one, if clients of other machines "
        "reach the server and need no certificate.",
        help="File with the token that clients must send.",
        heading="Security",
    ))  # fmt: skip
    admin_token_file: Path | None = field(default=None, metadata=option(
        "File with the token for loading and unloading models.",
        help="File with the token for loading and unloading models.",
        heading="Security",
    ))  # fmt: skip
    tls_cert: Path | None = field(default=None, metadata=option(
        "Certificate (PEM) of HTTP and gRPC; None: no TLS.", help="Certificate (PEM) for TLS.",
        heading="Security",
    ))  # fmt: skip
    tls_key: Path | None = field(default=None, metadata=option(
        "Private key (PEM) of the certificate.", help="Private key (PEM) of the certificate.",
        heading="Security",
    ))  # fmt: skip
    tls_clients: Path | None = field(default=None, metadata=option(
        "Certificate authority (PEM) of the clients; None: clients need no certificate.",
        help="Certificate authority (PEM); clients need a certificate from it.",
        heading="Security",
    ))  # fmt: skip
    deadline_ms: float = field(default=DEADLINE_MS, metadata=option(
        "Deadline of a request in milliseconds; a client may set an earlier one.",
        help="Deadline of a request in milliseconds.",
        heading="Limits",
    ))  # fmt: skip
    queue: int = field(default=QUEUE, metadata=option(
        "Maximum number of queued requests per model.", help="Maximum number of queued requests per model.",
        heading="Limits",
    ))  # fmt: skip
    text_deadline_ms: float = field(default=TEXT_DEADLINE_MS, metadata=option(
        "Deadline of a text in milliseconds (language models). A text that has begun ends there.",
        help="Deadline of a text in milliseconds (language models).",
        heading="Limits",
    ))  # fmt: skip
    conversations: int = field(default=CONVERSATIONS, metadata=option(
        "Number of texts that a language model generates at once. Each has its own cache in memory.",
        help="Number of texts that a language model generates at once.", minimum=1,
        heading="Limits",
    ))  # fmt: skip
    context: int | None = field(default=None, metadata=option(
        "Maximum context length in tokens (language models). None: the number in the bundle's card.",
        help="Maximum context length in tokens (language models).", metavar="TOKENS", minimum=1,
        heading="Limits",
    ))  # fmt: skip
    connections: int = field(default=CONNECTIONS, metadata=option(
        "Maximum number of connections per process, over HTTP and gRPC together; gRPC has a quarter of them.",
        help="Maximum number of connections per process.",
        heading="Limits",
    ))  # fmt: skip
    request_memory_mb: int | None = field(default=None, metadata=option(
        "Memory limit of all requests. None means a quarter of the free memory.",
        help="Memory limit of all requests.  [default: a quarter of the free memory]",
        heading="Limits",
    ))  # fmt: skip
    engine: str | None = field(default=None, metadata=option(
        "Target whose engine is used. None: the best one available.",
        help="Use this target's engine. Default: the best one available.",
        metavar="TARGET", completions=engines,
    ))  # fmt: skip
    threads: int | None = field(default=None, metadata=option(
        "Number of threads for one inference. None means the number of cores.",
        help="Number of threads for one inference.  [default: the number of cores]", minimum=1,
    ))  # fmt: skip
    announce: Callable[[str, str | None, str | None, Any], None] = field(
        default=silent, metadata=option(
            "Callback when the models are loaded, with the URL, gRPC's HOST:PORT, the token if a random one "
            "was made, and the ``ServedModels``.",
            stored=False, local=True,
    ))  # fmt: skip

    def check(self) -> None:
        """Raise UsageError if an option is out of its range."""
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
