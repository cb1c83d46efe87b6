"""A repository, the server that serves it, and a device with a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from edgekit.release.updates.http_files import DownloadLimits, HttpFiles
from edgekit.release.updates.publishing import publish
from edgekit.release.updates.repository import Repository, now_utc
from edgekit.release.updates.repository_keys import RoleKeys
from edgekit.release.updates.update import Updated, update
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import small_bundle, variant
from tests.release.updates.file_server import FileServer, serving

QUICK = DownloadLimits(connect_s=5, head_s=20, silence_s=20, wait_s=0.0, wait_limit_s=0.0)


class World:
    """Publisher, server and device of a test."""

    def __init__(self, folder: Path, server: FileServer) -> None:
        self.folder, self.server = folder, server
        self.shift = self.device_shift = timedelta(0)
        self.site = folder / "site"
        self.repository = Repository(
            self.site, RoleKeys(folder / "online", folder / "offline", self.site), self.time
        )
        self.store = Store(folder / "store", self.bundle("factory"))
        self.options: dict[str, Any] = {"device": "camera-7"}
        self.limits = QUICK

    def time(self) -> datetime:
        return now_utc() + self.shift

    def bundle(self, name: str, entries: dict[str, bytes] | None = None) -> Path:
        return small_bundle([variant(name, "ort")], entries).save(self.folder / f"{name}.edgekit")

    def publish(self, name: str, **options: Any) -> None:
        publish(self.repository, self.bundle(name), "stable", "detector", **options)

    def update(self, **options: Any) -> Updated:
        files = HttpFiles(self.server.url, limits=self.limits, sleep=lambda seconds: None)
        root = self.site / "metadata" / "1.root.json"
        found = {"root": root, "now": lambda: self.time() + self.device_shift, **self.options, **options}
        return update(self.store, files, "stable", **found)

    def current(self) -> str:
        """Name of the variant of the bundle that the store would start."""
        from edgekit.bundle import Bundle

        with Bundle.open(Store(self.store.root, self.store.factory).path) as bundle:
            return bundle.variants[0].name


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    pytest.importorskip("tuf")
    (tmp_path / "site").mkdir()
    with serving(tmp_path / "site") as server:
        made = World(tmp_path, server)
        made.repository.create(["stable", "canary"])
        yield made
