"""A bundle, its signature and its model card as one commit of a repository on the Hugging Face Hub.

Files are uploaded before the commit names them, so the repository has all of them or is as it was.

The model card is a README made from the bundle's evidence. Its metadata follow
https://huggingface.co/docs/hub/model-cards. The same bundle and address give the same bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.bundle.advice import advice
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.manifest import plain_path
from edgekit.bundle.report import (
    basis,
    checked_evidence,
    columns_and_rows,
    kept_of,
    model_notes,
    shared_notes,
    why_rejected,
)
from edgekit.compiler.hub.address import COMMIT, HubAddress
from edgekit.compiler.hub.client import (
    LOG_IN,
    Listed,
    explained,
    hub_library,
    list_repository,
)
from edgekit.compiler.hub.files import BUNDLE, download_file
from edgekit.errors import UpdateError, UsageError, index_line
from edgekit.processing.card import parse_card
from edgekit.processing.generation import is_generation
from edgekit.processing.processing import predicts_in_parts
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.formats.plain_text import escaped, markdown_table
from edgekit.system.progress import step
from edgekit.system.regular_file import sha256_of

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

README = "README.md"
README_BYTES = 1 << 20
"""Maximum size of a README that may be EdgeKit's own."""
NOT_WRITABLE = (
    "the token may not write to it; take one with the permission `write`, of an account that may, and "
    "check the owner's name"
)
STATUSES = {
    401: f"the token is not valid; set HF_TOKEN, or {LOG_IN}",
    403: NOT_WRITABLE,
    409: "it changed while this was published; publish again",
    412: "it changed while this was published; publish again",
    413: "the hub refuses a file of this size",
}
"""HTTP status of an upload -> its reason."""


class Publication(NamedTuple):
    """Result of a publication.

    Attributes:
        is_new: Whether the repository was created; it is private then.
        keeps_readme: Whether it has a README that somebody else wrote, which stays.
    """

    address: HubAddress
    url: str
    files: tuple[str, ...]
    is_new: bool
    keeps_readme: bool


def publish(address: HubAddress, path: Path, model: str = "") -> Publication:
    """Commit a bundle to a repository, which is created as a private one if it is missing.

    Every byte of the bundle is checked first. The bundle's own README replaces one that an earlier
    publication wrote, and no other.

    Args:
        address: ``hf://OWNER/NAME``.
        path: The bundle; the signature file next to it, if any, goes with it.
        model: Name of the bundle in the repository, without its suffix. "" means the file's.

    Raises:
        UsageError: the address has a revision or a file, a name is not permitted, or the token is missing.
        BundleError: the bundle is damaged.
        UpdateError: the hub refuses it, which commits nothing, or can't be reached: if the connection is lost
            during the commit, the text names the page that shows whether it was made.
        MissingDependency: the package huggingface_hub is not installed.
    """
    if address.revision or address.file:
        raise UsageError(
            f"{address}: a bundle is published to the main branch; write hf://{address.repository}"
        )
    name = (model or path.name.removesuffix(BUNDLE)) + BUNDLE
    try:
        plain_path(name, "the bundle's name")
    except ValueError as problem:
        raise UsageError(f"{path} cannot be published: {problem}; give --model NAME") from None
    hub = hub_library(address, "publishing to")
    if hub.get_token() is None:
        raise UsageError(f"publishing to {address} needs a token: set HF_TOKEN, or {LOG_IN}")
    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        readme = model_card(hub, bundle, f"hf://{address.repository}", name, sha256_of(path))
    contents: dict[str, Path | bytes] = {name: path, README: readme.encode("utf-8")}
    if (signature := signature_path(path)).exists():
        contents[signature_path(name).name] = signature
    is_new, keeps_readme, url = False, False, f"{hub.constants.ENDPOINT}/{address.repository}"
    advice = f"check the network, and by {url} whether the commit was made"
    with step("publishing") as update, explained(hub, address, UpdateError, STATUSES, lambda: advice):
        update(address)
        try:
            commit, files = list_repository(hub, address)
        except hub.errors.RepositoryNotFoundError:
            hub.HfApi().create_repo(address.repository, private=True, exist_ok=True)
            commit, files, is_new = "", {}, True
        if README in files and not _is_own(hub, address.at(commit), files):
            keeps_readme = True
            del contents[README]
        update(f"{address}: {', '.join(contents)}")
        pinned = address.at(_commit(hub, address, contents, f"{name} by EdgeKit", commit or None))
        _check(hub, pinned, contents)
    return Publication(pinned, url, tuple(contents), is_new, keeps_readme)


def _is_own(hub: Any, pinned: HubAddress, files: Mapping[str, Listed]) -> bool:
    if files[README].size_bytes > README_BYTES:
        return False
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        download_file(hub, pinned, README, files[README], Path(folder))
        text = (Path(folder) / README).read_text("utf-8", errors="replace")
    return any(line.startswith(MARK) for line in text.splitlines())


def _commit(
    hub: Any, address: HubAddress, contents: Mapping[str, Path | bytes], message: str, parent: str | None
) -> str:
    """Upload files and commit them. Return the commit; that of the parent if nothing has changed."""
    hub.utils.disable_progress_bars()
    operations = [
        hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
        for name, content in contents.items()
    ]
    done = hub.HfApi().create_commit(
        address.repository, operations, commit_message=message, parent_commit=parent
    )
    if not COMMIT.fullmatch(oid := str(done.oid)):
        raise ValueError("a commit's sha")
    return oid


def _check(hub: Any, pinned: HubAddress, contents: Mapping[str, Path | bytes]) -> None:
    files = list_repository(hub, pinned).files
    for name, content in contents.items():
        sent_bytes = len(content) if isinstance(content, bytes) else content.stat().st_size
        if name not in files or files[name].size_bytes != sent_bytes:
            raise UpdateError(
                f"{pinned}: the commit does not have {name} as it was sent; look at the repository's "
                ".gitignore"
            )


MARK = "<!-- written by edgekit release publish --hub"
"""Beginning of a comment by which a later publication recognizes a README that it may replace."""
PIPELINES = {
    "classify": {
        "image": "image-classification", "audio": "audio-classification", "text": "text-classification",
    },
    "depth": {"image": "depth-estimation"},
    "detect": {"image": "object-detection"},
    "embed": {"image": "image-feature-extraction", "text": "feature-extraction"},
    "generate": {"": "text-generation"},
    "image-to-image": {"image": "image-to-image"},
    "landmarks": {"image": "keypoint-detection"},
    "matting": {"image": "image-segmentation"},
    "obb": {"image": "object-detection"},
    "pose": {"image": "keypoint-detection"},
    "rank": {"text": "text-ranking"},
    "read-text": {"image": "image-to-text"},
    "segment": {"image": "image-segmentation"},
    "segment-instances": {"image": "image-segmentation"},
    "text2text": {"text": "text2text-generation"},
    "transcribe": {"audio": "automatic-speech-recognition"},
    "voice-activity": {"audio": "voice-activity-detection"},
}  # fmt: skip
"""Task of a card -> kind of its input -> the hub's name of the task. "" means of any input."""
LICENSES = {
    **{name: name.lower() for name in (
        "Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "CC0-1.0", "CC-BY-4.0",
        "CC-BY-SA-4.0", "CC-BY-NC-4.0",
    )},
    "GPL-2.0-only": "gpl-2.0",
    **{f"{name}-{form}": name.lower() for name in ("GPL-3.0", "LGPL-3.0", "AGPL-3.0")
       for form in ("only", "or-later")},
}  # fmt: skip
"""SPDX id of a license -> the hub's name."""


def model_card(hub: Any, bundle: Bundle, address: str, file: str, sha256: str) -> str:
    with checked_evidence(bundle.name):
        manifest, about = bundle.manifest, _about(bundle)
        source = manifest["source"]
        title = str((manifest["card"] or {}).get("title") or source["file"])
        accepted = kept_of(bundle.variants)
        rejected = [v for v in bundle.variants if v.rejected]
        notes = [escaped(note) for note in model_notes(manifest)]
        notes += [
            f"{escaped(', '.join(names))}: {escaped(note)}" for note, names in shared_notes(accepted).items()
        ]
        notes += [f"{escaped(v.name)} was {kind}: {escaped(reason)}" for v in rejected
                  for kind, reason in [why_rejected(v)]]  # fmt: skip
        tensors = [("input", spec) for spec in bundle.inputs] + [("output", spec) for spec in bundle.outputs]
        rows = [(side, spec.name, spec.dtype, "x".join(map(str, spec.shape))) for side, spec in tensors]
        parts = [
            f"---\n{_metadata(hub, bundle).to_yaml()}\n---",
            f"{MARK}; a README without this line is kept -->",
            f"# {escaped(title)}",
            *([escaped(str(about["description"]))] if about.get("description") else []),
            " ".join(escaped(line) for line in advice(manifest, bundle.variants)[:-1]),
            "## Variants",
            markdown_table(*columns_and_rows(accepted)),
            f"{_sentence(basis(manifest, accepted))} The last column says which variants could not be run.",
            *(["\n".join(f"- {note}" for note in notes)] if notes else []),
            "## Use",
            f"Install EdgeKit ({index_line('hub')}) and the engine of a variant, then:",
            "\n".join(f"    {line}" for line in _commands(bundle, address, file)),
            "## Inputs and outputs",
            markdown_table(("", "name", "type", "shape"), rows),
            "## Origin",
            "\n".join(
                f"- {line}"
                for line in (
                    f"Model: {escaped(str(source.get('repository') or source['file']))}, "
                    f"SHA-256 {escaped(str(source['sha256']))}",
                    f"License: {escaped(str(about['license'])) if about.get('license') else 'not stated'}",
                    f"Bundle: {escaped(file)}, SHA-256 {sha256}, built by edgekit "
                    f"{escaped(str(manifest['edgekit']))}",
                )
            ),
        ]
        return "\n\n".join(parts) + "\n"


def _about(bundle: Bundle) -> dict[str, Any]:
    card = bundle.manifest["card"] or {}
    return card["about"] if isinstance(card.get("about"), dict) else {}


def _metadata(hub: Any, bundle: Bundle) -> Any:
    card, about = bundle.manifest["card"] or {}, _about(bundle)
    kinds = [str(entry.get("kind")) for entry in (card.get("inputs") or {}).values()]
    by_kind = PIPELINES.get(str((card.get("task") or {}).get("kind")), {})
    repository = str(bundle.manifest["source"].get("repository") or "")
    return hub.ModelCardData(
        library_name="edgekit",
        license=LICENSES.get(str(about.get("license")), "other") if about.get("license") else None,
        pipeline_tag=next((by_kind[kind] for kind in (*kinds, "") if kind in by_kind), None),
        tags=["edgekit", *sorted({v.target for v in kept_of(bundle.variants)})],
        base_model=repository.removeprefix("hf://").partition("@")[0] or None,
    )


def _commands(bundle: Bundle, address: str, file: str) -> list[str]:
    if is_generation(bundle.card):
        run = f"edgekit generate {address} -p Hello"
    elif bundle.card is not None and predicts_in_parts(parse_card(bundle.card)):
        run = f"edgekit run {address} -i FILE"
    else:
        run = f"edgekit run {address} " + " ".join(f"-i {quote(s.name)}=FILE" for s in bundle.inputs)
    return [f"edgekit inspect {address}", run, f"hf download {address.removeprefix('hf://')} {quote(file)}"]


def _sentence(text: str) -> str:
    return escaped(f"{text[0].upper()}{text[1:]}.")
