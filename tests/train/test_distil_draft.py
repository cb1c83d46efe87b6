"""``edgekit model distil --train-draft``: one layer of a tiny language model learns from both layers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.bundle.draft_entry import draft_of
from edgekit.errors import SampleError, UsageError
from edgekit.generate.host.distil.distil_draft import DistilledDraft, distil_draft
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from tests.fixtures.command_line import Call
from tests.fixtures.gguf_files import write_tiny
from tests.train.distillation import StopAt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_tokenizers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def trained(model: Path) -> DistilledDraft:
    return distil_draft(model, layers=1, epochs=4, learning_rate=5e-3, threads=1)


def test_more_of_its_guesses_are_right_after_training(trained: DistilledDraft) -> None:
    assert trained.better
    assert trained.losses[0] > 1.2 * min(trained.losses)
    assert trained.texts == {"training": 192, "validation": 32, "test": 32}
    assert len(trained.losses) == 21
    assert trained.finished
    assert f"accepted tokens  {trained.before:.3f} -> {trained.after:.3f}" in trained.text()


def test_the_module_computes_what_the_reference_does(model: Path) -> None:
    from edgekit.generate.host.distil.draft_training import Cache, hidden, model_weights

    opened = open_language_model(model)
    texts = [[5, 9, 40, 7, 3, 60], [8, 1, 2, 30, 31, 32]]
    weights, tokens, cache = model_weights(opened), torch.tensor(texts), Cache()
    expected = np.stack(ReferenceDecoder(opened).hidden(texts))
    whole = hidden(opened.config, weights, tokens)
    steps = [hidden(opened.config, weights, tokens[:, :3], cache)]
    steps += [hidden(opened.config, weights, tokens[:, at : at + 1], cache) for at in range(3, 6)]
    assert np.allclose(whole.numpy(), expected, atol=1e-5)
    assert np.allclose(torch.cat(steps, 1).numpy(), expected, atol=1e-5)


@pytest.mark.needs_ort
def test_build_takes_what_it_writes(model: Path, trained: DistilledDraft, tmp_path: Path) -> None:
    trained.save(tmp_path / "draft")
    opened, source = open_language_model(tmp_path / "draft"), open_language_model(model)
    assert (opened.config.layers, opened.config.vocabulary) == (1, source.config.vocabulary)
    assert (opened.tokenizer, opened.stop_ids) == (source.tokenizer, source.stop_ids)
    assert opened.chat_template == source.chat_template
    for name in opened.weight_names:
        assert np.array_equal(opened.weight(name), trained.weights[name])
    bundle = edgekit.build(model, targets=["ort"], draft=tmp_path / "draft")
    draft = draft_of(bundle.name, bundle.manifest)
    assert draft is not None
    assert draft.variants[0].verified


def test_what_is_stopped_and_resumed_is_what_was_not_stopped(model: Path, tmp_path: Path) -> None:
    checkpoint, options = tmp_path / "draft.checkpoint", {"layers": 1, "epochs": 1, "threads": 1}
    whole = distil_draft(model, **options)  # type: ignore[arg-type]
    part = distil_draft(model, checkpoint=checkpoint, progress=StopAt(9), **options)  # type: ignore[arg-type]
    assert not part.finished
    assert "stopped, this is the best so far" in part.text()
    again = distil_draft(model, checkpoint=checkpoint, resume=True, **options)  # type: ignore[arg-type]
    assert again.finished
    for name, weight in whole.weights.items():
        assert np.array_equal(weight, again.weights[name]), name
    with pytest.raises(UsageError, match="belongs to another training"):
        distil_draft(model, checkpoint=checkpoint, resume=True, seed=1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "training needs a limit: set epochs, minutes or both"),
        ({"epochs": 0}, "epochs is 0; it must be above 0"),
        ({"epochs": 1, "layers": 2}, "a draft of 2 layers: tiny has 2, and a draft must have fewer"),
        ({"epochs": 1, "resume": True}, "resume needs the checkpoint of the interrupted training"),
    ],
)
def test_options_are_refused_with_the_reason(model: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        distil_draft(model, **options)  # type: ignore[arg-type]
    assert str(raised.value) == message


def test_other_models_and_texts_are_one_error(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "short.txt"
    other.write_text("too short")
    with pytest.raises(UsageError) as raised:
        distil_draft(other, epochs=1)
    assert str(raised.value) == f"{other} is not a language model; pass a GGUF file or a Hugging Face folder"
    with pytest.raises(SampleError, match=r"short\.txt has \d+ tokens; at least 256 are needed"):
        distil_draft(model, samples=other, epochs=1)


def test_the_command_writes_a_folder(model: Path, tmp_path: Path, call: Call) -> None:
    output = tmp_path / "draft"
    given = ["model", "distil", str(model), "--train-draft", "--layers", "1", "--threads", "1"]
    given += ["-o", str(output)]
    done = call(*given, "--epochs", "1", "--learning-rate", "0.005", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["folder"], found["better"]) == (0, str(output), True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft"]
    assert call(*given, "--epochs", "1").exit_code == 2
    wrong = call(
        "model", "distil", str(model), "--train-draft", "--features", "--epochs", "1",
        "-o", str(tmp_path / "x"),
    )  # fmt: skip
    assert wrong.exit_code == 2
    assert "--features: not available with --train-draft; remove it" in wrong.stderr
