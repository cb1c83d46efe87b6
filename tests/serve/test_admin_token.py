"""Who may load and unload models: over HTTP and gRPC, with and without an admin token."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.server import serve
from tests.fixtures.servers import running

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
from edgekit.serve.service import Access  # noqa: E402
from tests.fixtures import grpc_servers  # noqa: E402

pytestmark = pytest.mark.needs_ort
USER, ADMIN = {"Authorization": "Bearer " + "u" * 20}, {"Authorization": "Bearer " + "a" * 20}
NONE_HERE = (
    "models cannot be loaded or unloaded here: the server has no admin token; start it with "
    "--admin-token-file"
)
NEEDED = "loading and unloading models needs the admin token: send Authorization: Bearer ADMIN_TOKEN"
UNLOAD = "/v2/repository/models/net/unload"
M = grpc_servers.M


@pytest.mark.parametrize(
    ("access", "status"),
    [
        (Access(), 200),
        (Access("u" * 20), 403),
        (Access("u" * 20, loopback=False), 403),
        (Access(None, loopback=False), 403),  # clients with certificates
        (Access(exposed=True), 403),
        (Access(admin_token="a" * 20), 401),
        (Access("u" * 20, loopback=False, admin_token="a" * 20), 401),
    ],
)
def test_an_inference_token_loads_and_unloads_nothing(access: Access, status: int) -> None:
    said = "Bearer " + "u" * 20
    access.check_token(said)
    if status == 200:
        access.check_admin(said)
        return
    with pytest.raises(RequestError) as error:
        access.check_admin(said)
    assert (error.value.status, str(error.value)) == (status, NONE_HERE if status == 403 else NEEDED)
    if access.admin_token is not None:
        access.check_admin("Bearer " + access.admin_token)
        access.check_token("Bearer " + access.admin_token)  # good for everything


def test_over_http(bundle: Path) -> None:
    access = Access("u" * 20, loopback=False, admin_token="a" * 20)
    with running({("net", "1"): bundle}, access=access) as server:
        load = "/v2/repository/models/net/load"
        for path in (load, UNLOAD):
            assert server.ask("POST", path, b"", USER)[0] == 401
            assert server.ask("POST", path, b"")[0] == 401
        assert server.ask("GET", "/v2/models/net", headers=USER)[0] == 200
        assert server.ask("POST", UNLOAD, b"", ADMIN)[0] == 200
        assert server.ask("GET", "/v2/models/net", headers=USER)[0] == 404
        assert server.ask("POST", load, b"", ADMIN)[0] == 200
        assert server.ask("GET", "/v2/models/net", headers=ADMIN)[0] == 200


def test_over_grpc(bundle: Path) -> None:
    access = Access("u" * 20, loopback=False, admin_token="a" * 20)
    user, admin = [[("authorization", said["Authorization"])] for said in (USER, ADMIN)]
    with grpc_servers.running({("net", "1"): bundle}, access=access) as client:
        for name in ("RepositoryModelLoad", "RepositoryModelUnload"):
            request = M[f"{name}Request"](model_name="net")
            with pytest.raises(grpc.RpcError) as error:
                client.call(name, request, metadata=user)
            assert (error.value.code(), error.value.details()) == (grpc.StatusCode.UNAUTHENTICATED, NEEDED)
            client.call(name, request, metadata=admin)


def test_the_two_tokens_differ(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length\n")
    with pytest.raises(UsageError, match="hold the same token; they must differ"):
        serve([f"net={bundle}"], token_file=file, admin_token_file=file)
