"""Cards as files: those of the samples, and what lies next to a card."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.errors import CardError
from edgekit.processing import load_card
from edgekit.processing.card import CARD_LIMIT_BYTES, LABELS_LIMIT_BYTES, parse_card
from tests.fixtures.cards import TOML, X, altered


def test_labels_are_a_regular_file_of_some_size(tmp_path: Path) -> None:
    """A pipe would be waited for, for ever; a link would carry off another file of the machine."""
    path, names = tmp_path / "card.toml", tmp_path / "names.txt"
    path.write_text(TOML, "utf-8")
    secret = tmp_path / "secret"
    secret.write_text("person\n", "utf-8")

    def refusal() -> str:
        with pytest.raises(CardError) as error:
            load_card(path)
        return str(error.value).replace(f"{names} can't be read as labels: ", "")

    os.mkfifo(names)
    assert refusal() == "it is not a regular file"
    names.unlink()
    names.mkdir()
    assert refusal() == "it is not a regular file"
    names.rmdir()
    for goal in (secret, Path("/dev/zero"), tmp_path / "nowhere"):
        names.symlink_to(goal)
        assert refusal() == "it is a symbolic link; replace it by the file that it leads to"
        names.unlink()
    names.write_bytes(b"x\n" * (LABELS_LIMIT_BYTES // 2) + b"x")
    assert refusal() == "it has more than 4 MB"
    path.write_text(TOML.replace("names.txt", "a\\u0000b"), "utf-8")
    assert refusal() == f"{tmp_path}/a\\x00b can't be read as labels: its name contains a zero byte"


def test_a_card_is_a_regular_file_of_some_size(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    os.mkfifo(path)
    with pytest.raises(CardError, match=r"card\.toml can't be read as a card: it is not a regular file$"):
        load_card(path)
    path.unlink()
    path.write_bytes(b"#" * (CARD_LIMIT_BYTES + 1))
    with pytest.raises(CardError, match=r"card\.toml can't be read as a card: it has more than 1 MB$"):
        load_card(path)
    path.unlink()
    (tmp_path / "other.toml").write_text(TOML.replace('"names.txt"', "[]"), "utf-8")
    path.symlink_to(tmp_path / "other.toml")  # its name comes from the user
    assert load_card(path).title == "detector"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = " + "[" * 5000, "its lists or tables are nested too deep"),
        ("x = " + "9" * 5000, "a number of thousands of digits"),
        ("x = [0, {y = 0x" + "f" * 6000 + "}]", "a whole number of 24000 bits; the limit is 64"),
    ],
)
def test_toml_that_python_chokes_on(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "card.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(CardError) as error:
        load_card(path)
    assert str(error.value) == f"{path} is not valid TOML: {why}"


@pytest.mark.parametrize(("key", "value"), [("std", [1, 1e-40, 1]), ("mean", [0, 0, 1e300])])
def test_what_no_float32_holds(key: str, value: list[float]) -> None:
    with pytest.raises(CardError) as error:
        parse_card(altered(X + key, value))
    assert str(error.value) == (
        "card: inputs.images: (pixel - mean) / std is beyond float32; correct mean or std"
    )


def test_whole_numbers_that_no_float_holds() -> None:
    with pytest.raises(CardError) as error:
        parse_card(altered("task/score", 10**400))
    assert str(error.value) == "card: task.score is too large; it must be a number that 64 bits hold"
    with pytest.raises(CardError, match=r"^card: inputs\.images\.mean is .*list of finite numbers$"):
        parse_card(altered(X + "mean", [1, 10**400, 1]))


CARDS = sorted((Path(__file__).resolve().parents[2] / "samples" / "cards").glob("*.toml"))


@pytest.mark.parametrize("path", CARDS, ids=[path.stem for path in CARDS])
def test_a_card_is_read_and_carried(path: Path) -> None:
    card = load_card(path)
    assert parse_card(card.as_json()) == card


def test_there_are_cards() -> None:
    assert len(CARDS) >= 18
