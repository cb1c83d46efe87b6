"""The bundle of a cascade, made of its stages' bundles."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.cli import main
from edgekit.errors import BundleError, CardError
from edgekit.system.formats.strict_json import encode
from tests.fixtures.bundles import pack, packed_parts
from tests.fixtures.cascades import CASCADE, stages

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stages(tmp_path_factory.mktemp("stages"))


@pytest.fixture
def cascade(built: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    shutil.copytree(built.parent, tmp_path / "copy")
    return tmp_path / "copy" / built.name


def test_a_stage_is_the_bundle_it_was(cascade: Path) -> None:
    joined = edgekit.build_cascade(cascade)
    path = joined.save(cascade.parent / "out.edgekit")
    with Bundle.open(path) as opened, Bundle.open(cascade.parent / "name.edgekit") as alone:
        assert opened.stages == joined.stages == ("colour",)
        for found in (opened.stage("colour"), joined.stage("colour")):  # from a file, and from memory
            assert found.digest == alone.digest
            assert found.manifest == alone.manifest
            found.verify_entries()
        opened.verify_entries()


def test_the_same_stages_give_the_same_bytes(cascade: Path) -> None:
    assert edgekit.build_cascade(cascade).digest == edgekit.build_cascade(cascade).digest


def test_a_damaged_stage_is_found(cascade: Path) -> None:
    path = edgekit.build_cascade(cascade).save(cascade.parent / "out.edgekit")
    content = bytearray(path.read_bytes())
    inner = (cascade.parent / "name.edgekit").read_bytes()
    at = bytes(content).index(inner) + len(inner) - 1
    content[at] ^= 1
    path.write_bytes(content)
    with Bundle.open(path) as opened:
        with pytest.raises(BundleError, match=r"entry stages/colour.edgekit: its sha256"):
            opened.verify_entries()
        with pytest.raises(BundleError, match="sha256"):
            opened.stage("colour").verify_entries()


def test_a_manifest_that_does_not_fit_its_stages_is_refused(cascade: Path) -> None:
    joined = edgekit.build_cascade(cascade)
    manifest, data = packed_parts(joined)
    bundles = manifest["cascade"]["bundles"]
    bundles["shape"] = bundles.pop("colour")
    path = cascade.parent / "other.edgekit"
    path.write_bytes(pack(encode(manifest), data))
    with pytest.raises(BundleError, match=r"cascade\.bundles: the names are not those of the stages"):
        Bundle.open(path)


def test_a_stage_is_the_bundle_that_the_manifest_names(cascade: Path) -> None:
    """Its entry's sha256 may be right: it is another bundle, which is whole."""
    manifest, data = packed_parts(edgekit.build_cascade(cascade))
    manifest["cascade"]["bundles"]["colour"]["digest"] = "0" * 64
    path = cascade.parent / "other.edgekit"
    path.write_bytes(pack(encode(manifest), data))
    with (
        Bundle.open(path) as opened,
        pytest.raises(BundleError, match="its digest is not the one in the manifest"),
    ):
        opened.stage("colour")


def test_verify_and_inspect_show_every_stage(cascade: Path) -> None:
    path = str(cascade.parent / "out.edgekit")
    made = CliRunner().invoke(main, ["bundle", "cascade", str(cascade), "-o", path])
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines()[:2] == ["  first     bright quarters", "  stage     colour  colours"]
    checked = CliRunner().invoke(main, ["verify", path])
    assert checked.exit_code == 0, checked.output
    assert "  colour: ort-fp32" in checked.stdout
    shown = CliRunner().invoke(main, ["inspect", path])
    assert "  stage     colour: colours" in shown.stdout


MISTAKES = [
    ("", "cascade.toml has no stages; it must be a list"),
    (CASCADE + "\n[more]\n", "cascade.toml has an unknown key 'more'; the only key is stages"),
    (
        CASCADE.split("\n\n")[0],
        "cascade.toml: stages must be a list of 2 to 8 stages, the first one included",
    ),
    (CASCADE.replace('"colour"', '"find"'), "cascade.toml: stages: two stages are called 'find'"),
    (CASCADE.replace('"colour"', '"a/b"'), "cascade.toml: stages[1].name is 'a/b'; it must be a word of"),
    (CASCADE + "margins = 1\n", "cascade.toml: stages[1] has an unknown key 'margins'; it may have name,"),
    (CASCADE + "margin = 9.0\n", "cascade.toml: stages[1].margin is 9; it must be from 0 to 1"),
    (CASCADE + "most = 0\n", "cascade.toml: stages[1].most is 0; it must be from 1 to 1024"),
    (CASCADE + "score = 2.0\n", "cascade.toml: stages[1].score is 2; it must be from 0 to 1"),
    (
        CASCADE + 'crop = "text"\nsquare = true\n',
        "cascade.toml: stages[1].square needs crop = 'box', but crop is 'text'",
    ),
    (
        CASCADE + "turn = { red = 45 }\n",
        "cascade.toml: stages[1].turn.red is 45; it must be 0, 90, 180 or 270 degrees",
    ),
    (CASCADE + "classes = [1]\n", "cascade.toml: stages[1].classes is [1]; it must be a list of labels"),
    (
        CASCADE.replace('bundle = "find.edgekit"', 'bundle = "find.edgekit"\nmost = 3'),
        "cascade.toml: stages[0].most: the first stage gets the whole frame, so it has name and bundle only",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_mistakes(cascade: Path, text: str, message: str) -> None:
    cascade.write_text(text)
    with pytest.raises(CardError) as error:
        edgekit.build_cascade(cascade)
    assert str(error.value).removeprefix(f"{cascade.parent}/").startswith(message)


def test_a_bundle_without_a_card(cascade: Path) -> None:
    edgekit.build(cascade.parent / "name.onnx", targets=["ort"]).save(cascade.parent / "name.edgekit")
    with pytest.raises(CardError) as error:
        edgekit.build_cascade(cascade)
    name = cascade.parent / "name.edgekit"
    assert str(error.value) == f"{cascade}: stage colour: {name} has no card; build it with --card"


def test_a_bundle_that_is_not_there(cascade: Path) -> None:
    (cascade.parent / "name.edgekit").unlink()
    with pytest.raises(BundleError, match=r"name.edgekit: file not found"):
        edgekit.build_cascade(cascade)


def test_a_cascade_of_cascades(cascade: Path) -> None:
    edgekit.build_cascade(cascade).save(cascade.parent / "name.edgekit")
    with pytest.raises(CardError, match="is a cascade; name the bundles of its stages instead"):
        edgekit.build_cascade(cascade)
