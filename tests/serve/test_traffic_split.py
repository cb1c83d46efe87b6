"""A/B comparison: which version takes a request, and the outcomes that apps report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import with_version
from edgekit.errors import UsageError
from edgekit.serve.traffic_split import TrafficSplit, parse_split
from tests.fixtures.classifiers import vectors
from tests.fixtures.servers import Running, running

pytestmark = pytest.mark.needs_ort
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": vectors(1)[0]["x"].ravel().tolist()}
ASK = json.dumps({"inputs": [TENSOR]}).encode()


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Bundle.open(bundle) as opened:
        second = with_version(opened, 2).save(tmp_path_factory.mktemp("split") / "second.edgekit")
    split = TrafficSplit(
        [parse_split("net:1=X-Group:old"), parse_split("net:1=25%"), parse_split("net:7=50%")]
    )
    with running({("net", "1"): bundle, ("net", "2"): second}, split=split) as found:
        yield found


def version(server: Running, headers: dict[str, str], path: str = "/v2/models/net/infer") -> str:
    status, _, content = server.ask("POST", path, ASK, headers)
    assert status == 200, content
    return str(json.loads(content)["model_version"])


def test_a_version_takes_its_share_of_the_users_and_those_with_a_header(server: Running) -> None:
    by_user = {user: version(server, {"EdgeKit-User": f"user-{user}"}) for user in range(120)}
    assert 15 <= Counter(by_user.values())["1"] <= 45  # 30 expected; version 7 is not served
    assert all(
        version(server, {"EdgeKit-User": f"user-{user}"}) == by_user[user] for user in range(0, 120, 9)
    )
    assert {version(server, {"X-Group": "old"}) for _ in range(8)} == {"1"}
    assert {version(server, {"X-Group": "old"}, "/v2/models/net/versions/2/infer") for _ in range(4)} == {"2"}
    assert {version(server, {}) for _ in range(60)} == {"1", "2"}


def test_outcomes_are_compared_with_the_current_version(server: Running) -> None:
    rng = np.random.default_rng(0)
    for number in range(80):
        for name, rate in (("1", 0.9), ("2", 0.3)):
            value = bool(rng.random() < rate)
            body = json.dumps({"value": value})
            assert server.ask("POST", f"/v2/models/net/versions/{name}/outcomes", body)[0] == 200
        if number == 10:
            assert server.get("/v2/models/net/outcomes")[1]["versions"][0]["interval"] is None
    answer = server.get("/v2/models/net/outcomes")[1]
    one, two = answer["versions"]
    assert (answer["current"], one["version"], one["outcomes"], two["outcomes"]) == ("2", "1", 80, 80)
    assert "difference" not in two
    low, high = one["difference_interval"]
    assert 0.3 < low < one["difference"] < high < 0.9
    assert one["interval"][0] < one["mean"] < one["interval"][1]


@pytest.mark.parametrize("body", ['{"value": "good"}', "{}", '{"value": 1e10}', '{"value": NaN}', "[1]"])
def test_an_outcome_is_a_number(server: Running, body: str) -> None:
    status, _, content = server.ask("POST", "/v2/models/net/outcomes", body)
    assert (status, "value must be a number" in str(content) or "not a JSON object" in str(content)) == (
        400,
        True,
    )


@pytest.mark.parametrize(
    "text", ["net=10%", "net:2", "net:2=10", "net:2=0%", "net:2=100%", "net:2=nan%", "net:2=X-Group:"]
)
def test_a_split_that_can_not_be_read(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"^--split .* can't be read; write NAME:VERSION=SHARE%, e\.g\. net:2=10%, or "
    ):
        parse_split(text)
