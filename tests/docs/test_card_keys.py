"""docs/card-keys.md is what the code gives, and lists the keys that the card's readers accept."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from docs.site.card_keys import PAGE, card_keys_page
from edgekit.errors import CardError
from edgekit.processing.inputs.audio import read_audio
from edgekit.processing.inputs.audio_features import read_features
from edgekit.processing.inputs.image import read_image
from edgekit.processing.inputs.tensor import read_tensor
from edgekit.processing.inputs.text import read_text
from edgekit.processing.latency_contract import read_latency
from edgekit.processing.schedule import read_schedule
from edgekit.processing.task import read_task
from edgekit.processing.task_table import all_tasks

UNKNOWN: dict[str, Any] = {"misspelt": 1}
READERS: dict[str, Callable[[], object]] = {
    "Image inputs": lambda: read_image("x", UNKNOWN, "card"),
    "Audio inputs": lambda: read_audio("x", UNKNOWN, "card"),
    "Audio features": lambda: read_features(UNKNOWN, 16000, "card"),
    "Text inputs": lambda: read_text("x", UNKNOWN, "card"),
    "Tensor inputs": lambda: read_tensor("x", UNKNOWN, "card"),
    "Latency": lambda: read_latency(UNKNOWN, "card"),
    "Schedule": lambda: read_schedule(UNKNOWN, "card"),
}
"""Heading -> its reader with a key that it refuses; the error lists those that it takes."""


def accepted(error: pytest.ExceptionInfo[CardError]) -> set[str]:
    return set(str(error.value).partition("it may have ")[2].split(", "))


def section(heading: str) -> str:
    text = PAGE.read_text("utf-8")
    return text.partition(f"\n{heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def test_the_page_is_what_the_code_gives() -> None:
    assert PAGE.read_text("utf-8") == card_keys_page(), "run python -m docs.site.card_keys"


@pytest.mark.parametrize("heading", READERS)
def test_a_table_lists_the_keys_that_its_reader_accepts(heading: str) -> None:
    with pytest.raises(CardError) as error:
        READERS[heading]()
    listed = set(re.findall(r"^\| `(\w+)` \|", section(f"## {heading}"), re.MULTILINE))
    assert listed == accepted(error) - {"kind"} or listed == accepted(error)
    assert len(listed) >= 2


@pytest.mark.parametrize(
    ("kind", "decode"), [(task.kind, decode) for task in all_tasks() for decode in task.decoders]
)
def test_a_decoder_lists_its_options_and_roles(kind: str, decode: str) -> None:
    text = section(f"### {kind}")
    row = re.search(rf"^\| `{decode}` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert row is not None
    with pytest.raises(CardError) as error:
        read_task({"kind": kind, "decode": decode, **UNKNOWN}, "card")
    options = accepted(error) - {"kind", "decode", "outputs", "labels"}
    assert set(re.findall(r"`(\w+) = ", row[2])) == options
    assert options <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    with pytest.raises(CardError) as error:
        read_task({"kind": kind, "decode": decode, "outputs": UNKNOWN}, "card")
    assert [role for role in accepted(error) if f"`{role}`" not in row[1]] == []


def test_the_how_to_page_names_every_decoder() -> None:
    text = (PAGE.parent / "cards.md").read_text("utf-8")
    for task in all_tasks():
        rows = "\n".join(re.findall(rf"^\| `{task.kind}` \| .*", text, re.MULTILINE))
        assert [decode for decode in task.decoders if f"`{decode}`" not in rows] == [], task.kind
