"""Rows of kinds of models, and the modules that are found by name."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from edgekit.compiler.evaluate import verify_bundle
from edgekit.compiler.model.model_kinds import kind_of, model_kinds
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.runtime.loading.probe import TRIALS
from edgekit.target.registry import FORMS
from tests.fixtures import models
from tests.fixtures.gguf_files import write_tiny


def test_a_model_has_the_kind_of_its_content(tmp_path: Path) -> None:
    language = kind_of(write_tiny(tmp_path / "model.onnx"))
    assert language is not None
    assert language.name == "language models"
    assert kind_of(models.write(tmp_path, models.SMALL_CNN)) is None
    assert kind_of(tmp_path) is None
    assert kind_of(tmp_path / "absent") is None


def test_options_of_a_kind_are_those_of_a_build() -> None:
    options = {name for kind in model_kinds() for name in kind.options}
    assert options <= {field.name for field in fields(BuildRequest)}


@pytest.mark.parametrize(
    "name",
    [
        *(kind.builder for kind in model_kinds()),
        *(f"{module}:open_runner" for module in FORMS.values()),
        *(f"{module}:{function}" for module in TRIALS.values() for function in ("trial_data", "try_variant")),
        f"{verify_bundle.DECODERS}:check_decoders",
    ],
)
def test_functions_that_are_found_by_name_exist(name: str) -> None:
    module, _, function = name.partition(":")
    assert callable(getattr(import_module(module), function))
