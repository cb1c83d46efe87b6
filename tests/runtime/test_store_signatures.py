"""A store with trusted keys: nothing of an unsigned bundle is parsed, at installation or at a start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from edgekit.errors import MissingDependency, SignatureError
from edgekit.runtime.store.bundle_store import Store
from edgekit.signing.signing_keys import load_private_key
from edgekit.signing.trusted_keys import sign_file
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.keys import KINDS, key_files

pytest.importorskip("cryptography")


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    return {name: key_files(tmp_path, name, KINDS["P-256"]()) for name in ("old", "new")}


@pytest.fixture
def bundles(tmp_path: Path) -> dict[str, Path]:
    return {
        name: small_bundle([variant(name, "ort")]).save(tmp_path / f"{name}.edgekit")
        for name in ("factory", "a", "b")
    }


def sign(bundle: Path, private: Path) -> None:
    bundle.with_name(f"{bundle.name}.sig").write_bytes(sign_file(bundle, load_private_key(private)))


def name_of(path: Path) -> str:
    with Bundle.open(path) as bundle:
        return bundle.variants[0].name


def test_an_unsigned_bundle_is_not_parsed(
    tmp_path: Path,
    bundles: dict[str, Path],
    keys: dict[str, tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(tmp_path / "store", bundles["factory"], [keys["old"][1]])

    def parse(path: Path) -> None:
        raise AssertionError(f"{path} is parsed")

    monkeypatch.setattr(Bundle, "open", parse)
    with pytest.raises(SignatureError, match="not signed"):
        store.install(bundles["a"])
    sign(bundles["a"], keys["new"][0])
    with pytest.raises(SignatureError, match="not trusted here"):
        store.install(bundles["a"])
    sign(bundles["a"], keys["old"][0])
    with open(bundles["a"], "r+b") as file:
        file.seek(200)
        file.write(b"?")
    with pytest.raises(SignatureError, match="not the file that was signed"):
        store.install(bundles["a"])
    assert not (tmp_path / "store").exists()


def test_a_signed_one_is_installed_and_checked_at_each_start(
    tmp_path: Path, bundles: dict[str, Path], keys: dict[str, tuple[Path, Path]]
) -> None:
    sign(bundles["a"], keys["old"][0])
    store = Store(tmp_path / "store", bundles["factory"], [keys["old"][1]])
    digest = store.install(bundles["a"])
    assert name_of(store.begin()) == "a"
    slot = tmp_path / "store" / "slots" / f"{digest}.edgekit"
    content = bytearray(slot.read_bytes())
    content[-1] ^= 1  # of an entry: the header and the manifest are as they were
    slot.write_bytes(content)
    assert name_of(Store(store.root, store.factory).path) == "a"
    again = Store(store.root, store.factory, [keys["old"][1]])
    assert name_of(again.begin()) == "factory"
    assert "not the file that was signed" in dict(again.state.given_up)[digest]


def test_a_key_is_replaced_by_trusting_both_for_a_while(
    tmp_path: Path, bundles: dict[str, Path], keys: dict[str, tuple[Path, Path]]
) -> None:
    sign(bundles["a"], keys["old"][0])
    sign(bundles["b"], keys["new"][0])
    root, factory, both = tmp_path / "store", bundles["factory"], [public for _, public in keys.values()]
    Store(root, factory, both[:1]).install(bundles["a"])
    store = Store(root, factory, both)
    assert name_of(store.begin()) == "a"
    store.confirm()
    store.install(bundles["b"])
    assert name_of(store.begin()) == "b"
    store.confirm()
    only_new = Store(root, factory, both[1:])
    assert name_of(only_new.begin()) == "b"
    only_new.give_up("its answers are wrong")
    assert name_of(only_new.begin()) == "factory"  # not a: its key is not trusted any more


def test_signatures_are_removed_with_their_slots(
    tmp_path: Path, bundles: dict[str, Path], keys: dict[str, tuple[Path, Path]]
) -> None:
    store = Store(tmp_path / "store", bundles["factory"], [keys["old"][1]])
    digests = []
    for name in ("a", "b"):
        sign(bundles[name], keys["old"][0])
        digests.append(store.install(bundles[name]))
    store.begin()
    store.confirm()
    store.give_up("x")
    for _ in range(3):
        store.begin()
    names = {path.name for path in (store.root / "slots").iterdir()}
    assert {name.split(".")[0] for name in names if name.endswith(".sig")} == {
        name.split(".")[0] for name in names if name.endswith(".edgekit")
    }


def test_a_file_that_changes_while_it_is_copied_is_not_installed(
    tmp_path: Path,
    bundles: dict[str, Path],
    keys: dict[str, tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is in the slot is compared with the signature, not only what was there before."""
    sign(bundles["a"], keys["old"][0])
    store = Store(tmp_path / "store", bundles["factory"], [keys["old"][1]])
    other, opened = Bundle.open(bundles["b"]), []

    def swapped(path: Path) -> Bundle:
        opened.append(path)
        return other

    monkeypatch.setattr(Bundle, "open", swapped)
    with pytest.raises(SignatureError, match="not the file that was signed"):
        store.install(bundles["a"])
    assert opened == [bundles["a"]]
    assert list((store.root / "slots").iterdir()) == []
    assert store.state.current != other.digest


def test_without_the_package_a_device_that_asks_for_signatures_says_so(
    tmp_path: Path,
    bundles: dict[str, Path],
    keys: dict[str, tuple[Path, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(MissingDependency, match="cryptography is not installed"):
        Store(tmp_path / "store", bundles["factory"], [keys["old"][1]])
