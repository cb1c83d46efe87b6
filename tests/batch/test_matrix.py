from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.batch.matrix import read_matrix
from edgekit.errors import UsageError

WHOLE = """
output = "s3://fleet/boards"
targets = ["rpi5", ["ort", "tflite"]]
precisions = ["fp32", "int8"]
models = ["net*.onnx", {file = "zoo/big.onnx", name = "huge", card = "card.toml", shapes.x = [1, 3]}]

[samples]
day = "samples/day"
night = "s3://fleet/night"

[options]
time_budget = 20
max_drop = "2%"

[[leave_out]]
model = "huge"
target = "rpi5"

[[leave_out]]
precision = "fp32"
samples = "night"
"""


def test_a_model_has_a_range(folder: Path) -> None:
    entry = '{file = "zoo/big.onnx", shapes = {x = [1, "1..64"], s = ["2..8"]}}'
    (folder / "m.toml").write_text(f"models = [{entry}]\ntargets = ['ort']\n")
    assert read_matrix(folder / "m.toml").builds[0].model.shapes == {"x": (1, "1..64"), "s": ("2..8",)}
    for size in ('"64..1"', "0"):
        wrong = entry.replace("[1,", f"[{size},")
        (folder / "m.toml").write_text(f"models = [{wrong}]\ntargets = ['ort']\n")
        with pytest.raises(UsageError, match=r"models\[0\]: shapes.x"):
            read_matrix(folder / "m.toml")


def test_a_model_has_several_shapes(folder: Path) -> None:
    entry = '{file = "zoo/big.onnx", shapes = {x = [[1, 3], [1, 5]], s = []}}'
    (folder / "m.toml").write_text(f'targets = ["ort"]\nmodels = [{entry}]\n')
    assert read_matrix(folder / "m.toml").builds[0].model.shapes == {"x": ((1, 3), (1, 5)), "s": ()}
    (folder / "m.toml").write_text(f'targets = ["ort"]\nmodels = [{entry.replace("[1, 5]", "5")}]\n')
    with pytest.raises(UsageError, match=r"models\[0\]: shapes.x\[1\]"):
        read_matrix(folder / "m.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zoo").mkdir()
    for name in ("net1.onnx", "net0.onnx", "zoo/big.onnx"):
        (tmp_path / name).touch()
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "boards.toml"
    path.write_text(text)
    return path


def test_the_product_of_all_without_what_is_left_out(folder: Path) -> None:
    found = read_matrix(written(folder, WHOLE))
    assert found.output == "s3://fleet/boards"
    nets = [f"net{n}-{t}-{rest}" for n in (0, 1) for t in ("rpi5", "ort+tflite")
            for rest in ("fp32-day", "int8-day", "int8-night")]  # fmt: skip
    huge = [f"huge-ort+tflite-{rest}" for rest in ("fp32-day", "int8-day", "int8-night")]
    assert [build.name for build in found.builds] == nets + huge
    last = found.builds[-1]
    assert last.targets == ("ort", "tflite")
    assert last.model.card == str(folder / "card.toml")
    assert last.model.shapes == {"x": (1, 3)}
    assert last.source == "s3://fleet/night"
    assert found.builds[0].source == str(folder / "samples/day")
    assert last.options == {"time_budget": 20.0, "max_drop": "2%"}


def test_without_more_it_is_fp32_with_random_samples_beside_the_matrix(folder: Path) -> None:
    found = read_matrix(written(folder, 'models = ["net0.onnx"]\ntargets = ["ort"]'))
    assert found.output == str(folder / "boards")
    (build,) = found.builds
    assert (build.name, build.precision, build.source) == ("net0-ort-fp32", "fp32", None)
    assert build.requested is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = [", "{} is not valid TOML: "),
        ("model = []", "{} has an unknown key 'model'; it may have output, models, targets"),
        ('models = ["net0.onnx"]', "{} has no targets; it must be a list"),
        ('models = ["net0.onnx"]\ntargets = []', "{} has nothing to build: add at least one of models"),
        ('models = ["net9.onnx"]\ntargets = ["ort"]', "{}: models[0]: {folder}/net9.onnx does not exist"),
        ('models = ["cat*.onnx"]\ntargets = ["ort"]', "{}: models[0]: nothing matches {folder}/cat*.onnx"),
        (
            'models = ["net0.onnx"]\ntargets = [1]',
            "{}: targets contains a whole number; it must contain strings",
        ),
        (
            'models = [{file = "net*.onnx", name = "a"}]\ntargets = ["ort"]',
            "{}: models[0]: one name is given for 2 models; leave name out",
        ),
        (
            'models = [{file = "net0.onnx", name = "../a"}]\ntargets = ["ort"]',
            "{}: models[0].name is '../a'; it may have letters, digits, '.', '_' and '-' between them",
        ),
        (
            'models = ["net0.onnx", "net0.onnx"]\ntargets = ["ort"]',
            "{} has two builds called net0-ort-fp32; give each of these models its own name",
        ),
        (
            'models = ["net0.onnx"]\ntargets = ["ort"]\noptions.precision = "int8"',
            "{}: options has an unknown key 'precision'; it may have max_drop, time_budget",
        ),
        (
            'models = ["net0.onnx"]\ntargets = ["ort"]\n[[leave_out]]\ntarget = "ort"',
            "{} leaves out every build; check leave_out",
        ),
        (
            'models = ["net0.onnx"]\ntargets = ["ort"]\n[[leave_out]]',
            "{}: leave_out has an empty rule; it would leave out everything",
        ),
    ],
)
def test_what_is_wrong_is_said(folder: Path, text: str, message: str) -> None:
    path = written(folder, text)
    with pytest.raises(UsageError) as error:
        read_matrix(path)
    assert str(error.value).startswith(message.format(path, folder=folder))


HOSTILE = {
    "../../../out": "out",
    "/etc/passwd": "etc_passwd",
    "a\\nb\\u001b[2J\\u202e": "a_b_2J",
    "-rf": "rf",
    "<script>": "script",
    "Nacht und Tag": "Nacht_und_Tag",
}


@pytest.mark.parametrize(("name", "plain"), HOSTILE.items())
def test_a_set_of_samples_does_not_choose_the_folder(folder: Path, name: str, plain: str) -> None:
    text = (
        f'models = ["net0.onnx"]\ntargets = ["ort"]\nprecisions = ["{name}"]\nsamples = {{"{name}" = "day"}}'
    )
    (build,) = read_matrix(written(folder, text)).builds
    assert build.name == f"net0-ort-{plain}-{plain}"


def test_names_that_are_one_file_on_some_systems_are_refused(folder: Path) -> None:
    path = written(folder, 'models = ["net0.onnx", {file = "net1.onnx", name = "Net0"}]\ntargets = ["ort"]')
    with pytest.raises(UsageError) as error:
        read_matrix(path)
    assert str(error.value) == (
        f"{path} has the builds net0-ort-fp32 and Net0-ort-fp32, which differ in case only; rename their "
        "models or samples"
    )


def test_a_name_that_no_file_can_have_is_refused_before_anything_is_built(folder: Path) -> None:
    name = "n" * 10_000
    path = written(folder, f'models = [{{file = "net0.onnx", name = "{name}"}}]\ntargets = ["ort"]')
    with pytest.raises(UsageError) as error:
        read_matrix(path)
    assert str(error.value) == (
        f"{path}: {'n' * 29}...{'n' * 19}-ort-fp32 is a name of 10009 characters; the limit for a file name "
        "is 200: give its model or its samples a shorter name"
    )


def test_many_targets_in_one_bundle_have_a_short_name(folder: Path) -> None:
    targets = ", ".join(f'"a-device-of-ours-{number}"' for number in range(40))
    (build,) = read_matrix(written(folder, f'models = ["net0.onnx"]\ntargets = [[{targets}]]')).builds
    assert build.name == "net0-a-device-of-ours-0+39-fp32"
    assert len(build.targets) == 40
