"""Speculative decoding: several tokens proposed at little cost, verified in one step of the decoder.

    draft = proposer.propose(tokens, most=4)            # a guess at what follows
    rows = logits of tokens + draft, the last len(draft) + 1 rows
    new = verified(draft, rows, choose)                 # the decoder's own tokens, at least one

``choose`` is the function that plain decoding calls for each row, with the same state: sampling with a seed,
a repetition penalty and a grammar included. So the text is that of plain decoding, token for token, as far as
the rows are: ``DecoderRunner.row_consistent``. Leviathan et al. 2023 (arXiv 2211.17192) for a draft that is
not drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from edgekit.tensors import Array


class Proposer(Protocol):
    """Guesses the next tokens of one generation."""

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """A guess at what follows.

        Args:
            tokens: The prompt and the answer so far; at each call those of the last one and more.
            most: At most so many.

        Returns:
            The guess; empty where there is none.
        """


def verified(draft: Sequence[int], rows: Array, choose: Callable[[Array], int | None]) -> list[int]:
    """The tokens that the decoder itself gives: as many of the draft as agree, and the next one.

    Args:
        draft: Proposed tokens.
        rows: float32 [len(draft) + 1, vocabulary]: row i is what follows the first i of the draft.
        choose: The decoder's own token of a row; called once for each token that is returned, in order.
            None ends the text.

    Returns:
        1 to len(draft) + 1 tokens; fewer where the text ends.
    """
    tokens: list[int] = []
    for index, row in enumerate(rows):
        token = choose(row)
        if token is None:
            break
        tokens.append(token)
        if index >= len(draft) or token != draft[index]:
            break
    return tokens


class PromptLookup:
    """Proposes what followed the last tokens where they stood before (Saxena 2023, prompt lookup decoding).

    Finds much where an answer repeats its prompt: a correction, a summary, code. The index grows with the
    text; a proposal costs a few look-ups.

    Args:
        longest: The longest n-gram that is looked for first.
        shortest: The shortest: one token is too little to guess by.
    """

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        self._read = 0

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """As ``Proposer.propose``."""
        # An n-gram is entered once something follows it: the last one must not find itself.
        for end in range(max(self._read, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._ends[tuple(tokens[end - size : end])] = end
        self._read = len(tokens)
        for size in self._sizes:
            found = self._ends.get(tuple(tokens[-size:])) if size <= len(tokens) else None
            if found is not None:
                return list(tokens[found : found + most])
        return []


class Speculation(NamedTuple):
    """How a session speculates.

    Attributes:
        on: Whether it does.
        why: In words.
        most: Tokens of a proposal.
        break_even: Tokens that a step with a proposal must make to be worth its time; where a text makes
        fewer,
            nothing is proposed any more. That does not change the text.
    """

    on: bool = False
    why: str = "it was not asked for"
    most: int = 4
    break_even: float = 1.0

    def goes_on(self, steps: int, accepted: int) -> bool:
        """Whether to propose further, after so many steps with a proposal and tokens accepted in them."""
        return steps < TRIAL_STEPS or steps + accepted >= self.break_even * steps


TRIAL_STEPS = 8
"""Steps with a proposal before a text is judged."""


class StepTimes(NamedTuple):
    """Times of one step on this device, in ms: of one row, of one row beside others, and of many.

    Attributes:
        plain_ms: One token.
        consistent_ms: One token with ``row_consistent``.
        rows_ms: ``1 + draft`` tokens with ``row_consistent``.
        draft: Proposed tokens.
    """

    plain_ms: float
    consistent_ms: float
    rows_ms: float
    draft: int


CONSISTENT_LIMIT = 1.05
"""Rows that agree may cost this much of a plain step: more is lost where nothing is proposed, which is most
of a free text."""
ACCEPTED_SHARE = 0.5
"""Of a proposal on texts that repeat their prompt; 1.5 to 1.7 tokens a step were measured."""


def pays(times: StepTimes) -> tuple[bool, str]:
    """Whether speculation is faster on this device, and why.

    >>> pays(StepTimes(40.0, 40.0, 55.0, 4))
    (True, 'a step of 5 rows costs 1.38 of a plain one')
    >>> pays(StepTimes(17.5, 21.0, 29.0, 4))
    (False, 'a step whose rows agree costs 1.20 of a plain one here')
    """
    consistent, rows = times.consistent_ms / times.plain_ms, times.rows_ms / times.plain_ms
    if consistent > CONSISTENT_LIMIT:
        return False, f"a step whose rows agree costs {consistent:.2f} of a plain one here"
    if rows > 1 + ACCEPTED_SHARE * times.draft:
        return False, f"a step of {times.draft + 1} rows costs {rows:.2f} of a plain one here"
    return True, f"a step of {times.draft + 1} rows costs {rows:.2f} of a plain one"
