"""Examples by name, as tokenizers give them; where PyTorch is installed."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest

import edgekit

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_mapping_is_keyword_arguments(kind: Any) -> None:
    pytest.importorskip("onnxscript")
    torch: Any = pytest.importorskip("torch")

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(100, 8)

        def forward(self, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None) -> Any:
            return {"pooled": (self.table(input_ids) * attention_mask[..., None]).sum(1)}

    ids, mask = torch.randint(5, 90, (1, 32)), torch.ones(1, 32, dtype=torch.long)
    example = kind({"attention_mask": mask, "input_ids": ids})
    found = edgekit.import_model(Encoder().eval(), example_inputs=example)
    assert {spec.name for spec in found.inputs} == {"input_ids", "attention_mask"}
    assert found.compared.samples == 1
    assert found.compared.outputs["pooled"].within_limit
