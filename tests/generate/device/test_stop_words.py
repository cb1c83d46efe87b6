"""Stop words, wherever the text is cut into pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgekit.generate.device.text_tokens import StopWords

short = st.text("ab#", max_size=12)


@given(short, st.lists(st.text("ab#", min_size=1, max_size=4), max_size=3), st.lists(st.integers(0, 12)))
def test_pieces_are_what_stands_before_the_first_stop_word(
    text: str, words: list[str], cuts: list[int]
) -> None:
    edges = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    stop = StopWords(words)
    shown = ""
    for piece in pieces:
        shown += stop.push(piece)
    found = stop.reached
    shown += stop.rest()
    # What ends first is what is found first, piece by piece; of several at one place any may be it.
    ends = [text.find(word) + len(word) for word in words if word in text]
    if not ends:
        assert (shown, found) == (text, False)
    else:
        assert found
        assert text.startswith(shown)
        assert any(text[len(shown) :].startswith(word) for word in words)
        assert not any(word in shown for word in words)
