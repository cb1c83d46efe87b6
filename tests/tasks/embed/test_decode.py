"""Embeddings."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.tasks.embed.decode import EmbedOptions, embed


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1), (3,), (1, 1, 3)])
def test_vectors_of_length_one(shape: tuple[int, ...]) -> None:
    output = np.array([3, 0, -4], np.float32).reshape(shape)
    found = embed({"embedding": output}, EmbedOptions(), None)
    np.testing.assert_allclose(found.vector, [0.6, 0, -0.8])
    assert str(found) == "3 values: 0.600 0.000 -0.800"
    assert found.as_json() == {"dimensions": 3, "vector": [0.6, 0.0, -0.8]}
    assert embed({"embedding": output}, EmbedOptions(normalize=False), None).vector.tolist() == [3, 0, -4]


def test_similarity() -> None:
    one, other = (embed({"embedding": np.array([v])}, EmbedOptions(), None) for v in ([1.0, 0.0], [1.0, 1.0]))
    assert one.cosine(other) == pytest.approx(0.5**0.5)
    nothing = embed({"embedding": np.zeros((1, 2), np.float32)}, EmbedOptions(), None)
    assert one.cosine(nothing) == 0
    longer = embed({"embedding": np.ones((1, 3))}, EmbedOptions(), None)
    with pytest.raises(UsageError) as error:
        one.cosine(longer)
    assert str(error.value) == "embeddings of 2 and 3 values are from different models"


def test_large_values_do_not_overflow() -> None:
    found = embed({"embedding": np.full((1, 4), 3e38, np.float32)}, EmbedOptions(), None)
    np.testing.assert_allclose(found.vector, 0.5)


def test_an_output_that_is_no_vector() -> None:
    with pytest.raises(EngineError) as error:
        embed({"embedding": np.zeros((2, 3))}, EmbedOptions(), None)
    assert str(error.value) == "an embedding is one vector, but the output is [2, 3]"
