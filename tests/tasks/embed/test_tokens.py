"""A text's embedding from its tokens' vectors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.tasks.embed.decode import EmbedOptions, embed_first, embed_mean

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
