"""A certificate that this machine signs itself, for one address and one day."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from edgekit.errors import need_package

HOURS = 24


def own_certificate(host: str) -> tuple[ssl.SSLContext, str]:
    """Return a server's TLS context with a new key and certificate, and the certificate's sha256.

    Args:
        host: IP address that the certificate is for.

    Raises:
        MissingDependency: cryptography is not installed.
    """
    with need_package("cryptography", "a certificate for https", extra="browser"):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "EdgeKit")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # the phone's clock may be behind
        .not_valid_after(now + datetime.timedelta(hours=HOURS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with TemporaryDirectory() as folder:  # of mode 0700; the ssl module reads keys from files only
        path = Path(folder, "certificate.pem")
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(private + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return context, certificate.fingerprint(hashes.SHA256()).hex(":").upper()
