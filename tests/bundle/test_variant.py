from __future__ import annotations

import re

import pytest

from edgekit.bundle.variant import Status, Variant, parse_status, status_text


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("verified on LiteRT 2.3.0", Status.VERIFIED, "on LiteRT 2.3.0"),
        ("verified", Status.VERIFIED, ""),
        ("rejected: output y: SNR 3 dB", Status.REJECTED, "output y: SNR 3 dB"),
        ("not run: verified nowhere", Status.NOT_RUN, "verified nowhere"),
    ],
)
def test_a_status_is_text_that_is_parsed_in_one_place(text: str, status: Status, reason: str) -> None:
    assert parse_status(text) == (status, reason)
    assert status_text(status, reason) == text
    variant = Variant("v", "t", "t", "fp32", {}, {}, text)
    assert (variant.status, variant.outcome, variant.reason) == (text, status, reason)
    assert (variant.verified, variant.rejected) == (status is Status.VERIFIED, status is Status.REJECTED)


@pytest.mark.parametrize("text", ["verified: on X", "verified, on X"])
def test_what_stands_between_verified_and_the_engine_may_be_anything(text: str) -> None:
    assert parse_status(text) == (Status.VERIFIED, "on X")


@pytest.mark.parametrize(
    "text", ["", "verifiedly", "verified_on X", "rejected", "rejected: ", "not run", "Rejected: X", "ok"]
)
def test_what_is_no_status(text: str) -> None:
    expected = f"{text!r} is neither verified, 'rejected: why' nor 'not run: why'"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        parse_status(text)


@pytest.mark.parametrize(
    ("status", "usable"), [("verified on X", True), ("not run: no engine", True), ("rejected: slow", False)]
)
def test_usable_variants(status: str, usable: bool) -> None:
    assert Variant("v", "t", "t", "fp32", {"a": "b"}, {}, status).usable is usable
    assert Variant("v", "t", "t", "fp32", {}, {}, status).usable is False
