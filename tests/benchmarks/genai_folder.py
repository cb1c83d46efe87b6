"""Our decoder for ONNX Runtime as a folder that onnxruntime-genai opens: the same nodes and weights, with the
inputs that it feeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from edgekit_ort.compile_decoder import _OrtDecoder
from edgekit_ort.decoder import DATA_FILE
from edgekit_ort.run import MODEL_FILE

from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.generate.host.readers.language import LanguageModel


class _GenaiDecoder(_OrtDecoder):
    def begin(self) -> str:
        """``last_position`` and ``total`` from the mask."""
        g = self.graph
        g.input("input_ids", "int64", ["texts", "tokens"])
        g.input("attention_mask", "int64", ["texts", "all"])
        count = g.op("ReduceSum", "attention_mask", g.ints(1), keepdims=0)
        g.op("Cast", g.op("Sub", count, g.ints(1)), to=6, out="last_position")
        size = g.op("Gather", g.op("Shape", "attention_mask"), g.ints(1), axis=0)
        g.op("Cast", g.op("Squeeze", size), to=6, out="total")
        return "input_ids"

    def end(self) -> None:
        """Declare one row of logits, so that it makes room for one."""
        self.graph.output("logits", "float32", ["texts", 1, self.config.vocabulary])

    def last_rows(self, x: str) -> str:
        """Logits of the last token only, as of EdgeKit's."""
        return self.graph.op("Slice", x, self.graph.ints(-1), self.graph.ints(2**62), self.graph.ints(1))


def write_genai_folder(
    model: LanguageModel, weights: Mapping[str, BlockWeights], context: int, folder: Path
) -> None:
    """``model.onnx``, ``model.data`` and ``genai_config.json`` in ``folder``, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = _GenaiDecoder(model, weights, context).write()
    (folder / MODEL_FILE).write_bytes(graph.model(DATA_FILE).SerializeToString())
    with (folder / DATA_FILE).open("wb") as file:
        graph.write_data(file)
    c = model.config
    decoder = {
        "session_options": {"intra_op_num_threads": 1, "log_id": "genai", "provider_options": []},
        "filename": MODEL_FILE, "head_size": c.head_size, "hidden_size": c.width,
        "num_attention_heads": c.heads, "num_hidden_layers": c.layers, "num_key_value_heads": c.kv_heads,
        "inputs": {
            "input_ids": "input_ids", "attention_mask": "attention_mask", "past_key_names": "key%d",
            "past_value_names": "value%d",
        },
        "outputs": {
            "logits": "logits", "present_key_names": "key%d/out", "present_value_names": "value%d/out",
        },
    }  # fmt: skip
    config = {
        "model": {
            "type": "llama", "bos_token_id": 0, "eos_token_id": c.vocabulary - 1, "pad_token_id": 0,
            "context_length": context, "vocab_size": c.vocabulary, "decoder": decoder,
        },
        "search": {"max_length": context, "past_present_share_buffer": True, "do_sample": False},
    }  # fmt: skip
    (folder / "genai_config.json").write_text(json.dumps(config))
