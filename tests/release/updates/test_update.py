"""A device's store follows its channel: releases, rollouts, withdrawals, stops, expiry, wrong clocks."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import pytest

from edgekit.errors import UpdateError, UsageError
from edgekit.release.updates.publishing import change_release, refresh, roll_out, set_stopped, withdraw
from edgekit.release.updates.releases import bucket
from tests.release.updates.conftest import World


def test_a_device_gets_the_newest_release_once(world: World) -> None:
    world.publish("a")
    assert world.update().outcome == "installed"
    world.publish("b")
    done = world.update()
    assert (done.outcome, done.release) == ("installed", 2)
    assert world.current() == "b"
    before = len(world.server.requests)
    assert world.update(root=None).outcome == "up to date"
    assert not [path for path, _ in world.server.requests[before:] if ".edgekit" in path]
    assert not list((world.store.root / "updates" / "downloads").iterdir())


def test_a_rollout_reaches_the_devices_of_its_share_and_no_others(world: World) -> None:
    world.publish("a")
    world.publish("b", percent=50.0)
    path = "stable/detector/2.edgekit"
    names = [f"camera-{number}" for number in range(40)]
    inside = next(name for name in names if bucket(name, path) < 5000)
    outside = next(name for name in names if bucket(name, path) >= 5000)
    first = world.update(device=outside)
    assert first.release == 1
    assert first.notes == ("release 2 is released to 50 % of the devices, not yet to this one",)
    assert world.update(device=inside).release == 2
    # A smaller share takes nothing back.
    roll_out(world.repository, "stable", "detector", 0.0)
    assert world.update(device=inside).release == 2
    assert world.current() == "b"


def test_a_withdrawn_release_gives_way_to_the_one_before(world: World) -> None:
    world.publish("a")
    world.update()
    world.store.begin()
    world.store.confirm()
    world.publish("b")
    world.update()
    withdraw(world.repository, "stable", "detector", 2, "misses cyclists")
    done = world.update()
    assert (done.outcome, done.release) == ("installed", 1)
    assert done.notes == ("release 2 is withdrawn: misses cyclists",)
    assert done.fetched_bytes == 0  # the store has kept it
    assert world.current() == "a"


def test_a_release_that_is_not_there_is_not_withdrawn(world: World) -> None:
    world.publish("a")
    with pytest.raises(UsageError, match=r"^detector in stable has no release 7; it has: 1$"):
        withdraw(world.repository, "stable", "detector", 7, "x")
    with pytest.raises(UsageError, match=r"^channel stable has no model x; it has: detector$"):
        withdraw(world.repository, "stable", "x", 1, "x")


def test_a_stopped_channel_installs_nothing_until_it_goes_on(world: World) -> None:
    world.publish("a")
    world.update()
    world.publish("b")
    set_stopped(world.repository, "stable", "investigating")
    done = world.update()
    assert (done.outcome, done.release) == ("stopped", 1)
    assert done.notes == ("channel stable is stopped: investigating",)
    set_stopped(world.repository, "stable", "")
    assert world.update().release == 2


def test_a_bundle_that_the_store_gave_up_is_not_installed_again(world: World) -> None:
    world.publish("a")
    world.update()
    world.store.begin()
    world.store.give_up("empty answers")
    done = world.update()
    assert done.outcome == "no release for this device"
    assert "release 1 did not work here: empty answers" in done.notes


def test_expired_metadata_blocks_installs_and_nothing_else(world: World) -> None:
    world.publish("a")
    world.update()
    world.publish("b")
    world.shift = timedelta(days=8)  # timestamp holds for 7
    with pytest.raises(UpdateError, match=r"(?s)timestamp.json is expired.*the server says that it is"):
        world.update()
    assert world.current() == "a"
    refresh(world.repository)
    assert world.update().release == 2


def test_a_clock_that_is_behind_is_told_and_does_not_stop_updates(world: World) -> None:
    world.publish("a")
    world.device_shift = -timedelta(days=20_000)
    done = world.update()
    assert done.outcome == "installed"
    assert done.notes[0].startswith("this device's clock says 19")
    assert "set the clock" in done.notes[0]


def test_a_clock_that_is_behind_does_not_hide_expiry(world: World) -> None:
    """The channel was signed after the root and the targets had expired."""
    world.publish("a")
    world.shift = timedelta(days=366)
    world.publish("b")
    world.device_shift = -timedelta(days=20_000)
    with pytest.raises(
        UpdateError, match=r"the update is refused: root.json is expired, by this device's clock"
    ):
        world.update()
    assert world.current() == "factory"


def test_a_bundle_is_the_one_that_its_channel_names(world: World) -> None:
    world.publish("a")
    change_release(world.repository, "stable", "", 0, lambda custom: custom.update(bundle="0" * 64))
    with pytest.raises(UpdateError) as error:
        world.update()
    assert str(error.value) == (
        "stable/detector/1.edgekit is not the bundle that its channel names; publish it again"
    )
    assert world.current() == "factory"


def test_a_bundle_that_is_too_large_is_not_fetched(world: World) -> None:
    world.publish("a")
    with pytest.raises(UpdateError, match=r"has 0 MB; at most 0 MB are fetched \(--max-size-mb\)"):
        world.update(size_limit_bytes=100)
    assert not any(".edgekit" in path for path, _ in world.server.requests)


def test_a_clock_that_is_far_ahead_installs_nothing(world: World) -> None:
    world.publish("a")
    world.update()
    world.publish("b")
    world.device_shift = timedelta(days=9_000)
    with pytest.raises(UpdateError, match=r"is expired, by this device's clock"):
        world.update()
    assert world.current() == "a"
    world.device_shift = timedelta(0)
    assert world.update().release == 2


def test_keys_are_private_and_never_served(world: World) -> None:
    for folder in ("online", "offline"):
        for path in (world.folder / folder).iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = world.folder / "online" / "stable.pem"
    key.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        world.publish("a")
    from edgekit.release.updates.repository_keys import RoleKeys

    with pytest.raises(UsageError, match="served to everybody"):
        RoleKeys(world.site / "keys", None, world.site)


def test_two_updates_at_once_are_one_too_many(world: World) -> None:
    from edgekit.system.atomic_files import locked

    world.publish("a")
    world.update()
    with (
        locked(world.store.root / "updates" / ".lock", 1.0),
        pytest.raises(UpdateError, match=r"another update of .* is running"),
    ):
        world.update()


def test_the_first_update_needs_a_root(world: World, tmp_path: Path) -> None:
    world.publish("a")
    with pytest.raises(UsageError, match="needs the repository's root: give --root"):
        world.update(root=None)
