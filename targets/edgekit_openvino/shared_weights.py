"""Weight sharing: ``model.xml`` of a further shape, compressed, reads the ``model.bin`` of the largest."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence

from edgekit.target import Artifact
from edgekit_openvino.run import BIN_FILE, PACKED_FILE, XML_FILE

ALIGNMENT_BYTES = 64
"""Of constants that are added, so that a mapped file is read in place."""
_PLACE = re.compile(rb'( offset=")(\d+)("[^>]*? size=")(\d+)(")')
"""Of a Const's ``data``: https://docs.openvino.ai/2024/documentation/openvino-ir-format.html"""


def share_weights(whole: Artifact, further: Sequence[Artifact]) -> tuple[Artifact, list[Artifact]]:
    """Let artifacts of further shapes use the largest's ``model.bin``; add missing data, mostly shapes."""
    weights, described = bytearray(whole.files[BIN_FILE]), []
    places: dict[bytes, int] = {}
    for match in _PLACE.finditer(whole.files[XML_FILE]):
        places.setdefault(_digest(whole.files[BIN_FILE], match), int(match[2]))
    for artifact in further:
        binary = artifact.files[BIN_FILE]

        def relocated(match: re.Match[bytes], data: bytes = binary) -> bytes:
            digest = _digest(data, match)
            if digest not in places:
                weights.extend(bytes(-len(weights) % ALIGNMENT_BYTES))
                places[digest] = len(weights)
                weights.extend(data[int(match[2]) : int(match[2]) + int(match[4])])
            return match[1] + str(places[digest]).encode() + match[3] + match[4] + match[5]

        described.append(_PLACE.sub(relocated, artifact.files[XML_FILE]))
    together = bytes(weights)
    shared = [
        artifact._replace(files={PACKED_FILE: zlib.compress(xml, 9), BIN_FILE: together})
        for artifact, xml in zip(further, described, strict=True)
    ]
    return whole._replace(files={**whole.files, BIN_FILE: together}), shared


def _digest(content: bytes, match: re.Match[bytes]) -> bytes:
    start = int(match[2])
    return hashlib.sha256(memoryview(content)[start : start + int(match[4])]).digest()
