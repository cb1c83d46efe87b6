"""The tokens of a KV cache: what is computed, and what is known of it after a failure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgekit.generate.device.cached_decoder import PART_TOKENS, CachedDecoder
from edgekit.generate.device.prefix_cache import PrefixCache
from edgekit.tensor_spec import Array
from tests.fixtures.numpy_decoder import NumpyDecoder

TEXT = [number % 200 for number in range(2 * PART_TOKENS + 9)]


def test_only_what_is_new_in_a_text_is_computed() -> None:
    cache, alone = (CachedDecoder(NumpyDecoder(), PrefixCache()) for _ in range(2))
    cache.logits(TEXT[:40])
    before = cache.computed
    again, expected = cache.logits([*TEXT[:40], 7, 8]), alone.logits([*TEXT[:40], 7, 8])
    assert cache.computed - before == 2
    np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_after_a_failure_or_an_interrupt_the_cache_is_empty(kind: type[BaseException]) -> None:
    def second_fails(tokens: Sequence[int]) -> None:
        if runner.steps == 1:
            raise kind

    runner = NumpyDecoder(before=second_fails)
    cache = CachedDecoder(runner, PrefixCache())
    with pytest.raises(kind):
        cache.logits(TEXT)
    assert (cache.tokens, runner.length) == ([], 0)


def test_a_prompt_is_read_in_parts() -> None:
    runner = NumpyDecoder()
    cache = CachedDecoder(runner, PrefixCache())
    assert cache.read(TEXT) is None
    assert cache.tokens == TEXT[:PART_TOKENS]
    assert cache.logits(TEXT).shape[0] == 1
    assert cache.computed == len(TEXT)


def test_a_saved_cache_does_not_hold_the_whole_that_it_is_a_part_of() -> None:
    whole, prefixes = np.zeros((4, 2, 500, 8), np.float32), PrefixCache()
    prefixes.keep(TEXT[:40], whole[:, :, :40])
    found = prefixes.longest(TEXT)
    assert found is not None
    assert (found[0], found[1].shape, np.shares_memory(found[1], whole)) == (40, (4, 2, 40, 8), False)


@pytest.mark.parametrize("interrupted", ["truncate", "forget"])
def test_an_interrupt_while_the_cache_is_emptied_after_another_one(
    interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the runner holds is not what is known of it; the next text begins anew even so."""
    runner = NumpyDecoder()
    cache, alone = CachedDecoder(runner, PrefixCache()), CachedDecoder(NumpyDecoder(), PrefixCache())
    cache.logits(TEXT[:40])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    computed = runner.forward

    def interrupted_once_computed(tokens: Sequence[int], rows: int = 1) -> Array:
        computed(tokens, rows)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "forward", interrupted_once_computed)
        patch.setattr(runner if interrupted == "truncate" else cache, interrupted, interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.logits([*TEXT[:40], 7])
    assert cache.common(TEXT) == 0
    assert not cache.lacks_one([*TEXT[:40], 9])
    again, expected = cache.logits([*TEXT[:40], 9]), alone.logits([*TEXT[:40], 9])
    np.testing.assert_allclose(again, expected, rtol=1e-5, atol=1e-5)
