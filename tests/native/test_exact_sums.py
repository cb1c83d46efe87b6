"""Sums of integer products in libedgekit on a processor without VNNI, which QEMU emulates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from edgekit_ort.run import MODEL_FILE

from tests.native.library import compiled, ort_library
from tests.native.models import model_bundle
from tests.targets.ort.emulated_products import compiled_product, largest_error, needs_emulator

pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_ort]
IN_THE_EMULATOR = """
import sys
from pathlib import Path
import numpy as np
from tests.native.library import NativeBundle, NativeSession, ort_library
folder, kind = Path(sys.argv[1]), sys.argv[2]
with NativeBundle(folder / f"{kind}.edgekit") as bundle, NativeSession(bundle, ort_library()) as session:
    np.save(folder / "y.npy", session.run({"x": np.load(folder / "x.npy")}, 1)["y"])
"""


@needs_emulator
def test_sums_are_exact_without_vnni(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not ort_library():
        pytest.skip("this wheel of onnxruntime has no libonnxruntime.so")
    monkeypatch.setenv("LIBEDGEKIT", str(compiled()))  # not to compile it in the emulator
    artifact, weights = compiled_product(tmp_path, 127)
    assert artifact.options["wide_sums"] is True
    model = bytes(artifact.files[MODEL_FILE])
    for kind, options in (("narrow", {}), ("wide", artifact.options)):
        made = model_bundle({"product": model}, model, None, options=dict(options))
        made.save(tmp_path / f"{kind}.edgekit")
    assert largest_error(tmp_path, weights, IN_THE_EMULATOR, "wide") < 0.001
    with pytest.raises(subprocess.CalledProcessError) as caught:
        largest_error(tmp_path, weights, IN_THE_EMULATOR, "narrow")
    assert b"output y of a golden vector: SNR" in caught.value.stderr  # the emulated processor does saturate
