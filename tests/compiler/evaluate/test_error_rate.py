from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.error_rate import error_rate
from edgekit.compiler.evaluate.label_files.transcripts import read_transcripts
from edgekit.errors import SampleError
from edgekit.processing.predictions.read_text import TextLine
from edgekit.processing.predictions.transcribe import Transcript
from edgekit.processing.transcripts.words import words_of
from edgekit.tasks.read_text import accuracy as read_text_accuracy
from edgekit.tasks.transcribe import accuracy
from tests.fixtures.cards import CLASSES

PAIRS = [
    ("The cat sat on the mat.", "the cat sit on mat"),
    ("Hello, world!", "hello there world"),
    ("don't stop", ""),
]


def test_the_rate_is_that_of_jiwer() -> None:
    measures = [accuracy.measure(truth, Transcript(text, []), CLASSES) for truth, text in PAIRS]
    scores = accuracy.score(measures, CLASSES)
    assert scores.value(np.ones(3, np.int64)) == pytest.approx(5 / 10)
    assert scores.value(np.array([2, 1, 0])) == pytest.approx((2 * 2 + 1) / (2 * 6 + 2))
    assert (scores.errors.tolist(), scores.labelled) == ([2, 1, 2], 10)
    assert scores.faults[1] == "1 edits: hello there world, labelled Hello, world!"
    jiwer = pytest.importorskip("jiwer")
    truth, texts = ([" ".join(words_of(text)) for text in column] for column in zip(*PAIRS, strict=True))
    assert scores.value(np.ones(3, np.int64)) == pytest.approx(jiwer.wer(truth, texts))


def test_blanks_around_a_line_are_no_errors_as_in_jiwer() -> None:
    truth, texts = ["open coffee", "exit 12"], [" open cofee ", "exit  12 "]
    lines = [TextLine(text, 1.0, np.zeros(0), np.zeros(0)) for text in texts]
    rows = [read_text_accuracy.measure(*pair, CLASSES) for pair in zip(truth, lines, strict=True)]
    rate = read_text_accuracy.score(rows, CLASSES).value(np.ones(2, np.int64))
    assert rate == pytest.approx(2 / 18)
    assert rate == pytest.approx(pytest.importorskip("jiwer").cer(truth, texts))


def test_no_words_have_no_rate() -> None:
    scores = error_rate([accuracy.measure("", Transcript("a", []), CLASSES)])
    assert scores.value(np.ones(1, np.int64)) is None


@pytest.mark.parametrize(
    ("file", "content", "form"),
    [
        ("x/a.txt", "Fail better.\n", "a text next to each file"),
        ("validated.tsv", "client\tpath\tsentence\n1\ta.png\tFail better.\n", "a table of texts"),
        ("1-2.trans.txt", "a Fail better.\n", "a table of texts"),
        ("rec_gt.txt", "x/a.png\tFail better.\n", "a table of texts"),
    ],
)
def test_texts_of_files(tmp_path: Path, file: str, content: str, form: str) -> None:
    (tmp_path / "x").mkdir()
    for name in ("x/a.png", "x/b.png"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / file).write_text(content)
    samples = read_transcripts(tmp_path, CLASSES)
    assert samples.form == form
    assert [(one.name, one.label) for one in samples.samples] == [("x/a.png", "Fail better.")]
    assert list(samples.notes) == ["1 of 2 files have no text and were left out"]


def test_no_texts(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(SampleError) as error:
        read_transcripts(tmp_path, CLASSES)
    assert str(error.value) == (
        f"{tmp_path} has no texts of its 1 pictures. Known formats: NAME.txt next to each file, or a table "
        "(.csv, .tsv) with the columns file and text"
    )
