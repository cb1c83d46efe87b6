from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install '.[train]')")

from edgekit.compiler.compress.torch.training_state import TrainingState, load_state, save_state  # noqa: E402
from edgekit.errors import UsageError  # noqa: E402


def checkpoint(folder: Path) -> Path:
    path = folder / "c"
    state = TrainingState(step=3, losses=[2.0, 1.0], parameters=[torch.arange(6.0)], learning_rate=0.005)
    save_state(path, state, "key")
    return path


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    found = load_state(checkpoint(tmp_path), "key")
    assert (found.step, found.losses, found.learning_rate) == (3, [2.0, 1.0], 0.005)
    assert found.parameters[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_file_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 5):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match="is damaged; delete it"):
            load_state(path, "key")


def test_a_flipped_byte_is_an_error_that_says_so_or_nothing(tmp_path: Path) -> None:
    path, rng = checkpoint(tmp_path), np.random.default_rng(0)
    whole = path.read_bytes()
    for at in rng.integers(0, len(whole), 300):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with suppress(UsageError):
            load_state(path, "key")
