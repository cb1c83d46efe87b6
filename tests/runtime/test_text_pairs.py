"""A reranker from its card to a session: a question and a passage go in together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.cli import main
from edgekit.compiler.card_inference.draft import draft_card
from edgekit.processing.card import load_card
from edgekit.runtime import Session
from tests.fixtures.texts import TOKENIZER, reranker

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]

QUESTION = "the food"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the card that is drafted for it."""
    folder = tmp_path_factory.mktemp("reranker")
    model = reranker(folder / "reranker.onnx")
    (folder / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    draft = draft_card(model)
    assert draft.card.task is not None
    assert (draft.card.task.kind, draft.card.task.decode) == ("rank", "logit")
    assert "inputs.input_ids.pair" in draft.guessed
    (folder / "card.toml").write_text(draft.text, "utf-8")
    card = load_card(folder / "card.toml")
    edgekit.build(model, targets=["ort"], card=card).save(folder / "reranker.edgekit")
    return folder / "reranker.edgekit"


def test_passages_are_ordered_by_a_session(bundle: Path) -> None:
    passages = ["it was bad", "good good", "it was good"]
    with Session(bundle) as session:
        scores = {passage: session.predict((QUESTION, passage)).score for passage in passages}
        assert sorted(passages, key=scores.__getitem__, reverse=True) == [
            "good good", "it was good", "it was bad",
        ]  # fmt: skip
        assert scores["good good"] == pytest.approx(1 / (1 + np.exp(-2)))
        # What is in the question does not count, and one str has a tab between the two.
        assert session.predict("good good\tit was").score == 0.5
        with pytest.raises(edgekit.EdgeKitError) as error:
            session.predict("good")
    assert str(error.value) == (
        "the model reads a pair of texts: pass a pair, or one str with a tab between them"
    )


def test_the_command_takes_a_tab(bundle: Path) -> None:
    done = CliRunner().invoke(main, ["run", str(bundle), "--text", f"{QUESTION}\tgood"])
    assert done.exit_code == 0, done.output
    assert "0.7311" in done.output
