"""Choice of the variant to run, and of the next one. Pure decisions: nothing is opened, read or timed here.

    order = rank(variants, estimates(...), requested)
    candidate = best_candidate(order, failures)       # None: every variant failed
    explain_fallbacks(order, failures, candidate)     # why each better variant was skipped
    due_for_retry(order, cooldowns, active, now_s)    # a better variant whose cooldown is over

Sort keys: the requested variant, variants that compute the source model and no smaller one, the requested
engine, verified variants, a deferral before the others and its small variant after them, variants built for
this kind of processor (if the times are from another kind), estimated time, and size if none is known
(edgekit/bundle/variant.py). A rejected variant is never a candidate.
``failures`` only grows during a request, so the loop over the candidates ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from edgekit.bundle.speed_order import fastest_first
from edgekit.bundle.variant import Variant
from edgekit.errors import MissingDependency, NoVariantError
from edgekit.system.cpu import processor_kind
from edgekit.tensor_spec import Json

FIRST_COOLDOWN_S, LONGEST_COOLDOWN_S = 30.0, 3600.0
"""Exponential backoff: a variant that failed while running is retried after the first cooldown, which doubles
with each further failure up to the longest. A variant that then ran for the longest cooldown starts over."""


class Fallback(NamedTuple):
    """One fallback: from a variant that does not run here to the next, with the reason and the cost."""

    from_: str
    to: str
    reason: str
    cost: str


class Failure(NamedTuple):
    """Why a variant does not run here.

    Attributes:
        blame: The cause, as :func:`edgekit.errors.blame_of` gives it.
        rejected: It failed on this input twice, and computed a known one.
    """

    reason: str
    missing: bool = False
    still_running: bool = False
    blame: str = ""
    non_finite: bool = False
    rejected: bool = False


PENDING = Failure("is being verified in the background")
"""Of an accelerated copy until it is ready (accelerated.py)."""


class Cooldown(NamedTuple):
    """Backoff state of a variant that failed while running.

    Attributes:
        until_s: When it may be retried, on the caller's clock.
        recovered_s: Since when it has been usable again; None while it is not.
    """

    failures: int
    until_s: float
    recovered_s: float | None = None


class RankedVariant(NamedTuple):
    """A variant that may run, and its expected time of a run here; None if unknown."""

    variant: Variant
    time_ms: float | None


class LoadOrder(NamedTuple):
    """Candidates, best first, and why other variants are skipped: name -> reason.

    ``unusable_request``: the requested variant, if it is not usable; or the first one of the requested
        engine, if none of that engine's variants is.
    """

    candidates: tuple[RankedVariant, ...]
    skipped: Mapping[str, str]
    unusable_request: Variant | None = None


def estimates(built: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Estimate the time of a run on this machine, in ms, by variant name.

    Times measured here are used as they are. Times measured where the bundle was built are scaled by the
    median ratio of the variants that were measured on both machines.

    >>> estimates({"a": 10.0, "b": 20.0}, {"a": 40.0})
    {'a': 40.0, 'b': 80.0}
    """
    ratios = sorted(measured[name] / built[name] for name in measured if name in built)
    # Median; importing the module statistics costs 4 ms.
    scale = (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2 if ratios else 1.0
    return {name: time_ms * scale for name, time_ms in built.items()} | dict(measured)


def built_for_processor(
    variants: Sequence[Variant], profiles: Mapping[str, Json], kind: str
) -> frozenset[str]:
    """Return the names of the variants whose profile is for this kind of processor, if times were measured on
    another kind.

    Relative times on another kind of processor say little about this one; the profile says more.

    Args:
        kind: Result of ``cpu.processor_kind()``.
    """
    timings = [v.evidence.get("timing") for v in variants]
    machines = {t["machine"] for t in timings if isinstance(t, dict) and isinstance(t.get("machine"), str)}
    if machines <= {kind}:
        return frozenset()
    return frozenset(v.name for v in variants if _arch(profiles.get(v.profile)) == kind)


def built_for_instructions(variants: Sequence[Variant], profiles: Mapping[str, Json]) -> frozenset[str]:
    """Return the variants that need instructions which their profile's processor has, and that were not timed
    because the build machine lacked them. The caller knows that this processor has them."""
    return frozenset(
        v.name
        for v in variants
        if isinstance(needed := v.options.get("needs_isa"), list)
        and "timing" not in v.evidence
        and isinstance(stated := _fact(profiles.get(v.profile), "isa"), list)
        and any(name in stated for name in needed)
    )


def _arch(profile: Json) -> str:
    arch = _fact(profile, "arch")
    return processor_kind(arch) if isinstance(arch, str) and arch else ""


def _fact(profile: Json, name: str) -> Json:
    for key in ("facts", name, "value"):
        profile = profile.get(key) if isinstance(profile, dict) else None
    return profile


def rank(
    variants: Sequence[Variant],
    times_ms: Mapping[str, float],
    requested: str | None = None,
    preferred: Collection[str] = (),
    named: str | None = None,
    unsuited: Mapping[str, str] = MappingProxyType({}),
) -> LoadOrder:
    """Order the variants of a bundle.

    Args:
        requested: The engine to try first, or None.
        preferred: Result of :func:`built_for_processor`; ranked before the others whatever the times are.
        named: The variant to try before all others, or None.
        unsuited: Variants that this processor does not compute as declared -> why; they are skipped.
    """
    usable = [v for v in variants if v.usable and v.name not in unsuited]
    skipped = {v.name: v.status for v in variants if not v.usable}
    skipped |= {v.name: unsuited[v.name] for v in variants if v.usable and v.name in unsuited}
    small = {_small_of(v) for v in usable} - {None}
    groups: dict[tuple[bool, bool, bool, bool, bool, bool, bool], list[Variant]] = {}
    for variant in usable:
        other = requested is not None and variant.target != requested
        first = (variant.name != named, variant.shrunk is not None, other, not variant.verified)
        deferral = (_small_of(variant) is None, variant.name in small)
        key = (*first, *deferral, variant.name not in preferred)
        groups.setdefault(key, []).append(variant)
    ordered = [v for key in sorted(groups) for v in fastest_first(groups[key], times_ms)]
    candidates = tuple(RankedVariant(v, times_ms.get(v.name)) for v in ordered)
    unusable = None
    if requested is not None and all(v.target != requested for v in usable):
        unusable = next((v for v in variants if v.target == requested), None)
    if named in skipped:
        unusable = next(v for v in variants if v.name == named)
    return LoadOrder(candidates, skipped, unusable)


def _small_of(variant: Variant) -> str | None:
    """Name of a deferral's small variant (edgekit/target/deferral.py); None of any other variant. Who built
    one wants the large one's answers, sooner; the small one alone is the last resort."""
    if variant.target != "deferral":
        return None
    small = variant.options.get("small")
    return str(small.get("variant")) if isinstance(small, dict) else ""


def best_candidate(order: LoadOrder, failures: Mapping[str, Failure]) -> RankedVariant | None:
    """Return the best candidate that has not failed; None if all have."""
    return next((c for c in order.candidates if c.variant.name not in failures), None)


def after_failure(cooldown: Cooldown | None, now_s: float) -> Cooldown:
    """Return the cooldown of a variant that failed now.

    >>> once = after_failure(None, 100.0)
    >>> once, after_failure(once, 130.0).until_s - 130.0
    (Cooldown(failures=1, until_s=130.0, recovered_s=None), 60.0)
    """
    lasted = (
        cooldown is not None
        and cooldown.recovered_s is not None
        and now_s - cooldown.recovered_s >= LONGEST_COOLDOWN_S
    )
    failures = 1 if cooldown is None or lasted else cooldown.failures + 1
    # 2**20 s exceeds the longest cooldown, and the exponent cannot overflow.
    wait_s = min(LONGEST_COOLDOWN_S, FIRST_COOLDOWN_S * 2.0 ** min(failures - 1, 20))
    return Cooldown(failures, now_s + wait_s)


def due_for_retry(
    order: LoadOrder, cooldowns: Mapping[str, Cooldown], active: str | None, now_s: float
) -> RankedVariant | None:
    """Return the best variant that ranks before the active one and whose cooldown is over. None if there is
    none.
    """
    cooled = (c for c, cooldown in _cooling(order, cooldowns, active) if cooldown.until_s <= now_s)
    return next(cooled, None)


def is_cooling(order: LoadOrder, cooldowns: Mapping[str, Cooldown], active: str | None) -> bool:
    """Return whether :func:`due_for_retry` can return a variant later, with nothing else changed."""
    return any(True for _ in _cooling(order, cooldowns, active))


def _cooling(
    order: LoadOrder, cooldowns: Mapping[str, Cooldown], active: str | None
) -> Iterator[tuple[RankedVariant, Cooldown]]:
    """Yield the variants in cooldown that rank before the active one, best first."""
    for candidate in order.candidates:
        name = candidate.variant.name
        if name == active:
            return
        if name in cooldowns and cooldowns[name].recovered_s is None:
            yield candidate, cooldowns[name]


def retry_candidates(
    failures: Mapping[str, Failure],
    cooldowns: Mapping[str, Cooldown],
    tried: set[str],
    hanging: Collection[str] = (),
) -> list[str]:
    """Return the last resort: variants that failed running at an earlier request, not tried at this one.

    They may fail on other inputs only, or have timed out on a busy machine. Those whose run has not returned
    are excluded: each retry costs a thread and its memory.
    """
    return [
        name
        for name, failure in failures.items()
        if name in cooldowns and name not in tried and not (failure.still_running and name in hanging)
    ]


def next_standby(
    order: LoadOrder, failures: Mapping[str, Failure], active: str | None, hanging: Collection[str]
) -> RankedVariant | None:
    """Return the variant to keep loaded beside the active one: the best one that has not failed, else the
    best one that failed by timing out and whose run has returned."""
    others = [c for c in order.candidates if c.variant.name != active]
    timed_out = (
        c for c in others if failures[c.variant.name].still_running and c.variant.name not in hanging
    )
    return next((c for c in others if c.variant.name not in failures), None) or next(timed_out, None)


def without(order: LoadOrder, name: str, reason: str) -> LoadOrder:
    """Return the order with one more variant skipped."""
    candidates = tuple(c for c in order.candidates if c.variant.name != name)
    return order._replace(candidates=candidates, skipped={**order.skipped, name: reason})


def move_to_front(order: LoadOrder, name: str) -> tuple[RankedVariant, LoadOrder]:
    """Return the candidate of that name, and the order in which it is the best."""
    (candidate,) = (c for c in order.candidates if c.variant.name == name)
    others = tuple(c for c in order.candidates if c is not candidate)
    return candidate, order._replace(candidates=(candidate, *others))


def explain_fallbacks(
    order: LoadOrder, failures: Mapping[str, Failure], active: RankedVariant
) -> tuple[Fallback, ...]:
    """Return the fallbacks from the best candidate to the active one.

    A missing engine is one fallback, however many variants it has.
    """
    passed: list[tuple[Variant, float | None, str]] = []
    if order.unusable_request is not None:
        passed.append((order.unusable_request, None, order.skipped[order.unusable_request.name]))
    missing = set()
    for candidate in order.candidates:
        variant = candidate.variant
        if variant.name == active.variant.name:
            break
        if (failure := failures.get(variant.name)) is None:  # it is better, and the standby answered first
            continue
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


def promotion(order: LoadOrder, from_: str, target: RankedVariant, reason: str) -> Fallback:
    """Return the change to a better variant than the active one."""
    before = next((c for c in order.candidates if c.variant.name == from_), target)
    return Fallback(
        from_,
        target.variant.name,
        reason,
        _cost(before.variant, before.time_ms, target.variant, target.time_ms),
    )


def no_variant_error(bundle: str, order: LoadOrder, failures: Mapping[str, Failure]) -> NoVariantError:
    """Return the error if no candidate is left: every variant with its reason."""
    reasons = {name: failure.reason for name, failure in failures.items()} | dict(order.skipped)
    width = max(map(len, reasons), default=0)
    lines = [f"  {name:{width}}  {reason}" for name, reason in reasons.items()] or ["  it has no variants"]
    advice = "  install one of these engines, or build the bundle for one that `edgekit doctor` finds"
    if failures and not any(failure.missing for failure in failures.values()):
        advice = "  if `edgekit verify` fails on it too, the bundle or an engine is at fault, not the input"
    if order.skipped and all(cause.startswith("rejected") for cause in reasons.values()):
        advice = "  its build rejected all of them: build it again, e.g. with another target or precision"
    error = NoVariantError("\n".join([f"no variant of {bundle} works here", *lines, advice]))
    if failures and all(failure.missing for failure in failures.values()):
        error.exit_code = MissingDependency.exit_code
    blames = {"machine" if failure.missing else failure.blame for failure in failures.values()} or {"bundle"}
    error.blame = blames.pop() if len(blames) == 1 else "both" if "machine" in blames else ""
    return error


def _cost(variant: Variant, time_ms: float | None, target: Variant, to_ms: float | None) -> str:
    costs = []
    if time_ms is not None and to_ms is not None:
        change = 100 * (to_ms / time_ms - 1)
        costs.append(f"{to_ms:.3g} ms instead of {time_ms:.3g} ms ({change:+.0f} %)")
    if variant.precision != target.precision:
        costs.append(f"{target.precision} instead of {variant.precision}")
    if target.shrunk is not None and variant.shrunk is None:
        costs.append(f"a smaller model: {100 * target.smaller_by:.0f} % fewer multiplications")
    if not target.verified and variant.verified:
        costs.append("not verified")
    return ", ".join(costs) or "not measured"
