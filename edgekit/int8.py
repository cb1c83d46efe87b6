"""int8 for the targets of a build: calibrate once, search for each target, prove on what chose nothing.

ground    split the samples; observe the float graph; the float model's answers on choose and prove
try_int8  for a target: search (quantize/search.py), then run what won on prove, and keep it or say why not
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit import target, verify
from edgekit.errors import EdgeKitError, MissingDependency, UsageError
from edgekit.ground import Ground
from edgekit.measured import files_digest
from edgekit.precision import INT8, Asked
from edgekit.quantize import trial_record
from edgekit.quantize.candidate import Candidates, Made, emulated, parsed, recorded
from edgekit.quantize.rules import Rules
from edgekit.quantize.search import Choice, Tried, front, search, why_lost
from edgekit.runtime.fallback import reason_of
from edgekit.runtime.session import default_threads
from edgekit.target import Array, Artifact, Json
from edgekit.trials import Trial, runs_here

if TYPE_CHECKING:
    from edgekit.profile import Profile

DEVICE_MARGIN_DB = 6.0
"""How much lower the SNR of the golden vector may be on a device: another kernel that rounds otherwise adds
noise of its own, as strong as that of the first (3 dB), and one vector tells little (3 dB more)."""
NAMED = 3
"""So many blocks are named in a reason."""

Say = Callable[[str], None]


def find_all_rules(
    asked: Asked, profiles: Sequence[Profile], has_samples: bool
) -> tuple[dict[str, Rules], str]:
    """The rules of each profile that int8 is looked for, and why it is not for the others.

    Raises:
        UsageError: int8 is asked for by name, and can't be made.
    """
    if asked.precision not in INT8:
        return {}, ""
    by_name = asked.precision == "int8"
    if not has_samples:
        why = "int8 is calibrated on samples: give --samples, 64 to 128 inputs like those the model will see"
        if by_name:
            raise UsageError(f"{why}; or use fp32, fp16 or auto")
        return {}, why
    rules: dict[str, Rules] = {}
    for profile in profiles:
        compiler = target.compiler(profile.target)
        if hasattr(compiler, "quantization_rules"):
            rules[profile.name] = compiler.quantization_rules(profile)
    without = ", ".join(profile.name for profile in profiles if profile.name not in rules)
    why = f"{without} has no rules for quantizing" if without else ""
    if without and by_name:
        raise UsageError(f"{why}; use fp32, fp16 or auto")
    return rules, why


def add_int8(
    trials: Sequence[Trial], ground: Ground, rules: Mapping[str, Rules], asked: Asked, say: Say
) -> list[Trial]:
    """The trials with the int8 of each profile behind those that it has so far.

    Args:
        trials: Of all profiles, each profile's parent first.
        ground: Of the build.
        rules: By profile name.
        asked: What is good enough, and how long to search for it.
        say: Told what was found.
    """
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.profile.name, []).append(trial)
    left = asked.seconds
    for place, (name, own) in enumerate((n, own) for n, own in found.items() if n in rules):
        started = time.monotonic()
        made = try_int8(ground, own[0].profile, rules[name], own[0], asked, left / (len(rules) - place), say)
        left = max(left - (time.monotonic() - started), 0.0)
        # Where nobody can time, a runtime takes the first that is there: what was asked for by name.
        untimed = made[0].status.startswith(("not run", verify.BY_REFERENCE))
        by_name = asked.precision == "int8" and untimed
        found[name] = [*made, *own] if by_name else [*own, *made]
    together = [trial for own in found.values() for trial in own]
    kept = sum(t.precision.startswith("int8") and not t.rejected for t in together)
    say(f"{kept} int8 variants kept")
    return together


def without_fallbacks(trials: Sequence[Trial]) -> list[Trial]:
    """What is left where the float parents of int8 variants are not wanted."""
    has_int8 = {t.profile.name for t in trials if t.precision.startswith("int8") and not t.rejected}
    return [t for t in trials if t.profile.name not in has_int8 or t.precision.startswith("int8")]


def try_int8(
    ground: Ground, profile: Profile, rules: Rules, parent: Trial, asked: Asked, seconds: float, say: Say
) -> list[Trial]:
    """Search for a target, and prove what won.

    Args:
        ground: Of the build.
        profile: Of the target.
        rules: Of the target.
        parent: The float variant: what int8 must be faster than.
        asked: What is good enough.
        seconds: Time for the search.
        say: Told what is being tried.

    Returns:
        The variants, fastest first. Where none is good enough: one that is rejected, or shipped by force.
    """
    try:
        version = target.available(profile.target).engine_version()
    except MissingDependency as missing:
        return [_by_rule(ground, profile, rules, parent, asked, missing)]
    timed = parent.artifact if parent.timed and runs_here(profile) else None
    with Candidates(ground.bench, profile, rules, timed) as candidates:
        tried, damage = _searched(ground, profile, rules, candidates, asked, seconds, version, say)
        missed = {t.choice: _missed(asked, t, ground) for t in tried}
        good = [t for t in tried if not missed[t.choice]]
        winners = front(good)
        if asked.precision == "int8":
            winners = sorted(winners, key=lambda t: t.rank)[-1:]
        shipped = winners or [_best(tried)]
        trials: list[Trial] = []
        for each in shipped:
            trial = _proved(ground, profile, trials, parent, asked, candidates, each, version)
            if not winners:
                trial.reject(why_lost(each, (), missed[each.choice]))
            trials.append(trial)
    facts = [_fact(t, "" if t in winners else why_lost(t, winners, missed[t.choice])) for t in tried]
    trials[0].evidence["search"] = {"tried": facts, "damage": damage}
    for trial, each in zip(trials, shipped, strict=True):
        if "quantization" in trial.evidence:
            trial.evidence["quantization"]["because"] = _because(each.choice, trial, damage)
    return trials


def _searched(
    ground: Ground,
    profile: Profile,
    rules: Rules,
    candidates: Candidates,
    asked: Asked,
    seconds: float,
    version: str,
    say: Say,
) -> tuple[list[Tried], dict[str, float]]:
    """What was tried, and the damage of each block in dB; from the record of the same search, if any."""
    key = trial_record.key(
        "search",
        ground.bench.digest,
        repr(rules),
        profile.as_json(),
        version,
        default_threads(),
        # Not the share of the time that is left: it differs from build to build.
        [asked.precision, asked.goal.as_json(), asked.seconds, candidates.timed],
    )
    known = _recalled(trial_record.recall(key))
    if known is not None:
        return known
    clock = _Clock(seconds)
    damage: dict[str, float] = {}

    def measure(choice: Choice) -> Tried:
        with clock.spending(choice):
            tried = candidates.measure(choice)
        say(f"{profile.name}  {choice}  {why_lost(tried, (), '')}")
        return tried

    def islands(choice: Choice) -> Sequence[frozenset[str]]:
        if not clock.left():
            return ()
        found, snr_db = candidates.islands(choice, clock.left)
        damage.update(snr_db)
        return found

    def enough(tried: Tried) -> bool:
        return first and tried.faster and not _missed(asked, tried, ground)

    # Where times here tell nothing, there is no front: the likeliest placement, with little float.
    first = asked.precision == "int8" or not candidates.timed
    placements = rules.placements if candidates.timed else rules.placements[:1]
    tried = search(placements, measure, islands, enough, clock.in_time)
    trial_record.record(
        key, {"tried": [{**t.choice.as_json(), **recorded(t)} for t in tried], "damage": damage}
    )
    return tried, damage


class _Clock:
    """Tells whether another candidate can be done within the time for a search.

    Time is the clock's, for it is the user who waits: on a machine that does something else besides, fewer
    candidates are tried. One is not begun where another that was rounded like it took more than what is left.

    Args:
        seconds: For the search.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._longest: dict[str, float] = {}

    def left(self) -> bool:
        return time.monotonic() < self._end

    def in_time(self, choice: Choice) -> bool:
        return time.monotonic() + self._longest.get(choice.recipe.rounding, 0.0) < self._end

    @contextmanager
    def spending(self, choice: Choice) -> Iterator[None]:
        """Around the making of a candidate."""
        started = time.monotonic()
        yield
        took, rounding = time.monotonic() - started, choice.recipe.rounding
        self._longest[rounding] = max(took, self._longest.get(rounding, 0.0))


def _recalled(known: Json) -> tuple[list[Tried], dict[str, float]] | None:
    try:
        tried = [parsed(Choice.parse(row), row) for row in known["tried"]]
        damage = {str(name): float(value) for name, value in known["damage"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    whole = [each for each in tried if each is not None]
    return (whole, damage) if whole and len(whole) == len(tried) else None


def _fact(tried: Tried, lost: str) -> dict[str, Json]:
    """A candidate as the manifest has it."""
    found = tried.found
    return {
        "choice": str(tried.choice),
        **tried.choice.as_json(),
        "agreement": None if found is None else found.agreement.as_json(),
        "snr_db": None if found is None or not math.isfinite(found.snr_db) else found.snr_db,
        "task": None if found is None or found.task is None else found.task.as_json(),
        "ratio": tried.ratio,
        "lost": lost,
    }


def _missed(asked: Asked, tried: Tried, ground: Ground) -> str:
    """Why a candidate is not good enough on the samples for choosing, beyond chance."""
    if tried.found is None:
        return tried.refused
    return asked.goal.missed(tried.found, ground.labelled[0], len(ground.bench.choose))


def _best(tried: Sequence[Tried]) -> Tried:
    """Of candidates that are all refused, the one worth a record: fast ones first, then the most accurate."""
    return max(tried, key=lambda t: (t.found is not None, t.faster, t.rank))


def _name(made: Made, before: Sequence[Trial]) -> str:
    """``int8``, or ``int8-mixed`` where blocks stay float; numbered from the second on."""
    name = "int8-mixed" if made.floats else "int8"
    same = sum(re.fullmatch(rf"{name}(-\d+)?", trial.precision) is not None for trial in before)
    return f"{name}-{same + 1}" if same else name


def _proved(
    ground: Ground,
    profile: Profile,
    before: Sequence[Trial],
    parent: Trial,
    asked: Asked,
    candidates: Candidates,
    tried: Tried,
    version: str,
) -> Trial:
    """Run a candidate on the samples that no choice was made on."""
    try:
        made = candidates.make(tried.choice)
    except EdgeKitError as problem:
        status, none = f"rejected: {reason_of(problem)}", {"size_bytes": 0}
        return Trial(f"{profile.name}-int8", profile, "int8", Artifact({}), "", status, none, parent)
    precision = _name(made, before)
    name = f"{profile.name}-{precision}"
    evidence = _evidence(ground, made, profile)
    trial = Trial(
        name,
        profile,
        precision,
        made.artifact,
        files_digest(made.artifact.files),
        f"verified on {version}",
        evidence,
        parent,
        asked.force,
    )
    evidence["engine"] = version
    try:
        with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
            files = verify.write_files(made.artifact, Path(folder))
            bench = ground.bench
            runner = target.available(profile.target).open_runner(
                files, bench.inputs, bench.outputs, made.artifact.options, threads=1
            )
            with closing(runner):
                evidence["executed"] = {"device": runner.device, "precision": runner.precision}
                absent = target.stands_in_for(runner)
                if absent:
                    evidence["executed"]["stands_in_for"] = absent
                trial.status = verify.verified_words(version, absent)
                answers = [runner.run(sample) for sample in ground.prove]
                evidence["runner"] = runner.facts()
        verify.refuse_wrong_answers(answers, bench.outputs)
    except EdgeKitError as problem:
        trial.status = f"rejected: {version} can't run it: {reason_of(problem)}"
        return trial
    _judge(ground, trial, answers, asked)
    return trial


def _by_rule(
    ground: Ground, profile: Profile, rules: Rules, parent: Trial, asked: Asked, missing: MissingDependency
) -> Trial:
    """The scheme that the target's rules put first, where its engine is not here to measure with."""
    with Candidates(ground.bench, profile, rules, None) as candidates:
        made = candidates.make(Choice(rules.placements[0]))
    precision = _name(made, ())
    status = f"not run: {missing}; the scheme is chosen by rule"
    evidence = _evidence(ground, made, profile)
    name = f"{profile.name}-{precision}"
    digest = files_digest(made.artifact.files)
    trial = Trial(name, profile, precision, made.artifact, digest, status, evidence, parent, asked.force)
    _judge(ground, trial, emulated(made, ground.prove), asked)
    evidence["quantization"]["because"] = [
        "accuracy is that of the Q/DQ graph by the reference, not of the engine"
    ]
    return trial


def _judge(ground: Ground, trial: Trial, answers: Sequence[Mapping[str, Array]], asked: Asked) -> None:
    """Score answers on prove, write them into the evidence, and reject what is not good enough."""
    found = ground.judge.judge(answers)
    expected = ground.judge.expected
    accuracy = {}
    for spec in ground.bench.outputs:
        first = verify.compare([expected[0][spec.name]], [answers[0][spec.name]], 0).snr_db
        # What a device is held to, on the golden vector: the first of these samples.
        limit_db = (
            verify.SNR_LIMITS_DB["int8"] if first is None else round(max(first - DEVICE_MARGIN_DB, 0.0), 1)
        )
        error = verify.compare([e[spec.name] for e in expected], [a[spec.name] for a in answers], limit_db)
        accuracy[spec.name] = error.as_json()
    trial.evidence["accuracy"] = accuracy
    trial.evidence["agreement"] = {**found.agreement.as_json(), "samples": len(answers)}
    parent = ground.labelled[1]
    if found.task is not None and parent is not None:
        trial.evidence["task"] = {**found.task.as_json(), "float": round(parent.value, 4)}
    missed = asked.goal.missed(found, parent)
    if missed:
        trial.reject(missed)


def _evidence(ground: Ground, made: Made, profile: Profile) -> dict[str, Json]:
    floats = made.floats
    return {
        "size_bytes": sum(map(len, made.artifact.files.values())),
        "compile": dict(made.artifact.facts),
        "quantization": {
            "scheme": f"int8 weights, {made.rules.activations} activations",
            "placement": made.choice.placement,
            "recipe": asdict(made.choice.recipe),
            "integer_nodes": len(made.plan.nodes),
            "float": {"count": len(floats), "names": floats},
            "samples": dict(ground.counts),
        },
    }


def _because(choice: Choice, trial: Trial, damage: Mapping[str, float]) -> list[str]:
    """Why blocks stayed float, in words."""
    names = trial.evidence["quantization"]["float"]["names"]
    other = [] if runs_here(trial.profile) else ["its processor is of another kind: times here chose nothing"]
    if not names:
        return other
    hurt = sorted((name for name in names if name in damage), key=lambda name: damage[name])[:NAMED]
    figures = ", ".join(f"{name} alone leaves {damage[name]:.1f} dB" for name in hurt)
    text = f"{len(names)} blocks stay float ({choice.placement})" + (f": {figures}" if figures else "")
    return [text, *other]
