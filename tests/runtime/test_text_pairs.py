"""A reranker from its card to a session: a question and a passage go in together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.cards.card import load_card
from edgekit.cli import main
from edgekit.drafting.draft import draft_card
from edgekit.runtime import Session
from tests.fixtures.texts import BAD, GOOD, LENGTH, TOKENIZER, WORDS

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]

QUESTION = "the food"


def reranker(path: Path) -> Path:
    """Counts good less bad, in the second text only: score [1, 1]."""
    rows = np.zeros((WORDS, 1), np.float32)
    rows[GOOD], rows[BAD] = 1, -1
    constants: dict[str, Any] = {"rows": rows, "last": np.array([2]), "both": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["rows", "input_ids"], ["known"]),
        helper.make_node("Mul", ["attention_mask", "token_type_ids"], ["second"]),
        helper.make_node("Cast", ["second"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "last"], ["wide"]),
        helper.make_node("Mul", ["known", "wide"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "both"], ["score"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "reranker",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, [1, LENGTH])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


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
        "the model reads two texts together: give a pair of them, or one str with a tab between"
    )


def test_the_command_takes_a_tab(bundle: Path) -> None:
    done = CliRunner().invoke(main, ["run", str(bundle), "--text", f"{QUESTION}\tgood"])
    assert done.exit_code == 0, done.output
    assert "0.7311" in done.output
