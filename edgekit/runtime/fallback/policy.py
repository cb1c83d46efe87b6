"""Which variant to run, and which one next: decisions only, nothing is opened, read or timed here.

    plan = rank(variants, estimates(...), asked)
    candidate = first(plan, failures)      # None: nothing is left
    hops(plan, failures, candidate)        # how the session came to it, each hop explained
    due(plan, trials, active, now_s)       # which better variant has cooled down and may be tried again

Order: the engine that was asked for, then verified before not run, then what was made for this kind of
processor where the times are another kind's, then measured fastest, then the order of the bundle. A rejected
variant is never a candidate. ``failures`` only grows while a request is answered: it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import EdgeKitError, MissingDependency, NoVariantError, ProfileError
from edgekit.system.cpu import processor_kind

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant
    from edgekit.tensors import Json
EQUAL_RATIO = 1.03
"""Times within this ratio of the fastest are equal, and the order of the bundle decides: timings wobble by
more than a percent, and a choice must not."""


FIRST_COOLDOWN_S, LONGEST_COOLDOWN_S = 30.0, 3600.0
"""A variant that failed while it ran is tried again after so long, twice as long each time it fails again, in
the end once an hour. What lasted for the longest cool-down begins anew."""


class Fallback(NamedTuple):
    """One hop: from a variant that does not run here to the next, why, and what it costs."""

    from_: str
    to: str
    reason: str
    cost: str


class Failure(NamedTuple):
    """Why a variant does not run here.

    Attributes:
        reason: In words.
        missing: Its engine is not there at all.
        stuck: It was given up while it ran, and may run still.
        blame: Whose doing it is, of :func:`blame_of`.
    """

    reason: str
    missing: bool = False
    stuck: bool = False
    blame: str = ""


class Cooldown(NamedTuple):
    """A variant that failed while it ran.

    Attributes:
        failures: How often, one after the other.
        until_s: When it may be tried again, on the clock of the caller.
        back_s: Since when it serves again; None where it does not.
    """

    failures: int
    until_s: float
    back_s: float | None = None


class Candidate(NamedTuple):
    """A variant that may run, and the time a run is expected to take here; None where nobody knows."""

    variant: Variant
    time_ms: float | None


class LoadOrder(NamedTuple):
    """Candidates, best first, and the reasons why other variants are none: name -> reason.

    ``asked_in_vain``: the first variant of the engine that was asked for, when none of its variants is one.
    """

    candidates: tuple[Candidate, ...]
    skipped: Mapping[str, str]
    asked_in_vain: Variant | None = None


def estimates(built: Mapping[str, float], here: Mapping[str, float]) -> dict[str, float]:
    """Expected time of a run on this machine, in ms, by variant name.

    What was measured here counts as it is. What was measured where the bundle was built is scaled by how much
    slower this machine is: the median ratio of the variants that were measured on both.

    >>> estimates({"a": 10.0, "b": 20.0}, {"a": 40.0})
    {'a': 40.0, 'b': 80.0}
    """
    ratios = sorted(here[name] / built[name] for name in here if name in built)
    # Of an even number the mean of the middle two. The module statistics costs 4 ms to import.
    scale = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2 if ratios else 1.0
    return {name: time_ms * scale for name, time_ms in built.items()} | dict(here)


def made_for(variants: Sequence[Variant], profiles: Mapping[str, Json], kind: str) -> frozenset[str]:
    """Names of the variants of profiles of this kind of processor, where times were measured on another kind.

    Which engine is fastest there tells little of here; that somebody built for a device like this one, more.

    Args:
        variants: All of the bundle.
        profiles: The bundle's, by name.
        kind: Of ``measured.processor_kind()``.
    """
    timings = [v.evidence.get("timing") for v in variants]
    machines = {t["machine"] for t in timings if isinstance(t, dict) and isinstance(t.get("machine"), str)}
    if machines <= {kind}:
        return frozenset()
    return frozenset(v.name for v in variants if _arch(profiles.get(v.profile)) == kind)


def _arch(profile: Json) -> str:
    """The kind of processor that a profile names, or "": a bundle from elsewhere may hold anything here."""
    for key in ("facts", "arch", "value"):
        profile = profile.get(key) if isinstance(profile, dict) else None
    return processor_kind(profile) if isinstance(profile, str) and profile else ""


def rank(
    variants: Sequence[Variant],
    times_ms: Mapping[str, float],
    asked: str | None = None,
    preferred: Collection[str] = (),
) -> LoadOrder:
    """Order the variants of a bundle.

    Args:
        variants: All of them, in the order of the bundle.
        times_ms: Expected times by variant name, of :func:`estimates`.
        asked: The target to try first, or None.
        preferred: Of :func:`made_for`; they go before others whatever the times are.
    """
    usable = [v for v in variants if v.usable]
    skipped = {v.name: v.status for v in variants if not v.usable}
    groups: dict[tuple[bool, bool, bool], list[Variant]] = {}
    for variant in usable:
        other = asked is not None and variant.target != asked
        key = (other, not variant.verified, variant.name not in preferred)
        groups.setdefault(key, []).append(variant)
    ordered = [v for key in sorted(groups) for v in _fastest_first(groups[key], times_ms)]
    candidates = tuple(Candidate(v, times_ms.get(v.name)) for v in ordered)
    in_vain = None
    if asked is not None and all(v.target != asked for v in usable):
        in_vain = next((v for v in variants if v.target == asked), None)
    return LoadOrder(candidates, skipped, in_vain)


def first(plan: LoadOrder, failures: Mapping[str, Failure]) -> Candidate | None:
    """The best candidate that has not failed; None when all have."""
    return next((c for c in plan.candidates if c.variant.name not in failures), None)


def after_failure(known: Cooldown | None, now_s: float) -> Cooldown:
    """What is remembered of a variant that failed now.

    >>> first = after_failure(None, 100.0)
    >>> first, after_failure(first, 130.0).until_s - 130.0
    (Cooldown(failures=1, until_s=130.0, back_s=None), 60.0)
    """
    lasted = known is not None and known.back_s is not None and now_s - known.back_s >= LONGEST_COOLDOWN_S
    failures = 1 if known is None or lasted else known.failures + 1
    # 2**20 s are more than the longest, and no number of failures overflows.
    wait_s = min(LONGEST_COOLDOWN_S, FIRST_COOLDOWN_S * 2.0 ** min(failures - 1, 20))
    return Cooldown(failures, now_s + wait_s)


def due(
    plan: LoadOrder, trials: Mapping[str, Cooldown], active: str | None, now_s: float
) -> Candidate | None:
    """The best variant that is better than the active one and whose cool-down is over; None: there is none.

    Args:
        plan: The order.
        trials: What failed while it ran, by variant name.
        active: The variant that serves; None: none does.
        now_s: On the clock of the trials.
    """
    cooled = (c for c, trial in _cooling(plan, trials, active) if trial.until_s <= now_s)
    return next(cooled, None)


def is_cooling(plan: LoadOrder, trials: Mapping[str, Cooldown], active: str | None) -> bool:
    """Whether :func:`due` may ever have an answer as things stand."""
    return any(True for _ in _cooling(plan, trials, active))


def _cooling(
    plan: LoadOrder, trials: Mapping[str, Cooldown], active: str | None
) -> Iterator[tuple[Candidate, Cooldown]]:
    """What failed while it ran and is better than the active one, best first."""
    for candidate in plan.candidates:
        name = candidate.variant.name
        if name == active:
            return
        if name in trials and trials[name].back_s is None:
            yield candidate, trials[name]


def second_chance(
    failures: Mapping[str, Failure], trials: Mapping[str, Cooldown], tried: set[str]
) -> list[str]:
    """When nothing is left: what failed at an earlier request, while it ran, and was not tried at this one.

    It may fail on other inputs only. What hangs is left out: each try of it costs a thread and its memory.
    """
    return [
        name
        for name, failure in failures.items()
        if name in trials and name not in tried and not failure.stuck
    ]


def put_first(plan: LoadOrder, name: str) -> tuple[Candidate, LoadOrder]:
    """The candidate of that name, and the plan in which it is the best."""
    (candidate,) = (c for c in plan.candidates if c.variant.name == name)
    others = tuple(c for c in plan.candidates if c is not candidate)
    return candidate, plan._replace(candidates=(candidate, *others))


def hops(plan: LoadOrder, failures: Mapping[str, Failure], active: Candidate) -> tuple[Fallback, ...]:
    """How a session came from the best candidate to the active one.

    An engine that is missing is one hop, however many variants it has.
    """
    passed: list[tuple[Variant, float | None, str]] = []
    if plan.asked_in_vain is not None:
        passed.append((plan.asked_in_vain, None, plan.skipped[plan.asked_in_vain.name]))
    missing = set()
    for candidate in plan.candidates:
        variant = candidate.variant
        if variant.name == active.variant.name:
            break
        failure = failures[variant.name]
        if failure.missing and variant.target in missing:
            continue
        if failure.missing:
            missing.add(variant.target)
        passed.append((variant, candidate.time_ms, failure.reason))
    if not passed:
        return ()
    ends = [*((v, t) for v, t, _ in passed[1:]), (active.variant, active.time_ms)]
    return tuple(
        Fallback(variant.name, to.name, reason, _cost(variant, time_ms, to, to_ms))
        for (variant, time_ms, reason), (to, to_ms) in zip(passed, ends, strict=True)
    )


def taken_over(plan: LoadOrder, from_: str, to: Candidate, reason: str) -> Fallback:
    """The hop to a better variant than the one that served."""
    before = next((c for c in plan.candidates if c.variant.name == from_), to)
    return Fallback(
        from_, to.variant.name, reason, _cost(before.variant, before.time_ms, to.variant, to.time_ms)
    )


def nothing_works(bundle: str, plan: LoadOrder, failures: Mapping[str, Failure]) -> NoVariantError:
    """The error when no candidate is left: every variant with its reason."""
    reasons = {name: failure.reason for name, failure in failures.items()} | dict(plan.skipped)
    width = max(map(len, reasons), default=0)
    lines = [f"  {name:{width}}  {reason}" for name, reason in reasons.items()] or ["  it has none"]
    advice = "  install an engine that is named, or build the bundle for one that `edgekit doctor` finds"
    error = NoVariantError("\n".join([f"no variant of {bundle} works here", *lines, advice]))
    if failures and all(failure.missing for failure in failures.values()):
        error.exit_code = MissingDependency.exit_code
    blames = {"machine" if failure.missing else failure.blame for failure in failures.values()} or {"bundle"}
    error.blame = blames.pop() if len(blames) == 1 else "both" if "machine" in blames else ""
    return error


def blame_of(problem: BaseException) -> str:
    """Whose doing a failure is, as ``EdgeKitError.blame`` has it; "" where nobody knows.

    >>> blame_of(OSError(28, "No space left on device")), blame_of(RuntimeError("kernel died"))
    ('machine', '')
    """
    if isinstance(problem, (OSError, MemoryError, ImportError, ProfileError)):
        return "machine"
    if isinstance(problem, EdgeKitError) and problem.blame:
        return problem.blame
    return blame_of(problem.__cause__) if problem.__cause__ is not None else ""


def _fastest_first(variants: Sequence[Variant], times_ms: Mapping[str, float]) -> list[Variant]:
    """Fastest first; among equals the order of the bundle; last those that nobody timed, in that order."""
    left = [v for v in variants if v.name in times_ms]
    ordered = []
    while left:
        limit_ms = min(times_ms[v.name] for v in left) * EQUAL_RATIO
        ordered.append(next(v for v in left if times_ms[v.name] <= limit_ms))
        left.remove(ordered[-1])
    return ordered + [v for v in variants if v.name not in times_ms]


def _cost(variant: Variant, time_ms: float | None, to: Variant, to_ms: float | None) -> str:
    costs = []
    if time_ms is not None and to_ms is not None:
        change = 100 * (to_ms / time_ms - 1)
        costs.append(f"{to_ms:.3g} ms instead of {time_ms:.3g} ms ({change:+.0f} %)")
    if variant.precision != to.precision:
        costs.append(f"{to.precision} instead of {variant.precision}")
    if variant.verified and not to.verified:
        costs.append("not verified")
    return ", ".join(costs) or "not measured"
