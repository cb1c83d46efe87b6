"""What every decoder checks before it computes."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.generate.device.decoder import DecoderShape, check_capacity, check_saved

SHAPE = DecoderShape(layers=2, kv_heads=3, head_dim=4, vocabulary=9, context=16)


@pytest.mark.parametrize("capacity", [-1, 0, 17, 1 << 40])
def test_a_capacity_is_within_the_context(capacity: int) -> None:
    assert [check_capacity(each, SHAPE) for each in (None, 1, 16)] == [16, 1, 16]
    with pytest.raises(UsageError) as error:
        check_capacity(capacity, SHAPE)
    assert str(error.value) == f"a cache of {capacity} tokens was asked for; the file has positions for 16"


def test_a_saved_cache_fits_into_the_capacity() -> None:
    saved = np.zeros((4, 3, 6, 4), np.float32)
    assert check_saved(saved, SHAPE, 6) == 6
    with pytest.raises(UsageError, match=r"^a saved cache has 6 tokens, and this one has room for 5$"):
        check_saved(saved, SHAPE, 5)
