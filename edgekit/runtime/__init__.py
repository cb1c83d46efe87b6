"""The device side: opens a bundle, runs its best variant that works here, and says what ran and why.

    from edgekit.runtime import Session

    with Session("detector.edgekit") as session:
        outputs = session.run({"images": images})

Standard library and numpy only; an engine is imported when a variant of it is loaded.
"""

from __future__ import annotations

from edgekit.bundle.bundle import Bundle
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.session import Session
from edgekit.runtime.session_state import Active

__all__ = ["Active", "Bundle", "Fallback", "Session"]
