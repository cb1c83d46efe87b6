"""Files of a repository on the Hugging Face Hub, as a folder in EdgeKit's cache.

This runs before a model's process starts, which has no network. Only files that the readers of folders read
are fetched: ONNX with its external data, safetensors of the models that are read from these, and JSON next to
them; or a bundle with its signature. Pickles and code are not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.hub.address import COMMIT, HubAddress
from edgekit.compiler.hub.client import Listed, explained, hub_library, list_repository, receive_file
from edgekit.compiler.model.external_names import external_names
from edgekit.compiler.model.hugging_face_folder import INDEX, WEIGHTS, is_read, model_type, preferred_onnx
from edgekit.errors import BundleError, EdgeKitError, ModelError, printable
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.atomic_files import locked, private_folder, write_atomically
from edgekit.system.cache_folder import cache_folder
from edgekit.system.progress import step
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Json

TOTAL_BYTES = 32 << 30
"""Maximum size of the files of one model together."""
BLOCK_BYTES = 1 << 20
LOCK_SECONDS = 3600.0
CONFIG = "config.json"
BESIDE = (
    *(CONFIG, "generation_config.json", "preprocessor_config.json", "1_Pooling/config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"),
    *("spiece.model", "source.spm", "target.spm", "vocab.json"),
)
"""Files that the readers of folders read next to a model's weights."""
PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth", ".py")
"""Suffixes of files that are not fetched, also if a model calls them its external data."""
RECORD, RECORD_BYTES = "files.json", 1 << 20
BUNDLE = ".edgekit"
"""Suffix of bundles."""
REPOSITORY = "repository"
"""Key of the manifest's ``source``."""
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")


class Fetched(NamedTuple):
    """Result of a fetch.

    Attributes:
        path: Folder of the files, or the ONNX file if it is not a Hugging Face folder's.
    """

    path: Path
    address: HubAddress


Download = Callable[[Any, HubAddress, Mapping[str, Listed], Path, Any], str]


def fetch(address: HubAddress) -> Fetched:
    """Fetch a model's files; those of a commit that are in the cache are not fetched again.

    Raises:
        ModelError: the repository, revision or file does not exist or is not accessible, it has no ONNX file
            or several, files are too large or differ from the list, or the hub can't be reached.
        UsageError: the repository's name is not one of the hub.
        MissingDependency: the package huggingface_hub is not installed.
        OSError: the cache can't be written.
    """
    return _fetch(address, _download_model, ModelError)


def fetch_bundle(address: HubAddress) -> Path:
    """Fetch a bundle, with its signature if there is one, and return its path in the cache."""
    return _fetch(address, _download_bundle, BundleError).path


def is_fetched(path: Path) -> bool:
    """Return whether a path is one of the cached files, which must stay as they are on the hub."""
    hub, target = (os.path.realpath(name) for name in (cache_folder() / "hub", path))
    return Path(hub) in Path(target).parents


def _fetch(address: HubAddress, download: Download, kind: type[EdgeKitError]) -> Fetched:
    hub = hub_library(address, "fetching")
    root = cache_folder() / "hub"
    place = hub.constants.ENDPOINT + ("" if download is _download_model else f"\n{BUNDLE}")
    if address.is_pinned and (cached := _cached(root, place, address)):
        return cached
    with step("fetching") as update:
        update(address)
        with _explained(hub, address, kind, root):
            commit, files = list_repository(hub, address)
        if not COMMIT.fullmatch(commit) or (address.is_pinned and commit != address.revision):
            raise kind(f"{address}: the hub names another commit, {printable(commit)[:60]}")
        pinned = address.at(commit)
        folder = _folder(root, place, pinned)
        private_folder(root)
        with locked(folder.with_suffix(".lock"), LOCK_SECONDS):
            if cached := _cached(root, place, pinned):
                return cached
            draft = folder.with_suffix(".part")
            shutil.rmtree(draft, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            private_folder(draft)
            try:
                with _explained(hub, address, kind, root):
                    name = download(hub, pinned, files, draft / _name(pinned), update)
                record = json.dumps({"address": pinned, "model": name}).encode()
                write_atomically(draft / RECORD, [record], 0o600)
                os.replace(draft, folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    cached = _cached(root, place, pinned)
    assert cached is not None
    return cached


def with_repository(bundle: Bundle, address: HubAddress) -> Bundle:
    """Return the same bundle, in memory, with the address of its model's commit, ``source.repository``."""
    source = {**bundle.manifest["source"], REPOSITORY: str(address)}
    entries = {entry["name"]: bytes(bundle.read(entry["name"])) for entry in bundle.manifest["entries"]}
    return Bundle.create({**bundle.manifest, "source": source}, entries)


def _name(address: HubAddress) -> str:
    return address.repository.rpartition("/")[2]


def _folder(root: Path, place: str, pinned: HubAddress) -> Path:
    return root / hashlib.sha256(f"{place}\n{pinned}".encode()).hexdigest()[:32]


def _cached(root: Path, place: str, pinned: HubAddress) -> Fetched | None:
    folder = _folder(root, place, pinned)
    if not (folder / RECORD).is_file():
        return None
    private_folder(folder)  # refuses one that others may write to
    record = json.loads(read_plain(folder / RECORD, RECORD_BYTES))
    return Fetched(folder / _name(pinned) / record["model"], pinned)


def _download_model(
    hub: Any, address: HubAddress, files: Mapping[str, Listed], folder: Path, update: Any
) -> str:
    names: list[str] = []

    def add(*added: str) -> None:
        names.extend(added)
        total = sum(files[name].size_bytes for name in names)
        if total > TOTAL_BYTES:
            raise ModelError(
                f"{address}: its files have {total / 2**30:.1f} GB; at most {TOTAL_BYTES >> 30} GB are "
                "fetched"
            )
        for name in added:
            update(f"{address}: {name}")
            download_file(hub, address, name, files[name], folder)

    if CONFIG in files:
        add(CONFIG)
    weights = [name for name in files if name in (WEIGHTS, INDEX) or _SHARD.fullmatch(name)]
    if not address.file and is_read(folder, bool(weights)):
        if not weights:
            raise ModelError(f"{address}: has no {WEIGHTS}, from which {model_type(folder)} models are read")
        weights, model = [WEIGHTS] if WEIGHTS in weights else weights, ""
    else:
        weights = [model := _chosen_onnx(address, files)]
    add(*(name for name in BESIDE[1:] if name in files), *weights)
    if model:
        place = model.rpartition("/")[0]
        data_names = [f"{place}/{name}".lstrip("/") for name in sorted(external_names(folder / model))]
        data_names = [name for name in data_names if name in files and name not in names]
        pickles = [name for name in data_names if name.endswith(PICKLES)]
        if pickles:
            raise ModelError(
                f"{address}: {model} has its data in {printable(pickles[0])}, a name of a pickle or of code, "
                "which are not fetched; download the folder yourself, and pass it"
            )
        add(*data_names)
    is_folder = model_type(folder) and not is_read(folder, False) and preferred_onnx([model]) == model
    return "" if is_folder else model


def _chosen_onnx(address: HubAddress, files: Mapping[str, Listed]) -> str:
    """Return the ONNX file to fetch: the address's, else the one that is taken of a folder."""
    onnx_names = sorted(name for name in files if name.endswith(".onnx"))
    if not onnx_names and not address.file:
        if any(name.endswith(BUNDLE) for name in files):
            raise ModelError(f"{address}: has a bundle and no ONNX file; edgekit run {address} runs it")
        raise ModelError(
            f"{address}: has no ONNX file; export it (optimum-cli export onnx --model {address.repository} "
            "FOLDER), and pass the folder"
        )
    return _one(address, "ONNX file", onnx_names, preferred_onnx(onnx_names))


def _one(address: HubAddress, kind: str, names: Sequence[str], chosen: str) -> str:
    """Return the address's file if it is one of the names, or the chosen name if the address has no file."""
    shown = ", ".join(map(printable, names[:20])) + (", ..." if len(names) > 20 else "")
    if not names or address.file not in ("", *names):
        raise ModelError(
            f"{address}: has no {kind} {address.file or f'(*{BUNDLE})'}; it has {shown or 'none'}"
        )
    if not address.file and not chosen:
        raise ModelError(
            f"{address}: has {len(names)} {kind}s: {shown}; name one behind the address, e.g. "
            f"{address}/{printable(names[0])}"
        )
    return address.file or chosen


def _download_bundle(
    hub: Any, address: HubAddress, files: Mapping[str, Listed], folder: Path, update: Any
) -> str:
    names = sorted(name for name in files if name.endswith(BUNDLE))
    bundle = _one(address, "bundle", names, names[0] if len(names) == 1 else "")
    for name in (bundle, str(signature_path(bundle))):
        if name in files:
            update(f"{address}: {name}")
            download_file(hub, address, name, files[name], folder)
    return bundle


def download_file(hub: Any, address: HubAddress, name: str, listed: Listed, folder: Path) -> None:
    """Download one file and compare it with the list."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        receive_file(hub, address, name, listed.size_bytes, file)
    facts = os.lstat(path)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != listed.size_bytes:
        raise ModelError(
            f"{address}: {name} has {facts.st_size} bytes; the hub's list says {listed.size_bytes}"
        )
    digest = hashlib.sha256() if listed.sha256 else hashlib.sha1(usedforsecurity=False)
    if not listed.sha256:
        digest.update(b"blob %d\0" % listed.size_bytes)  # as git hashes a file
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != (listed.sha256 or listed.sha1):
        raise ModelError(f"{address}: {name} differs from the hash in the hub's list; try again")


def _explained(
    hub: Any, address: HubAddress, kind: type[EdgeKitError], root: Path
) -> contextlib.AbstractContextManager[None]:
    return explained(hub, address, kind, advice=lambda: _advice(root, address, kind is BundleError))


def _advice(root: Path, address: HubAddress, is_bundle: bool) -> str:
    """Return which commits of a repository are in the cache, for a build without a network."""
    cached = set()
    for path in sorted(root.glob(f"*/{RECORD}")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            record: Json = json.loads(read_plain(path, RECORD_BYTES))
            if str(record["model"]).endswith(BUNDLE) == is_bundle:
                cached.add(str(record["address"]))
    commits = [text for text in sorted(cached) if text.startswith(f"hf://{address.repository}@")]
    return f"in the cache: {', '.join(commits[:5])}" if commits else "check the network"
