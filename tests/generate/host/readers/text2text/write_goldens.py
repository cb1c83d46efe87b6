"""Writes goldens.npz: what transformers computes with the folders of tests/fixtures/text2text_folders.py.

python -m tests.generate.host.readers.text2text.write_goldens      # needs torch and transformers
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array
from tests.fixtures.text2text_folders import FAMILIES, WIDTH, write_text2text
from tests.fixtures.transformers_goldens import write_goldens

FILE = Path(__file__).with_name("goldens.npz")
SOURCES = ([3, 4, 5, 20, 8], [6, 28, 10, 11, 29, 13, 14, 15, 18, 7, 9, 12, 22, 31, 30, 17, 5, 4, 3, 8])
"""Tokens of two texts; the first is padded to the length of the second."""
CHOSEN = [8, 12, 31, 7, 7, 40, 5, 21, 33, 2, 9, 16, 27, 41, 19]
"""Tokens after the start token, whose logits are compared."""
NEW_TOKENS = 24
DISTANCES = np.arange(-300, 301)


def computed(folder: Path, family: str) -> dict[str, Array]:
    """Logits and greedy tokens of a folder, by transformers."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
    config, longest = model.config, max(map(len, SOURCES))
    ids = torch.tensor([[*s, *[config.pad_token_id] * (longest - len(s))] for s in SOURCES])
    mask = torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s in SOURCES])
    start = model.generation_config.decoder_start_token_id
    chosen = torch.tensor([[start, *CHOSEN]] * len(SOURCES))
    found = {}
    with torch.no_grad():
        found["logits"] = model(
            input_ids=ids, attention_mask=mask, decoder_input_ids=chosen, use_cache=False
        ).logits.numpy()
        for number, source in enumerate(SOURCES):
            tokens = model.generate(
                torch.tensor([source]),
                max_new_tokens=NEW_TOKENS,
                num_beams=1,
                do_sample=False,
                use_cache=False,
            )
            found[f"tokens{number}"] = tokens[0].numpy()[1:]
    if family == "marian":
        found["positions"] = model.model.encoder.embed_positions.weight.detach().numpy()[:, :WIDTH]
    return {f"{family}/{name}": values for name, values in found.items()}


def buckets() -> dict[str, Array]:
    """Buckets of T5's relative positions."""
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    found = {}
    for both_ways in (False, True):
        for number, distance in ((32, 128), (8, 12), (48, 200)):
            values = T5Attention._relative_position_bucket(
                torch.from_numpy(DISTANCES), both_ways, number, distance
            )
            found[f"buckets/{int(both_ways)}/{number}/{distance}"] = values.numpy()
    return found


def main() -> None:
    arrays = buckets()
    with tempfile.TemporaryDirectory() as folder:
        for family in FAMILIES:
            arrays |= computed(write_text2text(Path(folder) / family, family), family)
    write_goldens(FILE, arrays)


if __name__ == "__main__":
    main()
