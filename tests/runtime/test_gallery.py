"""A gallery finds what is nearest, and a stored one is the same; files that are none are refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import UsageError
from edgekit.processing.predictions.embed import Embedding
from edgekit.runtime import Gallery
from edgekit.runtime.gallery import Match

Array = npt.NDArray[Any]


def made(*entries: tuple[str, list[float]]) -> Gallery:
    gallery = Gallery()
    for name, vector in entries:
        gallery.add(name, Embedding(np.array(vector, np.float32)))
    return gallery


def test_the_nearest_come_first() -> None:
    gallery = made(("east", [2, 0]), ("north", [0, 3]), ("northeast", [1, 1]))
    found = gallery.search(np.array([1.0, 0.1]), top=2)
    assert [match.name for match in found] == ["east", "northeast"]
    assert found[0].score == pytest.approx(1 / 1.01**0.5)
    assert gallery.search(np.array([1.0, 0.1]), least=0.9) == [found[0]]
    assert [match.name for match in gallery.search(np.array([0.0, -1.0]))] == ["east", "northeast", "north"]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 9), st.integers(0, 99))
def test_a_search_is_a_sort_of_all(count: int, width: int, top: int, seed: int) -> None:
    """With few different vectors, so that many are equally near: those keep their order."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(1, 3, (count, width)).astype(np.float32)
    gallery, query = Gallery(), rng.integers(1, 3, width)
    for index, vector in enumerate(vectors):
        gallery.add(str(index), vector)
    scores = gallery.vectors @ (query / np.linalg.norm(query)).astype(np.float32)
    expected = np.argsort(-scores, kind="stable")[:top]
    assert [int(match.name) for match in gallery.search(query, top=top)] == expected.tolist()


def test_it_grows_and_shrinks() -> None:
    gallery = Gallery()
    assert gallery.search(np.ones(3)) == []
    for index in range(100):
        gallery.add("odd" if index % 2 else "even", np.eye(100)[index])
    assert (len(gallery), gallery.vectors.shape) == (100, (100, 100))
    assert gallery.remove("odd") == 50
    assert gallery.search(np.eye(100)[4], top=1) == [Match("even", 1.0)]
    assert gallery.remove("nobody") == 0
    assert gallery.remove("even") == 50
    gallery.add("other", np.ones(3))  # an empty gallery has no size
    assert gallery.vectors.shape == (1, 3)


def test_it_is_stored(tmp_path: Path) -> None:
    gallery = made(("Ada", [1, 2, 3]), ("Zoë", [3, 2, 1]))
    gallery.save(tmp_path / "faces.npz")
    same = Gallery.open(tmp_path / "faces.npz")
    assert same.names == ["Ada", "Zoë"]
    np.testing.assert_array_equal(same.vectors, gallery.vectors)
    same.add("Bob", np.ones(3))
    assert len(same) == 3


@pytest.mark.parametrize(
    ("vector", "text"),
    [
        (np.ones(3), "an embedding must be a vector of 2 values, not [3]"),
        (np.ones((1, 2)), "an embedding must be a vector of 2 values, not [1, 2]"),
        (np.zeros(2), "the embedding is zero or not finite, so it has no nearest neighbour"),
        (np.array([np.nan, 1]), "the embedding is zero or not finite, so it has no nearest neighbour"),
    ],
)
def test_what_is_no_embedding(vector: Array, text: str) -> None:
    gallery = made(("a", [1, 2]))
    for call in (lambda: gallery.search(vector), lambda: gallery.add("b", vector)):
        with pytest.raises(UsageError) as error:
            call()
        assert str(error.value) == text
    assert len(gallery) == 1
    with pytest.raises(UsageError) as error:
        gallery.search(np.ones(2), top=0)
    assert str(error.value) == "top is 0; it must be at least 1"
    with pytest.raises(UsageError) as error:
        Gallery().add("a", np.zeros(0))
    assert str(error.value) == "an embedding must be a vector of at least one value, not [0]"


def test_what_can_not_be_stored(tmp_path: Path) -> None:
    for gallery, why in ((Gallery(), "it is empty"), (made(("a\0", [1, 2])), "a name ends with NUL")):
        with pytest.raises(UsageError) as error:
            gallery.save(tmp_path / "g.npz")
        assert str(error.value) == f"{tmp_path / 'g.npz'}: the gallery can't be stored: {why}"
    assert not list(tmp_path.iterdir())


UNIT = np.array([[1.0, 0.0]], np.float32)
BROKEN = [
    ({"names": np.array(["a"])}, "'vectors is not a file in the archive'"),
    ({"names": np.array(["a"]), "vectors": UNIT.astype(np.float64)}, None),
    ({"names": np.array([b"a"]), "vectors": UNIT}, "names are |S1 and vectors float32, not text and float32"),
    ({"names": np.array(["a", "b"]), "vectors": UNIT}, "names are [2] and vectors [1, 2]"),
    ({"names": np.array(["a"]), "vectors": UNIT * 2}, "vectors do not have length 1"),
    ({"names": np.array(["a"]), "vectors": UNIT * np.nan}, "vectors do not have length 1"),
    ({"names": np.array(["a", None]), "vectors": UNIT}, None),  # a pickle
]


@pytest.mark.parametrize(("content", "why"), BROKEN)
def test_files_that_are_no_gallery(tmp_path: Path, content: dict[str, Array], why: str | None) -> None:
    path = tmp_path / "g.npz"
    np.savez(path, **content)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as error:
        Gallery.open(path)
    start = f"{path} can't be read as a gallery: "
    assert str(error.value).startswith(start)
    assert why is None or str(error.value) == start + why


def test_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g.npz"
    with pytest.raises(UsageError) as error:
        Gallery.open(path)
    assert str(error.value) == f"{path} can't be read as a gallery: No such file or directory"
    path.write_bytes(b"PK, but no archive")
    with pytest.raises(UsageError) as error:
        Gallery.open(path)
    assert str(error.value) == f"{path} can't be read as a gallery: File is not a zip file"
    monkeypatch.setattr("edgekit.runtime.gallery.LIMIT_BYTES", 1 << 30)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb, bomb.open("names.npy", "w") as part:
        for _ in range(1025):
            part.write(bytes(1 << 20))
    with pytest.raises(UsageError) as error:
        Gallery.open(path)
    assert str(error.value) == f"{path} can't be read as a gallery: it unpacks to more than 1 GB"
