"""Words that two hypotheses agree on."""

import pytest

from edgekit.processing.transcripts.agreement import LocalAgreement


def test_words_are_committed_once_two_hypotheses_share_them() -> None:
    agreement = LocalAgreement()
    assert agreement.agree("It was the best of time.") == ("", "It was the best of time.")
    assert agreement.agree("it was the best of times, it") == ("it was the best of", " times, it")
    assert agreement.agree("It was the best of times, it was") == (" times, it", " was")
    assert agreement.agree("") == ("", "")
    assert agreement.agree("It was the best of times, it was the") == ("", " was the")


def test_committed_words_are_matched_however_they_are_spelled_later() -> None:
    agreement = LocalAgreement()
    for text in ("we laugh less hotly so", "we laugh less hotly so"):
        agreement.agree(text)
    assert agreement.agree("We laugh less heartily, so we have") == ("", " we have")
    assert agreement.agree("We laugh, less heartily, so we have still") == (" we have", " still")


def test_committed_words_may_become_fewer_or_more() -> None:
    for spelled in ("alright then we", "all of right then we"):
        agreement = LocalAgreement()
        agreement.settle("all right then")
        assert agreement.agree(spelled) == ("", " we")


def test_all_words_are_committed_at_a_pause() -> None:
    agreement = LocalAgreement()
    agreement.agree("fail again")
    assert agreement.settle("fail again. Fail better") == "fail again. Fail better"
    assert agreement.count == 4
    assert agreement.settle("fail again. Fail better. Ever") == " Ever"
    agreement.drop(4)
    assert agreement.agree("Ever tried") == ("", " tried")


@pytest.mark.parametrize(
    ("part", "new", "following"),
    [
        ("so it is good and", " good and", ("", "warm")),  # words of the part that are not committed yet
        ("so it", "", ("", " warm")),  # the part ends amid the committed words: "is" comes after it
        ("", "", ("", "warm")),
    ],
)
def test_a_part_is_closed(part: str, new: str, following: tuple[str, str]) -> None:
    agreement = LocalAgreement()
    agreement.agree("so it is")
    agreement.agree("so it is")
    assert agreement.close(part) == new
    assert agreement.agree("is warm" if part == "so it" else "warm") == following


def test_scripts_without_spaces_have_a_word_for_each_letter() -> None:
    agreement = LocalAgreement()
    agreement.agree("今日は天")
    assert agreement.agree("今日は天気です") == ("今日は天", "気です")
