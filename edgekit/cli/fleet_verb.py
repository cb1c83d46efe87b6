"""The verb that reads what devices reported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option, path_argument
from edgekit.cli.release_group import release
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.release.fleet.devices import Fleet
    from edgekit.release.fleet.rollout import Verdict


@release.command()
@path_argument("reports", nargs=-1, required=True)
@click.option("--channel", help="Channel, e.g. stable.  [default: all]")
@click.option("--model", metavar="NAME", help="Name of the model.  [default: all]")
@click.option(
    "--new", "candidate", metavar="DIGEST", help="Digest of the new bundle.  [default: the newest one]"
)
@click.option(
    "--old", "baseline", metavar="DIGEST", help="Digest of the old bundle.  [default: the one before]"
)
@click.option(
    "--margin",
    type=float,
    default=0.01,
    show_default=True,
    help="Margin of failure rates and scores: .01 is one percentage point.",
)
@click.option(
    "--slower", type=float, default=0.1, show_default=True, help="Margin of the latency: .1 is 10 %."
)
@click.option(
    "--answers",
    type=int,
    default=200,
    show_default=True,
    help="Minimum number of responses for a device to count.",
)
@as_json_option
def fleet(
    reports: tuple[Path, ...],
    channel: str | None,
    model: str | None,
    candidate: str | None,
    baseline: str | None,
    margin: float,
    slower: float,
    answers: int,
    as_json: bool,
) -> None:
    """Evaluate a rollout from the devices' reports.

    REPORTS are .jsonl files of rows, or folders of them. The newest bundle is compared with the one before:
    promote, stop or wait. Exit code 1: stop; 2: the fleet is too small for any verdict.
    """
    from edgekit.release.fleet.devices import fleets
    from edgekit.release.fleet.rollout import judged, measures
    from edgekit.release.fleet.rows import Unused, read_rows
    from edgekit.release.fleet.table import lines_of

    if answers < 1:
        raise UsageError("--answers must be at least 1")
    compared = measures(margin, slower)
    unused = Unused()
    rows = (
        row
        for row in read_rows(reports, unused, time.time())
        if (channel is None or row.channel == channel) and (model is None or row.model == model)
    )
    groups = fleets(rows)
    if not groups:
        reason = f"; {unused.count} rows can't be used, the first: {unused.first}" if unused.count else ""
        raise UsageError(f"no device reports found{reason}")
    if len(groups) > 1 and (candidate or baseline):
        raise UsageError(f"several models report: {', '.join(groups)}; give --model")
    shown: list[tuple[Fleet, Verdict | None]] = []
    for group in groups.values():
        pair = _pair(group, candidate, baseline)
        shown.append((group, None if pair is None else judged(group, *pair, compared, answers)))
    answer = {
        "models": [
            {
                "model": group.model,
                "devices": len(group.devices),
                "lines": [line.as_json() for line in lines_of(group)],
                "rollout": None if verdict is None else verdict.as_json(),
            }
            for group, verdict in shown
        ],
        "unused_rows": unused.count,
    }
    texts = [_text(group, verdict) for group, verdict in shown]
    if unused.count:
        texts.append(f"  note  {unused.count} rows can't be used; the first: {unused.first}")
    terminal.answer(as_json, answer, "\n\n".join(texts))
    if any(verdict is not None and verdict.decision == "stop" for _, verdict in shown):
        raise click.exceptions.Exit(1)
    if any(verdict is not None and verdict.is_impossible for _, verdict in shown):
        raise click.exceptions.Exit(2)


def _pair(fleet: Fleet, candidate: str | None, baseline: str | None) -> tuple[str, str] | None:
    """Return the digests of the old and the new bundle, or None if only one bundle was ever reported."""
    bundles = fleet.bundles
    if candidate is None and baseline is None and len(bundles) < 2:
        return None
    new = candidate or next((digest for digest in reversed(bundles) if digest != baseline), "")
    earlier = bundles[: bundles.index(new)] if new in bundles else bundles
    old = baseline or (earlier[-1] if earlier else "")
    if not old or old == new:
        raise UsageError(
            f"bundle {new} is the oldest one reported; give --old. Reported: {', '.join(bundles)}"
        )
    return old, new


def _text(fleet: Fleet, verdict: Verdict | None) -> str:
    from edgekit.release.fleet.table import COLUMNS, lines_of
    from edgekit.system.formats.plain_text import table

    lines = [f"{fleet.model}, {len(fleet.devices)} devices"]
    lines += table(COLUMNS, [line.cells for line in lines_of(fleet)])
    if verdict is not None:
        columns = ("measure", "devices", "worse by", "at least", "at most", "")
        lines += ["", f"  {verdict.candidate} against {verdict.baseline}"]
        lines += table(columns, [finding.cells for finding in verdict.findings])
        lines += ["", f"  {verdict.sentence()}"]
    return "\n".join(lines)
