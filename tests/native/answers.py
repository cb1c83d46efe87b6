"""YOLOX-nano on an engine by its C interface, held against Python's session."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.runtime import Session
from tests.native.library import NativeBundle, NativeSession
from tests.web.host import first_photograph


def assert_answers_as_python(bundle: Path, shared: Path, target: str, library: str, engine: str) -> None:
    """Outputs and scores are equal bit for bit, on one thread; boxes within 0.01 pixels."""
    frame = first_photograph(shared)
    with Session(bundle, threads=1) as session:
        feeds = session.prepare(frame)[0]
        expected, boxes = session.run(feeds), session.predict(frame)
        assert session.active.engine.startswith(engine)
        variant = session.active.variant
    with (
        NativeBundle(bundle) as opened,
        NativeSession(opened, library, target=target, threads=1) as native,
    ):
        assert (native.active, native.fallbacks) == (variant, [])
        for _ in range(2):
            outputs = native.run(feeds, 1)
            assert [array.tobytes() for array in outputs.values()] == [
                array.tobytes() for array in expected.values()
            ]
        found = native.predict(frame, "rgb")
    assert len(boxes) > 3
    assert found.labels == [one.label for one in boxes]
    assert found.scores.tobytes() == boxes.scores.tobytes()
    np.testing.assert_allclose(found.boxes, boxes.boxes, atol=0.01)
