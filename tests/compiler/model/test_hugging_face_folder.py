from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.model.hugging_face_folder import read_json
from edgekit.errors import ModelError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", ": config.json: character 1 is not JSON"),
        (b"[]", "/config.json: is not a JSON object; download it again"),
    ],
)
def test_a_file_that_is_not_a_json_object_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ModelError) as error:
        read_json(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(tmp_path))
    assert str(error.value).endswith("; download it again")
