"""Embeddings: one vector, or the vectors of a text's tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.tasks.embed.decode import EmbedOptions, embed, embed_first, embed_mean


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


TOKENS = np.array([[[3, 4], [5, 0], [1, 2], [100, 100]]], np.float32)
RAW = EmbedOptions(normalize=False)


def placed(*mask: int) -> Any:
    return SimpleNamespace(mask=np.array(mask))


def test_the_mean_leaves_padding_out() -> None:
    assert embed_mean({"tokens": TOKENS}, RAW, placed(1, 1, 1, 0)).vector.tolist() == [3, 2]
    assert embed_mean({"tokens": TOKENS}, RAW, placed(0, 1, 1, 0)).vector.tolist() == [3, 1]
    assert embed_mean({"tokens": TOKENS}, RAW, None).vector.tolist() == [27.25, 26.5]
    assert embed_mean({"tokens": TOKENS}, RAW, placed(0, 0, 0, 0)).vector.tolist() == [0, 0]


def test_the_first_token_that_is_no_padding() -> None:
    assert embed_first({"tokens": TOKENS}, RAW, placed(1, 1, 0, 0)).vector.tolist() == [3, 4]
    assert embed_first({"tokens": TOKENS}, RAW, placed(0, 0, 1, 1)).vector.tolist() == [1, 2]
    assert embed_first({"tokens": TOKENS}, RAW, None).vector.tolist() == [3, 4]


def test_normalized() -> None:
    found = embed_first({"tokens": TOKENS}, EmbedOptions(), None).vector
    np.testing.assert_allclose(found, [0.6, 0.8], atol=1e-7)


def test_what_does_not_fit() -> None:
    with pytest.raises(EngineError) as error:
        embed_mean({"tokens": TOKENS}, RAW, placed(1, 1))
    assert str(error.value) == "the model got 2 tokens, including padding, but returned 4"
    with pytest.raises(EngineError) as error:
        embed_first({"tokens": TOKENS[0]}, RAW, None)
    assert str(error.value) == "the tokens of one text are [1, n, d], but the output is [4, 2]"
