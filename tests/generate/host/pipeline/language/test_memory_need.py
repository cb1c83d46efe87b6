"""Memory that the build of a language model claims."""

from __future__ import annotations

import math
from pathlib import Path

from edgekit.generate.host.pipeline.language.language_bundle import decoder_need
from edgekit.generate.host.readers.language.open_model import open_language_model
from tests.fixtures.gguf_files import Q4_1, write_tiny


def test_a_decoder_s_need(tmp_path: Path) -> None:
    """Weights as float32 for each target, whatever the file stores them as."""
    config = open_language_model(write_tiny(tmp_path / "tiny.gguf", Q4_1)).config
    weights = 4 * sum(math.prod(shape) for shape in config.weight_shapes().values())
    one, three = (decoder_need(config, targets, 128, 64) for targets in (1, 3))
    assert three - one == 2 * weights
    assert decoder_need(config, 1, 256, 64) - one == 4 * 2 * 4 * (2 * 2 * 16) * 128  # layers, heads, size
    assert decoder_need(config, 1, 128, 128) - one == 4 * 8 * 309 * 64
