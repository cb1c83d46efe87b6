"""Signatures of bundles: who made a file, checked before any of it is parsed.

signing_keys      public and private keys in PEM files
signature_file    an in-toto statement that names the file's sha256, in a Sigstore bundle (JSON) with a DSSE
                  envelope
trusted_keys      the keys that a device accepts, and the check of a file against them

The format is OpenSSF model signing's (https://github.com/sigstore/model-transparency), version 1.0, for one
file: its command line verifies what EdgeKit signs with an EC key, and EdgeKit verifies what it signs.
"""

from __future__ import annotations

from edgekit.signing.trusted_keys import SignedBy, TrustedKeys

__all__ = ["SignedBy", "TrustedKeys"]
