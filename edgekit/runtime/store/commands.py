"""Commands ``edgekit store install``, ``status``, ``commit`` and ``rollback`` on a store of bundles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import EdgeKitError, UsageError
from edgekit.runtime.store.bundle_store import Store
from edgekit.runtime.store.state import FACTORY, StoreState
from edgekit.system.formats.plain_text import table
from edgekit.tensor_spec import Json

SEARCHED_DEPTH = 3
SEARCHED_ENTRIES = 10_000
"""A folder is searched so far: a stick may hold anything."""
LISTED = 10
SHORT = 12


def find_bundle(path: Path, name: str | None) -> Path:
    """Find a bundle by path: a file, or the only one in a folder and the folders below it.

    Args:
        path: A bundle, or a folder, e.g. of a USB stick.
        name: Name of a model: of several bundles in a folder, those whose file name begins with it.

    Raises:
        UsageError: there is none, or more than one.
    """
    if not path.is_dir():
        return path
    bundles, entry_count = [], 0
    for folder, folders, files in os.walk(path):  # links are not followed
        depth = len(Path(folder).relative_to(path).parts)
        entry_count += len(files) + len(folders)
        folders[:] = sorted(folders) if depth < SEARCHED_DEPTH and entry_count < SEARCHED_ENTRIES else []
        bundles += [Path(folder, file) for file in sorted(files) if file.endswith(".edgekit")]
    if name is not None:
        named = [bundle for bundle in bundles if bundle.stem == name]
        bundles = named or [
            bundle for bundle in bundles if bundle.stem.startswith((f"{name}-", f"{name}_", f"{name}."))
        ]
    if len(bundles) == 1:
        return bundles[0]
    if bundles:
        listed = "".join(f"\n  {bundle}" for bundle in bundles[:LISTED])
        more = f"\n  and {len(bundles) - LISTED} more" if len(bundles) > LISTED else ""
        raise UsageError(f"{path} has {len(bundles)} bundles: name one of them{listed}{more}")
    missing = "no bundle" if name is None else f"no bundle of {name}"
    raise UsageError(f"{path} has {missing} (NAME.edgekit), {SEARCHED_DEPTH} folders deep")


def opened(root: Path, name: str | None) -> Store:
    """Return a store that exists, for a tool that starts nothing.

    Raises:
        UsageError: there is none, or none of that name.
    """
    if name is None and not _is_model(root) and len(names := _names(root)) > 0:
        if len(names) > 1:
            raise UsageError(f"{root} has several models: give --name {' or '.join(names)}")
        name = names[0]
    store = Store(root, None, name=name)
    if not _is_model(root if name is None else root / "models" / name):
        suffix = "" if name is None else f" of {name}"
        raise UsageError(f"{root} has no store{suffix}; `edgekit store install` makes one")
    return store


def commit(store: Store) -> str:
    """Commit the candidate; returns its digest.

    Raises:
        UsageError: there is none.
        EdgeKitError: the disk does not take it.
    """
    state = store.state
    if not state.candidate:
        reason = "its staged bundle was not started yet" if state.staged else "it has no candidate"
        raise UsageError(f"nothing to commit in {store.root}: {reason}")
    store.confirm(state.candidate)
    _must_be_stored(store, state.candidate in store.state.good)
    return state.candidate


def rollback(store: Store, reason: str) -> tuple[str, str]:
    """Give up the bundle of the next start; returns its digest and that of the next start now.

    Raises:
        UsageError: it is the factory's.
        EdgeKitError: the disk does not take it.
    """
    digest = store.state.current
    if digest == FACTORY:
        raise UsageError(f"nothing to roll back in {store.root}: the next start is the factory's bundle's")
    store.give_up(reason, digest)
    _must_be_stored(store, store.state.current != digest)
    return digest, store.state.current


def status(root: Path, name: str | None) -> dict[str, Json]:
    """Return the models of a store, each with its bundles. No bundle is opened.

    Raises:
        UsageError: there is no store, or none of that name.
    """
    names: list[str | None] = [name] if name is not None else [None] if _is_model(root) else []
    names += _names(root) if name is None else []
    if not names:
        raise UsageError(f"{root} has no store; `edgekit store install` makes one")
    return {"store": str(root), "models": [_model(opened(root, model)) for model in names]}


def status_text(status: dict[str, Any]) -> str:
    """Format the status as text."""
    lines = []
    for model in status["models"]:
        lines.append(f"{status['store']}{', ' + model['name'] if model['name'] else ''}")
        rows = [
            (
                entry["phase"],
                entry["digest"][:SHORT],
                "" if entry["version"] is None else str(entry["version"]),
                "missing" if entry["size_bytes"] is None else f"{entry['size_bytes'] / 1e6:.2f} MB",
                entry["note"],
            )
            for entry in model["bundles"]
        ]
        lines += table(("state", "bundle", "version", "size", ""), rows) if rows else []
        lines.append(f"  next start: {model['next'][:SHORT] or 'the factory bundle'}")
        lines += [f"  given up: {entry['digest'][:SHORT]}  {entry['reason']}" for entry in model["given_up"]]
        lines += [f"  note: {note}" for note in model["notes"]]
    return "\n".join(lines)


def _model(store: Store) -> dict[str, Json]:
    state = store.state
    order = [state.staged, state.candidate, *state.good]
    return {
        "name": store.name or "",
        "next": state.current,
        "minimum": state.minimum,
        "bundles": [_bundle(store, state, digest) for digest in order if digest],
        "given_up": [{"digest": digest, "reason": reason} for digest, reason in state.given_up],
        "notes": list(store.notes),
    }


def _bundle(store: Store, state: StoreState, digest: str) -> dict[str, Json]:
    path = store.slot(digest)
    try:
        size_bytes = path.stat().st_size
    except OSError:
        size_bytes = None
    active = digest == state.active
    note = f"runs, {state.starts} unconfirmed starts" if active and state.starts else "runs" if active else ""
    return {
        "digest": digest,
        "phase": state.phase(digest),
        "active": active,
        "starts": state.starts if active else 0,
        "version": dict(state.versions).get(digest),
        "file": str(path),
        "size_bytes": size_bytes,
        "note": note,
    }


def _is_model(folder: Path) -> bool:
    return any((folder / f"state.{number}.json").exists() for number in (0, 1))


def _names(root: Path) -> Sequence[str]:
    models = root / "models"
    folders = sorted(models.iterdir()) if models.is_dir() else []
    return [path.name for path in folders if path.is_dir() and _is_model(path)]


def _must_be_stored(store: Store, is_so: bool) -> None:
    """Raise EdgeKitError if a change is not stored: the tool ends, and its memory is lost."""
    if not is_so or not store.is_saved:
        raise EdgeKitError(
            "\n  ".join(store.notes) or f"{store.root} was changed by another process meanwhile"
        )
