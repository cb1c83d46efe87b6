"""Writes goldens.npz: what transformers computes with the folder of tests/fixtures/moonshine_folders.py.

python -m tests.generate.host.readers.speech.write_goldens      # needs torch and transformers
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array
from tests.fixtures.moonshine_folders import SIZES, START, Sizes, write_moonshine
from tests.fixtures.transformers_goldens import write_goldens
from tests.fixtures.whisper_folders import speech

FILE = Path(__file__).with_name("goldens.npz")
SECONDS = (0.83, 2.6)
CHOSEN = [START, 5, 300, 270, 7, 299, 280, 33]
"""Tokens after which logits are compared."""
NEW_TOKENS = 24
KEPT = 512
"""Most logits of a token that are stored: every n-th of them."""


def thinned(logits: Array) -> Array:
    """Every n-th logit of each token."""
    return logits[:, :: -(-logits.shape[1] // KEPT)]


def computed(folder: Path, name: str) -> dict[str, Array]:
    """Logits and greedy tokens of a folder, by transformers."""
    import torch
    from transformers import AutoModelForSpeechSeq2Seq

    model: Any = AutoModelForSpeechSeq2Seq.from_pretrained(folder, attn_implementation="eager").eval()
    arrays = {}
    with torch.no_grad():
        for number, seconds in enumerate(SECONDS):
            sound = torch.from_numpy(speech(seconds).astype(np.float32))[None]
            chosen = torch.tensor([CHOSEN])
            logits = model(input_values=sound, decoder_input_ids=chosen, use_cache=False).logits
            tokens = model.generate(sound, max_new_tokens=NEW_TOKENS, num_beams=1, do_sample=False)
            arrays[f"{name}/logits{number}"] = thinned(logits[0].numpy())
            arrays[f"{name}/tokens{number}"] = tokens[0].numpy()[1:]
    return arrays


def all_computed(folder: Path, forms: Mapping[str, Sizes] = SIZES) -> dict[str, Array]:
    """The same of all forms, in folders of this one."""
    arrays: dict[str, Array] = {}
    for name, sizes in forms.items():
        arrays |= computed(write_moonshine(folder / name, sizes), name)
    return arrays


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arrays = all_computed(Path(folder))
    write_goldens(FILE, arrays)


if __name__ == "__main__":
    main()
