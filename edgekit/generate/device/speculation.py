"""Speculative decoding: several tokens proposed at little cost, verified in one step of the decoder.

    draft = proposer.propose(tokens, limit=4)            # a guess at what follows
    rows = logits of tokens + draft, the last len(draft) + 1 rows
    new = verified(draft, rows, choose)                 # the decoder's own tokens, at least one

``choose`` is the function that plain decoding calls for each row, with the same state: sampling with a seed,
a repetition penalty and a grammar included. So the text is that of plain decoding, token for token, if the
rows are those of single steps, bit for bit. On engines that round them differently, another token may be
chosen where two are nearly as likely; ``auto`` does not speculate there. Leviathan et al. 2023 (arXiv
2211.17192) for a draft that is not drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from edgekit.tensor_spec import Array, Json


class Proposer(Protocol):
    """Guesses the next tokens of one generation."""

    def propose(self, tokens: Sequence[int], limit: int) -> list[int]:
        """Propose the next tokens.

        Args:
            tokens: The prompt and the answer so far; each call extends those of the last one.
            limit: Maximum number of proposed tokens.

        Returns:
            The proposed tokens; may be empty.
        """


def verified(draft: Sequence[int], rows: Array, choose: Callable[[Array], int | None]) -> list[int]:
    """Verify a draft: return the decoder's own tokens, the draft's as far as they agree, and the next one.

    Args:
        draft: Proposed tokens.
        rows: float32 [len(draft) + 1, vocabulary]: row i has the logits after the first i of the draft.
        choose: Function that returns the decoder's own token of a row; called once for each returned
            token, in order. None ends the text.

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
    """Proposer that repeats what followed the last tokens before (Saxena 2023, prompt lookup decoding).

    Effective where an answer repeats its prompt: a correction, a summary, code. The index grows with the
    text; a proposal costs a few look-ups.

    Args:
        longest: Length of the longest n-gram, which is looked up first.
        shortest: Length of the shortest; one token is too little to guess by.
    """

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        self._read = 0

    def propose(self, tokens: Sequence[int], limit: int) -> list[int]:
        """Return at most ``limit`` tokens that followed the last n-gram before; empty if it is new."""
        # An n-gram is entered once something follows it: the last one must not find itself.
        for end in range(max(self._read, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._ends[tuple(tokens[end - size : end])] = end
        self._read = len(tokens)
        for size in self._sizes:
            position = self._ends.get(tuple(tokens[-size:])) if size <= len(tokens) else None
            if position is not None:
                return list(tokens[position : position + limit])
        return []


LOOKUP, DRAFT = "lookup", "draft"


class Speculation(NamedTuple):
    """Speculation settings of a session.

    Attributes:
        max_tokens: Maximum tokens of a proposal.
        break_even: Tokens that a step with a proposal must make to be worth its time. For a text that makes
            fewer, nothing is proposed any more.
        proposer: Kind of proposer: LOOKUP or DRAFT.
        pads: Whether single tokens are computed like several, which the engine rounds differently.
    """

    on: bool = False
    reason: str = "it was not asked for"
    max_tokens: int = 4
    break_even: float = 1.0
    proposer: str = LOOKUP
    pads: bool = False

    def goes_on(self, steps: int, accepted: int) -> bool:
        """Return whether to propose further, after so many steps with a proposal and ``accepted`` tokens."""
        return steps < TRIAL_STEPS or steps + accepted >= self.break_even * steps

    def as_json(self) -> dict[str, Json]:
        """Return ``on`` and ``why``, and ``by`` if it is on."""
        return {"on": self.on, "why": self.reason, **({"by": self.proposer} if self.on else {})}


TRIAL_STEPS = 8
"""Steps with a proposal before a text is judged."""


class StepTimes(NamedTuple):
    """Times of one step on this device, in ms: of one row, and of many.

    Attributes:
        plain_ms: One token.
        rows_ms: ``1 + draft`` tokens.
        is_exact: Whether the logits of several rows were those of single steps, bit for bit.
    """

    plain_ms: float
    rows_ms: float
    draft: int
    is_exact: bool = True


INEXACT = "a step of {rows} rows rounds differently than {rows} steps here, which may change a text"
ACCEPTED_SHARE = 0.5
"""Of a proposal on texts that repeat their prompt; 1.5 to 1.7 tokens a step were measured."""


def pays(times: StepTimes) -> tuple[bool, str]:
    """Return whether speculation is faster on this device and does not change texts, and why.

    >>> pays(StepTimes(40.0, 55.0, 4))
    (True, 'a step of 5 rows costs 1.38 of a plain one')
    >>> pays(StepTimes(40.0, 55.0, 4, is_exact=False))
    (False, 'a step of 5 rows rounds differently than 5 steps here, which may change a text')
    """
    if not times.is_exact:
        return False, INEXACT.format(rows=times.draft + 1)
    rows = times.rows_ms / times.plain_ms
    if rows > 1 + ACCEPTED_SHARE * times.draft:
        return False, f"a step of {times.draft + 1} rows costs {rows:.2f} of a plain one here"
    return True, f"a step of {times.draft + 1} rows costs {rows:.2f} of a plain one"


GAIN_LEAST = 1.05
"""A draft that is expected to bring less is not worth its memory."""


class DraftGain(NamedTuple):
    """Expected gain of a draft.

    Attributes:
        max_tokens: The best number of tokens in a proposal.
        gain: Time of plain decoding relative to that with the draft, for the same text.
        cost_ms: Time of one step with a proposal, in ms, including the draft's own time.
    """

    max_tokens: int
    gain: float
    cost_ms: float


def draft_gain(times: StepTimes, draft_ms: float, agreement: float) -> DraftGain:
    """Choose the best length of a draft's proposals. A step makes (1 - a^(k+1)) / (1 - a) tokens of k
    proposed ones (Leviathan et al. 2023, equation 1), and costs k steps of the draft and one of k + 1 rows.

    Args:
        times: Times of the large decoder's steps.
        draft_ms: Time of one token of the draft, in ms.
        agreement: Share ``a`` of the draft's tokens that are the large decoder's, 0 to 1.

    >>> found = draft_gain(StepTimes(40.0, 52.0, 4), 4.0, 0.8)
    >>> found.max_tokens, round(found.gain, 2), found.cost_ms
    (4, 1.98, 68.0)
    >>> draft_gain(StepTimes(40.0, 52.0, 4), 12.0, 0.2).gain < 1
    True
    """

    def gain(limit: int) -> DraftGain:
        token_count = sum(agreement**index for index in range(limit + 1))
        rows_ms = times.plain_ms + (times.rows_ms - times.plain_ms) * limit / times.draft
        cost_ms = rows_ms + limit * draft_ms
        return DraftGain(limit, token_count * times.plain_ms / cost_ms, cost_ms)

    return max((gain(length) for length in range(1, times.draft + 1)), key=lambda expected: expected.gain)


def draft_pays(times: StepTimes, draft_ms: float, agreement: float) -> tuple[bool, str, DraftGain]:
    """Return whether to use a draft: it is faster on this device and does not change texts; and why."""
    gain = draft_gain(times, draft_ms, agreement)
    if not times.is_exact:
        return False, INEXACT.format(rows=times.draft + 1), gain
    share = draft_ms / times.plain_ms
    reason = (
        f"a token of the draft costs {share:.2f} of a plain step here and {agreement:.2f} of them are right: "
        f"{gain.gain:.2f} times the speed is expected with {gain.max_tokens} a step"
    )
    return gain.gain >= GAIN_LEAST, reason, gain
