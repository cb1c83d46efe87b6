"""Differences between bundles: the result is the file, byte for byte; a bad one costs nothing but time."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.release.updates.delta import BLOCK, HEAD, MAGIC, DeltaError, _content, apply_delta, make_delta
from tests.fixtures.bundles import small_bundle, variant
from tests.release.updates.conftest import World

zstandard = pytest.importorskip("zstandard")


def weights(seed: int, steps: float = 0.0) -> bytes:
    """400,000 int8 numbers, a share of them one step off, then 20,000 float32 ones at an odd offset."""
    draw = np.random.default_rng(0)
    base = np.clip(draw.standard_normal(400_000) * 30, -127, 127).astype(np.int8)
    floats = draw.standard_normal(20_000).astype(np.float32)
    other = np.random.default_rng(seed)
    moved = np.where(other.random(base.size) < steps, other.choice(np.array([-1, 1]), base.size), 0)
    floats += np.float32(steps * 1e-3) * other.standard_normal(floats.size).astype(np.float32)
    return (base + moved).astype(np.int8).tobytes() + b"odd" + floats.tobytes()


def bundle(path: Path, content: bytes, **others: bytes) -> Path:
    return small_bundle([variant("v", "ort")], {"weights/v.bin": content, **others}).save(path)


def delta_of(old: Path, new: Path) -> Path:
    path = new.with_suffix(".delta")
    with open(path, "wb") as out:
        make_delta(old, new, out)
    return path


def test_weights_of_another_layout_are_compared_by_name(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import numpy_helper

    draw = np.random.default_rng(0)
    base = {f"w{n}": np.clip(draw.standard_normal(50_000) * 30, -127, 127).astype(np.int8) for n in range(4)}
    moved = {name: values + (draw.random(values.size) < 0.1).astype(np.int8) for name, values in base.items()}
    paths = []
    for file, names, values in (("a", "w0 w1 w2 w3", base), ("b", "w3 extra w0 w2 w1", moved)):
        named: dict[str, Any] = {**values, "extra": np.arange(1000, dtype=np.float32)}
        graph = onnx.GraphProto(initializer=[numpy_helper.from_array(named[n], n) for n in names.split()])
        content = onnx.ModelProto(graph=graph).SerializeToString()
        paths.append(
            small_bundle([variant("v", "ort")], {"v/model.onnx": content}).save(tmp_path / f"{file}.edgekit")
        )
    delta = delta_of(*paths)
    made = io.BytesIO()
    apply_delta(paths[0], delta, made)
    assert made.getvalue() == paths[1].read_bytes()
    assert delta.stat().st_size < 0.2 * paths[1].stat().st_size


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return bundle(tmp_path / "old.edgekit", weights(0))


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        (weights(0), 0.02),  # another golden vector, the same weights
        (weights(1, 0.1), 0.25),  # a light fine-tune
        (b"a longer graph" + weights(1, 0.1), 0.25),  # and a file that grew in front of its weights
        (b"inserted" + weights(0), 0.02),
        (weights(0)[:200_000] + b"in the middle" + weights(0)[200_000:], 0.03),
        (b"", 1.0),
        (b"new", 1.0),
    ],
)
def test_the_result_is_the_new_file(old: Path, tmp_path: Path, content: bytes, limit: float) -> None:
    new = bundle(tmp_path / "new.edgekit", content, **{"more.txt": b"1"})
    delta = delta_of(old, new)
    made = io.BytesIO()
    apply_delta(old, delta, made)
    assert made.getvalue() == new.read_bytes()
    if limit < 1:
        assert delta.stat().st_size <= limit * new.stat().st_size


def test_a_difference_to_another_file_or_a_damaged_one_is_refused(old: Path, tmp_path: Path) -> None:
    new = bundle(tmp_path / "new.edgekit", weights(1, 0.1))
    delta = delta_of(old, new)
    with pytest.raises(DeltaError, match="it is to another file"):
        apply_delta(new, delta, io.BytesIO())
    whole = delta.read_bytes()
    draw = np.random.default_rng(0)
    for _ in range(40):
        changed = bytearray(whole)
        changed[int(draw.integers(len(whole)))] ^= int(draw.integers(1, 256))
        delta.write_bytes(changed[: int(draw.integers(len(whole)))] if draw.random() < 0.2 else changed)
        made = io.BytesIO()
        try:
            apply_delta(old, delta, made)
        except DeltaError:
            continue
        assert made.getvalue() == new.read_bytes()


def test_a_block_that_would_unpack_to_much_is_refused_before(old: Path, tmp_path: Path) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 24))
    sha256 = hashlib.sha256(old.read_bytes()).digest()
    head = MAGIC + HEAD.pack(old.stat().st_size, sha256, 1 << 24, bytes(32))
    delta = tmp_path / "bomb.delta"
    delta.write_bytes(head + BLOCK.pack(1, 0, 0, 1000, 0, 0, len(bomb)) + bomb)
    with pytest.raises(DeltaError, match="does not have its declared size"):
        apply_delta(old, delta, io.BytesIO())
    delta.write_bytes(head + BLOCK.pack(1, 0, 0, 1 << 24, 0, 0, len(bomb)) + bomb)
    with pytest.raises(DeltaError, match="larger than allowed"):
        apply_delta(old, delta, io.BytesIO())


def one_block(
    old: Path, size: int, payload: bytes, *, new_size: int = 1 << 20, form: int = 1, **place: int
) -> Path:
    """A difference of one block, with the head of a file of ``new_size`` bytes."""
    head = MAGIC + HEAD.pack(
        old.stat().st_size, hashlib.sha256(old.read_bytes()).digest(), new_size, bytes(32)
    )
    block = BLOCK.pack(form, 0, 0, size, place.get("at", 0), place.get("used", 0), len(payload))
    path = old.with_suffix(".delta")
    path.write_bytes(head + block + payload)
    return path


def frame(declared: int) -> bytes:
    """A zstd frame that declares a size and has 1,000 zeros in a run (RFC 8878, section 3.1)."""
    run = (1 | 1 << 1 | 1000 << 3).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\xe0" + declared.to_bytes(8, "little") + run


def test_a_frame_that_declares_much_takes_no_memory(old: Path) -> None:
    assert _content(1, 0, 0, 1000, b"", frame(1000)) == bytes(1000)
    with pytest.raises(DeltaError, match="a block does not have its declared size"):
        apply_delta(old, one_block(old, 1000, frame(1 << 62)), io.BytesIO())
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 24))
    with pytest.raises(DeltaError, match="a block does not have its declared size"):
        apply_delta(old, one_block(old, 1000, unknown), io.BytesIO())
    with pytest.raises(DeltaError, match="a block can't be unpacked"):  # a few bytes instead of so many
        apply_delta(old, one_block(old, 2000, frame(2000)), io.BytesIO())


def test_no_more_is_written_than_the_new_file_has(old: Path) -> None:
    """The sizes that it states are signed by nobody: a full disk would be the price."""
    delta = one_block(old, 1000, frame(1000), new_size=2500)
    block = delta.read_bytes()[len(MAGIC) + HEAD.size :]
    delta.write_bytes(delta.read_bytes() + 50 * block)
    made = io.BytesIO()
    with pytest.raises(DeltaError, match="it produces more data than declared"):
        apply_delta(old, delta, made)
    assert len(made.getvalue()) == 2000


def test_a_block_has_limits(old: Path) -> None:
    size = old.stat().st_size
    blocks: list[tuple[int, bytes, dict[str, int]]] = [
        (1 << 19, frame(1 << 19), {}),
        (0, frame(0), {}),
        (1000, bytes((1 << 19) + 1), {}),
        (1000, frame(1000), {"at": size - 9, "used": 10}),
    ]
    for wanted, payload, place in blocks:
        with pytest.raises(DeltaError, match="a block is larger than allowed"):
            apply_delta(old, one_block(old, wanted, payload, **place), io.BytesIO())
    large = old.with_name("large")
    large.write_bytes(bytes((1 << 22) + 1))
    with pytest.raises(DeltaError, match="a block is larger than allowed"):
        apply_delta(large, one_block(large, 1000, frame(1000), used=(1 << 22) + 1), io.BytesIO())


def test_malformed_blocks(old: Path) -> None:
    for form, why in (
        (0, "a difference is malformed"),
        (2, "unknown form"),
    ):
        with pytest.raises(DeltaError, match=why):
            apply_delta(old, one_block(old, 1000, frame(1000), form=form, used=999), io.BytesIO())


def test_a_device_fetches_the_difference_where_it_has_the_old_file(world: World) -> None:
    for name, content in (("a", weights(0)), ("b", weights(1, 0.1))):
        world.bundle(name, {"weights/v.bin": content})
    publish_kept(world, "a")
    world.update()
    publish_kept(world, "b")
    done = world.update()
    assert (done.outcome, world.current()) == ("installed", "b")
    assert done.fetched_bytes < 0.3 * (world.folder / "b.edgekit").stat().st_size
    assert not [path for path, _ in world.server.requests if path.endswith("2.edgekit")]


def test_a_wrong_difference_falls_back_to_the_whole_file(world: World) -> None:
    from edgekit.release.updates import publishing

    for name, content in (("a", weights(0)), ("b", weights(1, 0.1))):
        world.bundle(name, {"weights/v.bin": content})
    publish_kept(world, "a")
    world.update()
    with pytest.MonkeyPatch.context() as patch:  # a publisher whose program is broken: what it signs is wrong
        patch.setattr(publishing, "make_delta", lambda old, new, out: out.write(b"EKDELTA1 nonsense"))
        publish_kept(world, "b")
    done = world.update()
    assert (done.outcome, world.current()) == ("installed", "b")
    assert done.notes == (
        "the difference to the installed bundle is not used: it is not a delta of this version",
    )


def publish_kept(world: World, name: str) -> None:
    from edgekit.release.updates.publishing import publish

    publish(world.repository, world.folder / f"{name}.edgekit", "stable", "detector")
