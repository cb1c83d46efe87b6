"""``edgekit bundle select``: a bundle for devices that need some of the variants only."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.draft_entry import draft_of
from edgekit.cli import main
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.errors import BundleError, UsageError
from edgekit.generate import TextSession
from edgekit.release.export.select_variants import select_variants
from tests.fixtures.gguf_files import write_tiny

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino, pytest.mark.needs_tokenizers]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and its draft for two engines, which share their weights."""
    folder = tmp_path_factory.mktemp("select")
    small = write_tiny(folder / "small.gguf", **{"llama.block_count": 1})
    edgekit.build(
        write_tiny(folder / "big.gguf"),
        targets=["ort", "openvino"],
        precision="int8",
        draft=small,
        force=True,
    ).save(folder / "chat.edgekit")
    return folder / "chat.edgekit"


def test_a_device_gets_the_parts_of_its_variant_only(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "ort.edgekit"
    done = CliRunner().invoke(main, ["bundle", "select", str(path), "ort-int8", "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert f"written   {out}" in done.output
    assert "with ort-int8" in done.output
    with Bundle.open(path) as whole, Bundle.open(out) as selected:
        assert [variant.name for variant in selected.variants] == ["ort-int8"]
        assert selected.variants[0] == whole.variants[0]
        draft = draft_of(selected.name, selected.manifest)
        assert draft is not None
        assert [variant.target for variant in draft.variants] == ["ort"]
        drafts = draft_of(whole.name, whole.manifest)
        assert drafts is not None
        foreign = {e for v in (*whole.variants, *drafts.variants) for e in v.files.values()}
        own = {e for v in (*selected.variants, *draft.variants) for e in v.files.values()}
        names = {entry["name"] for entry in selected.manifest["entries"]}
        assert names == {entry["name"] for entry in whole.manifest["entries"]} - (foreign - own)
        assert any(name.startswith("weights/") for name in names)
        assert [check.outcome for check in verify_bundle(selected)] == [CheckOutcome.VERIFIED] * 2
    texts = []
    for bundle in (path, out):
        with TextSession(bundle, engine="ort", threads=1, speculate="off") as session:
            texts.append(session.generate("the of and", max_tokens=8).text())
    assert texts[0] == texts[1]
    assert out.stat().st_size < path.stat().st_size


def test_all_variants_are_the_same_bundle(path: Path) -> None:
    with Bundle.open(path) as whole:
        assert select_variants(whole, ["openvino-int8", "ort-int8"]).digest == whole.digest


def test_an_unknown_variant_is_refused(path: Path) -> None:
    with Bundle.open(path) as whole, pytest.raises(UsageError) as raised:
        select_variants(whole, ["ort-int4"])
    assert str(raised.value) == (
        f"{path} has no variant 'ort-int4' with files; it has: ort-int8, openvino-int8; "
        "did you mean 'ort-int8'?"
    )


def test_a_damaged_entry_is_not_passed_on(path: Path, tmp_path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    damaged, out = tmp_path / "damaged.edgekit", tmp_path / "out.edgekit"
    damaged.write_bytes(content)
    with Bundle.open(damaged) as bundle, pytest.raises(BundleError):
        select_variants(bundle, ["ort-int8", "openvino-int8"])
    done = CliRunner().invoke(
        main, ["bundle", "select", str(damaged), "ort-int8", "openvino-int8", "-o", str(out)]
    )
    assert done.exit_code == 2
    assert not out.exists()
