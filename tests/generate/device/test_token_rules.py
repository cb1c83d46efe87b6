"""Rules of a transcription's tokens."""

import numpy as np
import pytest

from edgekit.generate.device.token_rules import TokenRules, log_probability, repeated_tail

RULES = TokenRules(10, 14, 15, 13, (2,), (0, 10), 4)
"""Text 0 to 9, end 10, special 11 to 14, timestamps 15 to 24."""


def following(generated: list[int], timed: bool, logits: dict[int, float] | None = None) -> set[int]:
    """The tokens that may follow."""
    row = np.zeros(25, np.float32)
    row[:10] = 5  # text is likelier than all timestamps together
    for token, value in (logits or {}).items():
        row[token] = value
    return set(np.flatnonzero(np.isfinite(RULES.allowed(row, generated, timed))).tolist())


TEXT = set(range(10)) - {2}


def test_plain_text_has_neither_special_tokens_nor_timestamps() -> None:
    assert following([], False) == TEXT - {0}
    assert following([4], False) == TEXT | {10}


def test_timestamps_come_in_pairs_and_do_not_go_back() -> None:
    assert following([], True) == {15, 16, 17, 18, 19}
    assert following([16], True) == TEXT | {10}
    assert following([16, 4], True) == TEXT | {10} | set(range(17, 25))
    assert following([16, 4, 20], True, {10: 9.0}) == {10} | set(range(20, 25))
    assert following([16, 4, 20], True) == set(range(20, 25))  # a timestamp is likelier than the end
    assert following([16, 4, 20, 20], True) == TEXT | {10}


def test_a_timestamp_is_taken_where_all_together_are_likelier_than_a_word() -> None:
    assert following([16, 4], True, dict.fromkeys(range(17, 25), 4.0)) == set(range(17, 25))


def test_rules_survive_json_and_know_their_vocabulary() -> None:
    assert TokenRules.from_table(RULES.as_json()) == RULES
    RULES.check(25)
    with pytest.raises(ValueError, match="token 15 is not in the vocabulary, which has 15"):
        RULES.check(15)


def test_log_probability() -> None:
    assert log_probability(np.log(np.array([0.5, 0.25, 0.25], np.float32)), 1) == pytest.approx(np.log(0.25))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [([5] * 12, 11), ([5] * 11, 0), ([9, *[1, 2, 3] * 4], 9), ([1, 2, 3] * 3, 0), ([*[1, 2] * 6, 3], 0)],
)
def test_repeats(tokens: list[int], expected: int) -> None:
    assert repeated_tail(tokens) == expected
