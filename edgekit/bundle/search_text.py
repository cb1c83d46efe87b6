"""Text on the int8 search of a target: how much was measured, and what more time could add."""

from __future__ import annotations

import math

from edgekit.tensor_spec import Json

BUDGET_STEP_S = 30
"""A time budget is suggested in multiples of this."""


def searched(search: Json) -> str:
    """Return how many candidates an int8 search measured, how many were chosen, and how to measure the rest.

    >>> searched({"tried": [{"lost": ""}], "left_out": 4, "limit_s": 9.0})
    '1 of 5 int8 candidates measured within 9 s, 1 chosen; build again with --time-budget 60 for the rest'
    """
    tried, left_out = len(search["tried"]), search.get("left_out", 0)
    chosen_count = sum(not candidate["lost"] for candidate in search["tried"])
    chosen = f"{chosen_count} chosen" if chosen_count else "none good enough"
    if not left_out:
        resumed = "; the search began with what the last build shipped" if search.get("resumed") else ""
        return f"{tried} int8 candidate{'s' if tried != 1 else ''} measured, {chosen}{resumed}"
    count = f"{tried} of {tried + left_out} int8 candidates measured"
    limit = f"{search['limit_s']:g} s" if "limit_s" in search else "the time limit"
    return f"{count} within {limit}, {chosen}; {more_time(search)} for the rest"


def more_time(search: Json) -> str:
    """Return what to do for an int8 search to measure what it left out. Measurements are kept in the cache.

    >>> more_time({"tried": [1] * 14, "left_out": 6, "limit_s": 60.0})
    'build again with --time-budget 90'
    """
    if "limit_s" not in search:
        return "build again"
    tried = max(len(search["tried"]), 1)
    needed_s = search["limit_s"] * (tried + search["left_out"]) / tried
    return f"build again with --time-budget {max(math.ceil(needed_s / BUDGET_STEP_S), 1) * BUDGET_STEP_S}"
