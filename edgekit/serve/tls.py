"""TLS of a server: its certificate, and the authority that signs its clients' (mutual TLS)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError


@dataclass(frozen=True)
class Tls:
    """PEM files.

    Attributes:
        certificate: The server's, with those between it and its authority.
        key: Its private key, without a password.
        clients: The authority of the clients' certificates. None means clients need none.
    """

    certificate: str
    key: str
    clients: str | None = None

    def uvicorn_options(self) -> dict[str, Any]:
        """Return the TLS options for ``uvicorn.Config``."""
        options: dict[str, Any] = {"ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        if self.clients is not None:
            options |= {"ssl_ca_certs": self.clients, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options

    def grpc_credentials(self) -> Any:
        """Return the credentials of a gRPC server."""
        import grpc

        pair = (Path(self.key).read_bytes(), Path(self.certificate).read_bytes())
        clients = None if self.clients is None else Path(self.clients).read_bytes()
        return grpc.ssl_server_credentials([pair], clients, require_client_auth=clients is not None)


def tls_of(certificate: Path | None, key: Path | None, clients: Path | None) -> Tls | None:
    """Return TLS by the options of the command line, or None without them.

    Raises:
        UsageError: one is missing, or can't be used.
    """
    if certificate is None and key is None and clients is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs both --tls-cert and --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as problem:  # ssl.SSLError is an OSError
        raise UsageError(
            f"{certificate} and {key} can't be used as a certificate and its key: {_reason(problem)}"
        ) from None
    if clients is not None:
        try:
            context.load_verify_locations(clients)
        except (OSError, ValueError) as problem:
            raise UsageError(f"{clients} does not hold a certificate: {_reason(problem)}") from None
    return Tls(str(certificate), str(key), None if clients is None else str(clients))


def _no_password() -> str:
    raise ValueError("the key has a password; save it without one, readable by this user only")


def _reason(problem: Exception) -> str:
    return getattr(problem, "reason", None) or getattr(problem, "strerror", None) or str(problem)
