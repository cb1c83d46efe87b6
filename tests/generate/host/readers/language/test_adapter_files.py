"""LoRA adapters of PEFT and of llama.cpp: the same matrices, the right scale, and refusals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import ModelError, UsageError
from edgekit.generate.host.adapters import merged, open_adapter
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.tensor_spec import Array
from tests.fixtures.adapter_files import ALPHA, RANK, random_pairs, write_gguf, write_peft
from tests.fixtures.gguf_architectures import write_architecture
from tests.fixtures.gguf_files import write_tiny

Q = "model.layers.0.self_attn.q_proj.weight"
Pairs = dict[str, tuple[Array, Array]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return open_language_model(write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf"))


def test_peft_and_gguf_change_the_weights_by_the_same(model: LanguageModel, tmp_path: Path) -> None:
    pairs = random_pairs(model)
    one = open_adapter(write_peft(tmp_path / "peft", pairs), model)
    other = open_adapter(write_gguf(tmp_path / "one.gguf", model, pairs), model)
    assert one.matrices.keys() == other.matrices.keys() == pairs.keys()
    assert one.sha256 != other.sha256
    for name, (a, b) in pairs.items():
        expected = model.weight(name) + ALPHA / RANK * (b @ a)
        for adapter in (one, other):
            assert np.allclose(merged(model, adapter).weight(name), expected, atol=1e-6)
    assert np.array_equal(merged(model, one).weight("model.norm.weight"), model.weight("model.norm.weight"))


def test_experts_are_not_adapted(tmp_path: Path) -> None:
    routed = open_language_model(write_architecture(tmp_path / "tiny.gguf", "olmoe"))
    pairs = {name: pair for name, pair in random_pairs(routed).items() if "experts.7.down" in name}
    with pytest.raises(ModelError, match="gate_proj, up_proj and down_proj, not those of experts"):
        open_adapter(write_peft(tmp_path / "peft", pairs), routed)


def test_rslora_has_the_root_of_the_rank(model: LanguageModel, tmp_path: Path) -> None:
    pairs = random_pairs(model, parts=("q",))
    adapter = open_adapter(write_peft(tmp_path / "peft", pairs, use_rslora=True), model)
    assert np.allclose(adapter.matrices[Q][1].T, pairs[Q][1] * ALPHA / math.sqrt(RANK))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"peft_type": "IA3"}, "is a IA3 adapter; EdgeKit reads LORA"),
        ({"use_dora": True}, "its use_dora is True; EdgeKit reads plain LoRA"),
        ({"bias": "all"}, "its bias is all; EdgeKit reads plain LoRA"),
        ({"modules_to_save": ["lm_head"]}, "its modules_to_save is ['lm_head']; EdgeKit reads plain LoRA"),
        ({"alpha_pattern": {"q_proj": 2}}, "its alpha_pattern is {'q_proj': 2}; EdgeKit reads plain LoRA"),
        ({"init_lora_weights": "pissa_niter_4"}, "its init_lora_weights, pissa_niter_4, changed the model"),
        ({"lora_alpha": "8"}, "adapter_config.json: lora_alpha is 8; it must be from -1e+06 to 1e+06"),
    ],
)
def test_other_kinds_are_refused(
    model: LanguageModel, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    folder = write_peft(tmp_path / "peft", random_pairs(model, parts=("q",)), **changed)
    with pytest.raises(ModelError) as refused:
        open_adapter(folder, model)
    assert str(refused.value).startswith(f"{folder}: {message}")


def _renamed(pairs: Pairs) -> None:
    pairs["lm_head.weight"] = pairs.pop(Q)


def _wide(pairs: Pairs) -> None:
    pairs[Q] = pairs[Q][0][:, :-1], pairs[Q][1]


def _large(pairs: Pairs) -> None:
    pairs[Q] = np.zeros((1025, 64), np.float32), np.zeros((64, 1025), np.float32)


def _infinite(pairs: Pairs) -> None:
    pairs[Q][0][0, 0] = np.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            _renamed,
            "adapts base_model.model.lm_head.lora_A.weight, which is not a product of a layer of tiny",
        ),
        (_wide, f"its matrices for {Q} are [4, 63] and [64, 4]; tiny needs [rank, 64] and [64, rank]"),
        (_large, f"its matrices for {Q} are [1025, 64] and [64, 1025]; tiny needs [rank, 64]"),
        (_infinite, f"its matrices for {Q} have values that are not finite"),
        (dict.clear, "has no LoRA matrices; save the adapter again"),
    ],
)
def test_matrices_of_another_model_are_refused(
    model: LanguageModel, tmp_path: Path, change: Callable[[Pairs], None], message: str
) -> None:
    pairs = random_pairs(model, parts=("q",))
    change(pairs)
    folder = write_peft(tmp_path / "peft", pairs)
    with pytest.raises(ModelError) as refused:
        open_adapter(folder, model)
    assert str(refused.value).startswith(f"{folder}: {message}")


def test_half_a_pair_and_other_files_are_refused(model: LanguageModel, tmp_path: Path) -> None:
    folder = write_peft(tmp_path / "peft", random_pairs(model, parts=("q",)))
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(
        weights.read_bytes().replace(b"0.self_attn.q_proj.lora_B", b"1.self_attn.v_proj.lora_B")
    )
    with pytest.raises(ModelError, match="has one of two LoRA matrices for"):
        open_adapter(folder, model)
    (folder / "adapter_config.json").write_text(json.dumps([]))
    with pytest.raises(ModelError, match="is not a JSON object"):
        open_adapter(folder, model)
    with pytest.raises(
        UsageError, match=r"is not an adapter; pass a folder of PEFT with adapter_config\.json"
    ):
        open_adapter(tmp_path, model)
    with pytest.raises(ModelError, match=r"is not a LoRA adapter; convert one with llama\.cpp's"):
        open_adapter(write_tiny(tmp_path / "tiny.gguf"), model)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"general.architecture": "qwen2"}, "adapts qwen2 models; tiny is llama"),
        ({"adapter.type": "control_vector"}, "is not a LoRA adapter; convert one with"),
        ({"adapter.alora.invocation_tokens": np.ones(2, "<i4")}, "is an activated LoRA adapter"),
    ],
)
def test_other_gguf_adapters_are_refused(
    model: LanguageModel, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    path = write_gguf(tmp_path / "one.gguf", model, random_pairs(model, parts=("q",)), **changed)
    with pytest.raises(ModelError) as refused:
        open_adapter(path, model)
    assert str(refused.value).startswith(f"{path}: {message}")


def test_a_gguf_adapter_without_alpha_has_the_scale_1(model: LanguageModel, tmp_path: Path) -> None:
    pairs = random_pairs(model, parts=("v",))
    path = write_gguf(tmp_path / "one.gguf", model, pairs, **{"adapter.lora.alpha": 0.0})
    for name, (_, b) in open_adapter(path, model).matrices.items():
        assert np.array_equal(b.T, pairs[name][1])
