"""Samples: files and folders of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.compiler.evaluate import sample_files
from edgekit.compiler.evaluate import samples as samples_module
from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.samples import (
    FileSamples,
    Sample,
    load_into_memory,
    load_samples,
    need_answers,
    random_samples,
    read_sample,
    sample_digest,
    sample_digests,
    spread,
    subset,
)
from edgekit.errors import MissingDependency, SampleError
from edgekit.processing.picture_files import read_picture
from edgekit.tensor_spec import TensorSpec

IMAGE = TensorSpec("image", "float32", (1, 2))
TOKENS = TensorSpec("tokens", "int64", (3,))
MISFIT = "does not fit the model's input image float32 1x2"


def test_random_samples_are_the_same_every_time_and_differ_from_each_other() -> None:
    first, again = random_samples([IMAGE, TOKENS]), random_samples([IMAGE, TOKENS])
    assert first.digest == again.digest
    assert first.origin == "2 seeded random inputs"
    assert not np.array_equal(first.arrays[0]["image"], first.arrays[1]["image"])


def test_random_samples_of_an_input_do_not_depend_on_the_other_inputs() -> None:
    alone, together = random_samples([IMAGE]), random_samples([TOKENS, IMAGE])
    assert np.array_equal(alone.arrays[0]["image"], together.arrays[0]["image"])


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float32", -1, 1),
        ("float16", -1, 1),
        ("int64", 0, 1),
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("bool", 0, 1),
    ],
)
def test_default_ranges(dtype: str, low: int, high: int) -> None:
    array = random_samples([TensorSpec("x", dtype, (4096,))]).arrays[0]["x"]
    assert array.dtype == np.dtype(dtype)
    assert array.min() >= low
    assert array.max() <= high
    assert float(array.max()) - float(array.min()) > 0.9 * (high - low)


def test_folder_of_npz_and_npy(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.zeros((1, 2), np.float32))
    np.save(tmp_path / "b.npy", np.ones((1, 2), np.float32))
    (tmp_path / "notes.txt").write_text("not a sample")
    samples = load_samples(tmp_path, [IMAGE])
    assert [float(s["image"].sum()) for s in samples.arrays] == [0.0, 2.0]
    assert samples.origin == "2 files"
    assert load_samples(str(tmp_path / "*.npy"), [IMAGE]).origin == "1 file"


def test_limit_spreads_over_all(tmp_path: Path) -> None:
    given = [{"image": np.full((1, 2), i, np.float32)} for i in range(10)]
    assert [int(s["image"][0, 0]) for s in load_samples(given, [IMAGE], limit=3).arrays] == [0, 3, 6]
    assert spread([1, 2], None) == [1, 2]


def test_the_origin_says_what_was_left_out(tmp_path: Path) -> None:
    """The report says how many of a folder's files were read, and which kinds were not."""
    for index in range(10):
        np.save(tmp_path / f"{index}.npy", np.full((1, 2), index, np.float32))
    assert load_samples(tmp_path, [IMAGE]).origin == "10 files"
    assert load_samples(tmp_path, [IMAGE], limit=4).origin == "4 of 10 files"
    assert load_samples(tmp_path, [IMAGE], limit=1).origin == "1 of 10 files"
    for name in ("a.HEIC", "b.heic", "c.gif", "labels.csv", "Thumbs.db"):
        (tmp_path / name).touch()
    assert load_samples(tmp_path, [IMAGE], limit=4).origin == "4 of 10 files (.gif, .heic: not read)"
    assert load_samples(f"{tmp_path}/*.npy", [IMAGE], limit=4).origin == "4 of 10 files"
    given = [{"image": np.full((1, 2), index, np.float32)} for index in range(5)]
    assert load_samples(given, [IMAGE], limit=2).origin == "2 of 5 samples given"


def test_digest_sees_every_value() -> None:
    one = load_samples([{"image": np.zeros((1, 2), np.float32)}], [IMAGE])
    other = load_samples([{"image": np.array([[0, 1e-30]], np.float32)}], [IMAGE])
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"image": np.zeros((1, 3), np.float32)}, f"sample 0: image float32 1x3 {MISFIT}"),
        ({"picture": np.zeros((1, 2))}, "sample 0 has picture; the model's inputs are image"),
        ({}, "sample 0 has nothing; the model's inputs are image"),
    ],
)
def test_a_sample_that_does_not_fit(sample: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(SampleError) as error:
        load_samples([sample], [IMAGE])
    assert str(error.value) == message


def test_no_samples(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="samples is empty; pass at least one, or None for random samples"):
        load_samples([], [IMAGE])
    with pytest.raises(SampleError) as error:
        load_samples(tmp_path, [IMAGE])
    formats = ".npz, .npy, .jpg, .jpeg, .png, .bmp, .webp, .tif, .tiff, .wav, .mp4, .m4v, .mov, .avi, .mkv"
    formats += ", .webm"
    needed = f"pass a folder or a glob of {formats}"
    assert str(error.value) == f"no samples at {tmp_path}: the folder is empty; {needed}"
    (tmp_path / "notes.txt").write_text("hello", "utf-8")
    with pytest.raises(SampleError) as error:
        load_samples(tmp_path, [IMAGE])
    assert str(error.value) == f"no samples at {tmp_path}: the folder has notes.txt; {needed}"
    with pytest.raises(SampleError) as error:
        load_samples(tmp_path / "absent", [IMAGE])
    assert str(error.value) == f"no samples at {tmp_path / 'absent'}: nothing found; {needed}"


def test_npy_for_a_model_with_two_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(SampleError) as error:
        read_sample(tmp_path / "a.npy", [IMAGE, TOKENS], None)
    assert str(error.value) == (
        f"{tmp_path / 'a.npy'} has one array, but the model has 2 inputs (image, tokens); use .npz"
    )


def test_picture_without_a_card(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    with pytest.raises(SampleError) as error:
        read_sample(tmp_path / "a.jpg", [IMAGE], None)
    path = tmp_path / "a.jpg"
    assert (
        str(error.value) == f"{path} is a picture, which needs a card to become an input; add --card: "
        "`edgekit model card MODEL -o card.toml` drafts one, in Python edgekit.draft_card"
    )


def test_picture_is_turned_upright(tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[0, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: turn by 90 degrees clockwise to show
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    picture = read_picture(tmp_path / "a.png")
    assert picture.shape == (4, 2, 3)
    assert picture[0, 1].tolist() == [255, 255, 255]


def test_a_picture_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SampleError) as error:
        read_picture(tmp_path / "absent.png")
    assert str(error.value) == f"{tmp_path / 'absent.png'}: file not found"
    with pytest.raises(SampleError) as error:
        read_picture(tmp_path)
    assert str(error.value) == f"{tmp_path} can't be read as a picture: it is not a regular file"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.npy", "file not found"),
        ("folder", "is not a file"),
        ("notes.doc", "is not one of .npz, .npy, .jpg, .jpeg, .png, .bmp, .webp, .tif, .tiff, .wav"),
    ],
)
def test_what_is_no_sample_file(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.doc").touch()
    with pytest.raises(SampleError) as error:
        read_sample(tmp_path / name, [IMAGE], None)
    assert str(error.value).replace(": ", " ") == f"{tmp_path / name} {message}"


def test_a_suffix_in_capitals_is_the_same(tmp_path: Path) -> None:
    with (tmp_path / "X.NPY").open("wb") as file:
        np.save(file, np.ones((1, 2), np.float32))
    assert read_sample(tmp_path / "X.NPY", [IMAGE], None)["image"].sum() == 2


def _write(folder: Path, count: int) -> str:
    for index in range(count):
        np.save(folder / f"{index}.npy", np.full((1, 2), index, np.float32))
    return str(folder / "*.npy")


def test_files_and_memory_have_the_same_digest(tmp_path: Path) -> None:
    from_files = load_samples(_write(tmp_path, 5), [IMAGE])
    in_memory = load_samples([{"image": np.full((1, 2), i, np.float32)} for i in range(5)], [IMAGE])
    assert from_files.digest == in_memory.digest
    assert list(sample_digests(from_files.arrays)) == list(sample_digests(in_memory.arrays))
    # Fixed: bundles name it.
    assert from_files.digest == "9abbd25891682ad1f3df5262663a830cdcb67d5e4901a9ffac119a486c935d09"


def test_files_are_read_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(path: Path, *args: Any) -> Sample:
        read.append(path.stem)
        return read_sample(path, *args)

    monkeypatch.setattr(samples_module, "CACHED_BYTES", 20)  # two samples of 8 bytes
    arrays = load_samples(_write(tmp_path, 5), [IMAGE]).arrays
    monkeypatch.setattr(samples_module, "read_sample", counted)
    assert [float(sample["image"][0, 0]) for sample in arrays] == [0, 1, 2, 3, 4]
    assert float(arrays[-1]["image"][0, 0]) == 4
    assert read == ["2", "3", "4", "4"]
    some = subset(arrays[1:], [3, 0])
    assert isinstance(some, FileSamples)
    assert read == ["2", "3", "4", "4"]
    assert [float(sample["image"][0, 0]) for sample in some] == [4, 1]
    assert list(some.digests) == [sample_digest(sample) for sample in some]
    with pytest.raises(IndexError):
        some[2]
    assert load_into_memory(arrays) is arrays  # 40 bytes
    two = load_into_memory(arrays[3:])
    read.clear()
    assert [float(sample["image"][0, 0]) for sample in two] == [3, 4]
    assert read == []


def test_a_file_that_changed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "CACHED_BYTES", 0)
    arrays = load_samples(_write(tmp_path, 1), [IMAGE]).arrays
    np.save(tmp_path / "0.npy", np.full((1, 2), 7, np.float32))
    with pytest.raises(SampleError) as error:
        arrays[0]
    path = tmp_path / "0.npy"
    assert str(error.value) == (f"{path} changed during the build; run it again without changing the samples")


def test_a_file_that_does_not_fit_is_told_at_once(tmp_path: Path) -> None:
    pattern = _write(tmp_path, 3)
    np.save(tmp_path / "2.npy", np.zeros((1, 3), np.float32))
    with pytest.raises(SampleError, match=r"2\.npy: image float32 1x3 does not fit"):
        load_samples(pattern, [IMAGE])


def test_a_device_without_pillow_is_told_the_one_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # as if it were not installed
    with pytest.raises(MissingDependency) as error:
        read_picture(tmp_path / "street.jpg")
    assert str(error.value) == "pillow is not installed, and reading a picture needs it: pip install pillow"


def test_an_array_that_nearly_fits_is_told_what_to_do() -> None:
    def refused(array: np.ndarray) -> str:
        with pytest.raises(SampleError) as error:
            load_samples([{"image": array}], [IMAGE])
        return str(error.value)

    assert refused(np.zeros((1, 2))) == (
        f"sample 0: image float64 1x2 {MISFIT}; convert it with .astype('float32')"
    )
    assert refused(np.zeros(2, np.float32)) == (
        f"sample 0: image float32 2 {MISFIT}; add the batch axis with array[None]"
    )
    assert refused(np.zeros((2, 1), np.float32)) == f"sample 0: image float32 2x1 {MISFIT}"


def test_answers_of_nan_alone_prove_nothing() -> None:
    nothing = {"y": np.full(3, np.nan, np.float32), "z": np.array([np.nan])}
    with pytest.raises(SampleError, match="2 files: the source model's outputs are all NaN"):
        need_answers("2 files", [nothing, nothing])
    need_answers("2 files", [nothing, {**nothing, "z": np.array([np.inf])}])
    need_answers("2 files", [{"y": np.array([1])}])
    need_answers("2 files", [{"y": np.zeros((0, 3), np.float32)}])


SUFFIXES = (".npy", ".jpg")


def tree(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def found(source: Path | str, folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in find_files(str(source), SUFFIXES)]


def test_a_folder_is_searched_and_those_below_it_on_request(tmp_path: Path) -> None:
    tree(tmp_path, "b.jpg", "a.JPG", "note.txt", "cats/1.jpg", "cats/more/2.npy", ".git/3.jpg", "cats/.4.jpg")
    assert found(tmp_path, tmp_path) == ["a.JPG", "b.jpg"]
    assert found(tmp_path / "**", tmp_path) == ["a.JPG", "b.jpg", "cats/1.jpg", "cats/more/2.npy"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    tree(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    assert found(tmp_path / "**", tmp_path) == ["a/1.jpg"]


def test_names_with_the_characters_of_patterns(tmp_path: Path) -> None:
    tree(tmp_path, "[1]/a[2]*?.jpg", "[1]/b ü\n.npy")
    assert found(tmp_path / "[1]", tmp_path) == ["[1]/a[2]*?.jpg", "[1]/b ü\n.npy"]
    assert found(tmp_path / "[1]" / "a[2]*?.jpg", tmp_path) == ["[1]/a[2]*?.jpg"]


def test_a_glob_takes_what_it_names(tmp_path: Path) -> None:
    tree(tmp_path, "a/1.jpg", "b/2.jpg", "b/3.txt")
    assert found(f"{tmp_path}/*/*.jpg", tmp_path) == ["a/1.jpg", "b/2.jpg"]


def test_a_folder_that_has_samples_only_below_says_how(tmp_path: Path) -> None:
    tree(tmp_path, "cats/1.jpg", "dogs/1.jpg")
    with pytest.raises(SampleError) as error:
        find_files(str(tmp_path), SUFFIXES)
    assert str(error.value) == (
        f"no samples at {tmp_path}: the folder has cats, dogs; to search folders, add --recursive "
        f"({tmp_path / '**'}); pass a folder or a glob of .npy, .jpg"
    )


def test_nothing_below_a_folder(tmp_path: Path) -> None:
    tree(tmp_path, "cats/1.txt")
    with pytest.raises(SampleError) as error:
        find_files(str(tmp_path / "**"), SUFFIXES)
    assert str(error.value) == (
        f"no samples at {tmp_path / '**'}: no file below {tmp_path} has one of these endings; pass a folder "
        "or a glob of .npy, .jpg"
    )


def test_a_folder_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a/1.txt", "b/2.txt", "c/3.jpg")
    monkeypatch.setattr(sample_files, "ENTRIES_LIMIT", 2)
    with pytest.raises(SampleError, match="has more than 2 files below it; use a smaller folder"):
        find_files(str(tmp_path / "**"), SUFFIXES)
