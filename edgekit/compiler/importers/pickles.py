"""Python pickles: loading one runs code that is in it, so the user has to say that the file is trusted."""

from __future__ import annotations

from pathlib import Path

from edgekit.compiler.importers.contract import ImportOptions
from edgekit.errors import ModelError


def need_trust(path: Path, what: str, instead: str, options: ImportOptions) -> None:
    """Refuse a pickle that the user does not say to trust.

    Args:
        path: The file.
        what: What it is, e.g. ``a Python pickle of scikit-learn``.
        instead: What can be given that is no pickle.
        options: Whether the user trusts it.

    Raises:
        ModelError: it is not said.
    """
    if not options.trust_pickle:
        raise ModelError(
            f"{path.name} is {what}: loading it runs whatever code is in it. If you made the file, or trust"
            f" who did, add --trust-pickle (Python: trust_pickle=True); else {instead}"
        )
