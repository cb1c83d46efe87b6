"""The bundles of a device with updates: the committed one, the one before it, a candidate, and the factory's.

    store = Store("/var/lib/app/models", factory="/usr/share/app/detector.edgekit")
    store.install("new.edgekit")          # staged: loaded at the next start
    with store.open() as session:         # each start is recorded on disk before anything is loaded
        metrics = Metrics(session)
        ...
        store.observe(metrics)            # commits it after its health window, or gives it up

A start takes the staged bundle as a candidate and runs its golden vectors. A candidate whose third start ends
before it was committed is rolled back to the committed one, then to the one before, and finally to the
factory's, which is never given up. A bundle that fails to open is given up only if it is at fault itself
(``EdgeKitError.blame``); if an engine is missing, the disk is full or memory is short, the next bundle is
used for that start, and the start is not counted. ``store/state.py`` decides, ``store/files.py`` has the
disk.

With ``trusted_keys`` a bundle is installed only with a signature by one of them, and its file is hashed and
checked again at each start, before anything of it is parsed. The factory's is trusted by its place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import BundleError, EdgeKitError, UsageError, blame_of, reason_of
from edgekit.runtime.metrics.labelled_counts import Counts
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.session import Session
from edgekit.runtime.store import health
from edgekit.runtime.store.files import Slots, StoreFiles, checked_digest, version_of
from edgekit.runtime.store.health import HealthWindow as HealthWindow
from edgekit.runtime.store.health import Progress
from edgekit.runtime.store.state import (
    FACTORY,
    confirmed,
    counted,
    failure_action,
    given_up,
    installed,
    refusal,
    started,
    to_start,
    uncounted,
)
from edgekit.runtime.store.state import StoreState as StoreState
from edgekit.signing.trusted_keys import TrustedKeys

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Store:
    """The bundles of one app on one device. Several processes may use it; changes are serialized by a lock.

    Args:
        root: The store's own folder; it need not exist. It must belong to this user or root, with no other
            user allowed to write to it; otherwise it is not used, and the factory's bundle runs.
        factory: The bundle shipped with the device, outside of ``root``, ideally on a read-only disk. None:
            for tools that start nothing.
        trusted_keys: PEM files of public keys. Given, only bundles that one of them has signed are run. Needs
            the extra ``trust``.
        name: Name of one of several models, each with its own states; they share the slots. None means the
            only one.
        window: Time and predictions that a candidate needs before :meth:`observe` commits it. None means five
            minutes and 100 answers.
        clock: Monotonic, in seconds.

    Raises:
        UsageError: a key can't be read, or the name is not of 1 to 64 small letters, digits, "-" and "_".
        MissingDependency: keys are given, and the package ``cryptography`` is not installed.

    Attributes:
        opened: The digest of the bundle that ``open`` or ``begin`` of this object returned last, "" for the
            factory's; None before that.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        factory: str | os.PathLike[str] | None,
        trusted_keys: Sequence[str | os.PathLike[str]] | None = None,
        *,
        name: str | None = None,
        window: HealthWindow | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if name is not None and not (0 < len(name) <= 64 and NAME_CHARACTERS.issuperset(name)):
            raise UsageError(
                f"{name!r} cannot name a model in a store: use 1 to 64 lower-case letters, digits, - and _"
            )
        self.root, self._factory = Path(root), None if factory is None else Path(factory)
        self.name, self.window, self._clock = name, window or HealthWindow(), clock
        keys = None if trusted_keys is None else TrustedKeys(trusted_keys)
        self.opened: str | None = None
        self._watched = health.WatchedBundle(clock())
        self._files = StoreFiles(
            self.root, name
        )  # and no reference back: a cycle would hold its locks until gc
        self._slots = Slots(self._files.slot, keys)

    # --- for apps ----------------------------------------------------------------------------------------

    def install(
        self,
        bundle: str | os.PathLike[str],
        signature: str | os.PathLike[str] | None = None,
        *,
        version: int | None = None,
    ) -> str:
        """Stage a bundle: copied into its slot, every entry hashed, flushed to disk. What runs stays as it
        is; the next start takes it.

        Args:
            signature: Its signature file, if the store has ``trusted_keys``. None means the bundle's name
                with ``.sig`` added.
            version: A whole number that rises with each release. None means the one in the bundle
                (``extensions.version`` of its manifest), if it has one. Below the highest that was ever
                committed only the bundles that are still kept are installed.

        Returns:
            Its digest.

        Raises:
            SignatureError: no trusted key has signed it; nothing of it was parsed.
            BundleError: it is damaged, too old, or cannot be written; nothing has changed.
            UsageError: ``version`` is not a whole number, or not the one in the bundle.
        """
        signed = self._slots.signature_of(bundle, signature)
        with Bundle.open(bundle) as opened:
            digest = opened.digest
            version = version_of(opened, version)
            try:
                with self._files.locked() as state:
                    if reason := refusal(state, digest, version):
                        raise BundleError(
                            f"{opened.name} cannot be installed\n  {reason}\n"
                            "  nothing has changed; install a newer bundle"
                        )
                    self._slots.keep(opened)
                    if signed is not None:
                        self._slots.keep_signature(digest, signed, state.named)
                    self._files.write(state, installed(state, digest, version))
            except OSError as problem:
                raise BundleError(
                    f"{opened.name} cannot be installed\n  {self._files.cannot(problem)}\n"
                    "  nothing has changed; free some space, or use another folder"
                ) from None
        return digest

    def open(self, **options: Any) -> Session:
        """Open a session on the current bundle, or on the next one that opens. A candidate runs its golden
        vectors first.

        Raises:
            BundleError: no bundle opens, not even the factory's.
            EdgeKitError: as Session.
        """
        from edgekit.runtime.session import Session

        self.opened = None
        skipped: list[str] = []
        while True:
            digest, path = self._begin(skipped)
            is_candidate = digest not in (*self.state.good, FACTORY)
            try:
                session = Session(path, **{"probe": is_candidate, **options})
                if is_candidate:
                    _check(session)
            except UsageError:  # the app's own mistake
                self._uncount(digest)
                raise
            except (EdgeKitError, OSError, MemoryError) as problem:
                if digest == FACTORY:
                    raise
                self._skip(digest, blame_of(problem), reason_of(problem), skipped)
            else:
                self._has_opened(digest)
                return session

    def begin(self) -> Path:
        """Record a start on disk, and return the bundle to load: for apps that don't use ``open``."""
        self.opened = None
        digest, path = self._begin([])
        self._has_opened(digest)
        return path

    def observe(self, metrics: Metrics) -> Progress:
        """Watch the bundle that this object opened; to be called after an answer, or every few seconds.

        A candidate is committed once it has run for ``window.seconds`` without a failed answer and has given
        ``window.answers`` answers in that time. It is given up if its share of failed and fallback answers is
        worse than the committed bundle's (:mod:`edgekit.runtime.store.health`); then open the store again. It
        is held back, with a note, as long as it finds nothing and the bundle before found something.

        Args:
            metrics: Metrics of the session that runs it. Counts before the first call are ignored.

        Returns:
            ``candidate``, ``committed`` (also for the factory's bundle) or ``rolled back``.

        Raises:
            UsageError: this object opened nothing.
        """
        digest = self._resolve(None, "observe()")
        state = self.state
        if digest in dict(state.given_up):
            return "rolled back"
        counts = self._watched.since_start(metrics.counts)
        stored = {
            bundle_digest: Counts(answers, failed=bad, found=found)
            for bundle_digest, answers, bad, found in state.answers
        }
        if digest in (*state.good, FACTORY):
            if health.worth_storing(counts.answers, stored.get(digest, Counts()).answers):
                self._files.change(
                    lambda state: counted(state, digest, counts.answers, counts.bad, counts.found)
                )
            return "committed"
        before = stored.get(state.good[0] if state.good else FACTORY, Counts())
        verdict, reason = self._watched.judge(counts, before, self.window, self._clock())
        if verdict == "rolled back":
            self.give_up(reason)
        elif reason:
            self._files.note(f"bundle {digest[:12]} is held back: {reason}")
        elif verdict == "committed":
            self.confirm()
            return "committed" if digest in self.state.good else "rolled back"
        return verdict

    def confirm(self, digest: str | None = None) -> None:
        """Commit a bundle: it works, by the app's own checks. :meth:`observe` does this by itself.

        Args:
            digest: Digest of the bundle. None means the one this object opened, even if another was installed
                since. A bundle that was given up meanwhile, or whose file is gone, is not confirmed, and
                ``notes`` says so.

        Raises:
            UsageError: this object opened nothing, and no digest is given.
        """
        target = self._resolve(digest, "confirm()")

        def change(state: StoreState) -> StoreState:
            reason = dict(state.given_up).get(target, "")
            if not reason and target != FACTORY:
                blame, fault = self._slots.fault_of(target)
                reason = fault if blame == "bundle" else ""
            if reason:
                self._files.note(f"bundle {target[:12]} is not confirmed: {reason}")
            return state if reason else confirmed(state, target)

        self._files.change(change)

    def give_up(self, reason: str, digest: str | None = None) -> None:
        """Give up a bundle that does not work, e.g. by the app's own checks; the next start uses another.

        Args:
            digest: Digest of the bundle. None means the one this object opened, even if another is installed
                now.

        Raises:
            UsageError: this object opened nothing, and no digest is given.
        """
        target = self._resolve(digest, "give_up()")
        self._files.change(lambda state: given_up(state, reason, target))

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems of the store itself, e.g. a full disk, and bundles that were skipped, with the reason."""
        return self._files.notes

    @property
    def is_saved(self) -> bool:
        """Return whether every change of this object is on the disk; ``notes`` explain why one is not."""
        return self._files.is_saved

    @property
    def state(self) -> StoreState:
        """Return the stored state; that of a new store if no valid one exists."""
        return self._files.state

    @property
    def factory(self) -> Path:
        """Return the factory's bundle.

        Raises: UsageError: this store was opened without one.
        """
        if self._factory is None:
            raise UsageError(
                f"no bundle of {self.root} can be started, and the factory bundle is unknown\n"
                "  pass its path: Store(root, factory=...)"
            )
        return self._factory

    @property
    def path(self) -> Path:
        """Return the current bundle."""
        return self._path(self.state.current)

    def slot(self, digest: str) -> Path:
        """Return the file of an installed bundle."""
        return self._files.slot(digest)

    # --- starting ----------------------------------------------------------------------------------------

    def _begin(self, skipped: list[str]) -> tuple[str, Path]:
        """Record a start; returns the digest and path of the bundle to load."""
        while True:
            digest = to_start(self._files.change(lambda state: started(state, skipped)), skipped)
            if digest == FACTORY:
                self._files.release()
                return digest, self.factory
            self._files.hold(digest)
            blame, reason = self._slots.fault_of(digest)
            if not reason:
                return digest, self._path(digest)
            self._skip(digest, blame, reason, skipped)

    def _skip(self, digest: str, blame: str, reason: str, skipped: list[str]) -> None:
        """Give up a bundle that did not open, or skip it at this start."""
        action = failure_action(blame, digest in self.state.good)
        if action == "give up":  # unless another process did so already and removed its file
            self._files.change(
                lambda state: given_up(state, reason, digest) if digest in state.named else state
            )
        if action == "skip":
            self._uncount(digest)
        if action != "give up":
            self._files.note(f"bundle {digest[:12]} is skipped at this start: {reason}")
        skipped.append(digest)

    def _uncount(self, digest: str) -> None:
        self._files.change(lambda state: uncounted(state, digest))

    def _has_opened(self, digest: str) -> None:
        self.opened, self._watched = digest, health.WatchedBundle(self._clock())

    def _resolve(self, digest: str | None, description: str) -> str:
        if digest is None:
            if self.opened is None:
                raise UsageError(
                    f"{description} applies to the bundle that this store opened, and it has opened none\n"
                    "  call open() or begin() of the same object first, or give the bundle's digest, e.g. "
                    "store.state.current"
                )
            return self.opened
        try:
            return checked_digest(digest)
        except (TypeError, ValueError) as problem:
            raise UsageError(
                f"{description}: {problem} of a bundle; store.state lists the known ones"
            ) from None

    def _path(self, digest: str) -> Path:
        return self.factory if digest == FACTORY else self._files.slot(digest)


def _check(session: Session) -> None:
    from edgekit.runtime.store.candidate_check import check_candidate  # here: committed bundles need it not

    try:
        check_candidate(session)
    except BaseException:
        session.close()
        raise
