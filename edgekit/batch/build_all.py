"""Build of a whole matrix: keeps finished builds, retries lost ones, and continues after failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import NamedTuple

from edgekit.batch.build_job import (
    CatalogueRow,
    ContentKeys,
    Job,
    VariantRow,
    empty_row,
    failed_row,
    need_bundle,
    parse_record,
    record_name,
    run_job,
    tool_versions,
)
from edgekit.batch.matrix import Matrix, MatrixBuild, read_matrix
from edgekit.batch.stored_files import Folder, is_url
from edgekit.batch.workers import LOCAL, BuildWorkers, open_workers
from edgekit.bundle.variant import Status, parse_status
from edgekit.errors import BundleError, EdgeKitError, UsageError, reason_of
from edgekit.system.formats import strict_json
from edgekit.system.formats.plain_text import milliseconds, size, table
from edgekit.tensor_spec import Json

RETRIES = 2
"""Maximum number of retries of a build whose worker was lost."""
TABLE = "catalogue.json"
"""File of the catalogue's folder with a row for each build of the last run."""
RECORD_LIMIT_BYTES = 4 << 20


class Catalogue(NamedTuple):
    """Result of building a matrix."""

    output: str
    rows: list[CatalogueRow]

    @property
    def whole(self) -> bool:
        """Return whether every build has its bundle."""
        return all(row["bundle"] is not None for row in self.rows)

    def as_json(self) -> dict[str, Json]:
        return {"output": self.output, "builds": [dict(row) for row in self.rows]}


def build_all(
    matrix: str | Path,
    *,
    on: str = LOCAL,
    workers: int | None = None,
    memory_mb: float | None = None,
    retries: int = RETRIES,
    progress: Callable[[CatalogueRow, int, int], None] = lambda row, done, count: None,
) -> Catalogue:
    """Build all of a matrix (docs/build-all.md), and write the bundles, their records and the table.

    A build whose content key has a record and a bundle is kept. An interrupted run can be continued.

    Args:
        matrix: File in TOML.
        on: ``local``, ``dask://HOST[:PORT]`` or ``ray://[HOST:PORT]``.
        workers: Local processes. None means one for every two cores.
        memory_mb: Limit of each model's process in megabytes. None means a limit by the model's size.
        retries: Maximum number of retries of a build whose worker was lost.
        progress: Called with each row, how many are done and how many there are.

    Returns:
        The catalogue; a build that failed has a row with its error.

    Raises:
        UsageError: the matrix or an option is wrong.
        ProfileError: an unknown target. CardError: a malformed card.
        MissingDependency: the package of a URL's protocol or of a cluster is not installed.
        EngineError: the cluster does not answer.
        OSError: a file can't be read, or the output can't be written.
    """
    if retries < 0 or (workers is not None and workers < 1) or (memory_mb is not None and memory_mb <= 0):
        raise UsageError("retries must be 0 or more, workers 1 or more, and the memory limit above 0")
    parsed = read_matrix(Path(matrix))
    output = Folder(parsed.output if is_url(parsed.output) else str(Path(parsed.output).absolute()))
    jobs = _jobs(parsed, output, memory_mb)
    rows: dict[str, CatalogueRow] = {}

    def finish(row: CatalogueRow, names: Sequence[MatrixBuild]) -> None:
        for build in names:
            rows[build.name] = _named(row, build, output)
            progress(rows[build.name], len(rows), len(parsed.builds))

    waiting: list[Job] = []
    for job, names in jobs.values():
        existing = _existing_row(job, output)
        if existing is not None:
            finish(existing, names)
        else:
            waiting.append(job)
    try:
        if waiting:
            with open_workers(on, workers) as opened:
                for row in _run(waiting, opened, retries):
                    finish(_checked(row, output), jobs[row["key"]][1])
        elif on != LOCAL:
            with open_workers(on, workers):  # a wrong address is said though nothing is left to do
                pass
    finally:
        catalogue = Catalogue(parsed.output, [rows[b.name] for b in parsed.builds if b.name in rows])
        if catalogue.rows:
            output.write(TABLE, strict_json.encode(catalogue.as_json()))
    return catalogue


def _jobs(
    matrix: Matrix, output: Folder, memory_mb: float | None
) -> dict[str, tuple[Job, list[MatrixBuild]]]:
    """Return jobs by key, each with the builds of the matrix that it covers. The same content under two names
    is built once."""
    keys, tools = ContentKeys(), tool_versions()
    jobs: dict[str, tuple[Job, list[MatrixBuild]]] = {}
    for build in matrix.builds:
        key = keys.key(_absolute(build))
        job = Job(_absolute(build), key, output.root, tools, memory_mb)
        jobs.setdefault(key, (job, []))[1].append(build)
    return jobs


def _absolute(build: MatrixBuild) -> MatrixBuild:
    """Return a build with absolute paths, which a worker in another folder can open."""
    from dataclasses import replace

    def path(source: str | None) -> str | None:
        return source if source is None or is_url(source) else str(Path(source).absolute())

    model = replace(build.model, source=path(build.model.source) or "", card=path(build.model.card))
    return replace(build, model=model, source=path(build.source))


def _existing_row(job: Job, output: Folder) -> CatalogueRow | None:
    row = parse_record(output.read(record_name(job.key), RECORD_LIMIT_BYTES), job.key)
    if row is None or row["bundle"] is None:
        return None
    return {**row, "state": "kept"} if output.holds(row["bundle"], row["size_bytes"], row["sha256"]) else None


def _named(row: CatalogueRow, build: MatrixBuild, output: Folder) -> CatalogueRow:
    named: CatalogueRow = {**row, **_axes(build)}  # type: ignore[typeddict-item]
    if row["bundle"] is not None:
        bundle_name = f"{build.name}.edgekit"
        if bundle_name != row["bundle"]:
            output.copy(row["bundle"], bundle_name)
        named["bundle"] = bundle_name
    return named


def _axes(build: MatrixBuild) -> dict[str, object]:
    axes = empty_row(build, "")
    return {key: axes[key] for key in ("name", "model", "targets", "precision", "samples")}


def _checked(row: CatalogueRow, output: Folder) -> CatalogueRow:
    if row["bundle"] is None:
        return row
    try:
        need_bundle(row, output)
    except BundleError as problem:
        error = {"kind": "BundleError", "message": str(problem)}
        return {**row, "state": "failed", "bundle": None, "error": error}
    return row


def _run(jobs: Sequence[Job], workers: BuildWorkers, retries: int) -> Iterator[CatalogueRow]:
    """Yield the rows of jobs as they end. A job whose worker is lost goes to the end of the queue."""
    queue = deque(jobs)
    tries = dict.fromkeys((job.key for job in jobs), 0)
    running: dict[Future[CatalogueRow], Job] = {}
    while queue or running:
        while queue and (workers.at_once is None or len(running) < workers.at_once):
            job = queue.popleft()
            tries[job.key] += 1
            running[workers.submit(run_job, job)] = job
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job = running.pop(future)
            row = _row_of(future, job, workers)
            if row["state"] == "lost" and tries[job.key] <= retries:
                queue.append(job)
            elif row["state"] == "lost":
                error = row["error"] or {}
                text = f"{error.get('message', '')}; tried {tries[job.key]} times"
                yield failed_row(job, error.get("kind", ""), text)
            else:
                yield row


def _row_of(future: Future[CatalogueRow], job: Job, workers: BuildWorkers) -> CatalogueRow:
    try:
        return future.result()
    except workers.lost as problem:
        return failed_row(job, "EngineError", f"its worker was lost: {reason_of(_plain(problem))}", "lost")
    except EdgeKitError as problem:
        return failed_row(job, type(problem).__name__, str(problem))
    except Exception as problem:  # the cluster's own: what it could not send, or a scheduler that ended
        return failed_row(job, type(problem).__name__, reason_of(problem))


def _plain(problem: BaseException) -> Exception:
    return problem if isinstance(problem, Exception) else RuntimeError(str(problem))


COLUMNS = ("bundle", "state", "variants", "size", "fastest", "p50", "build")


def catalogue_text(catalogue: Catalogue) -> str:
    lines = table(COLUMNS, [cells(row) for row in catalogue.rows])
    failures = [line for row in catalogue.rows for line in _failure(row)]
    return "\n".join([*lines, *(["", *failures] if failures else []), "", f"  {summary(catalogue)}"])


def summary(catalogue: Catalogue) -> str:
    """Summarize the number of builds by state in a sentence."""
    states = [row["state"] for row in catalogue.rows]
    counted = [f"{states.count(state)} {state}" for state in ("built", "kept", "failed") if state in states]
    return f"{len(states)} builds in {catalogue.output}: {', '.join(counted)}"


def catalogue_page(catalogue: Catalogue, name: str) -> str:
    """Return the page of a catalogue: one HTML document that loads nothing."""
    from edgekit.report.page import need_packages, rendered

    need_packages()
    variants = [
        (row["name"], variant["name"], variant["status"], size(variant["size_bytes"]), _latency(variant))
        for row in catalogue.rows
        for variant in row["variants"]
    ]
    failures = [(row["name"], row["error"]["message"]) for row in catalogue.rows if row["error"]]
    return rendered(
        "catalogue.html",
        {},
        name=name,
        said=summary(catalogue),
        columns=COLUMNS,
        rows=[cells(row) for row in catalogue.rows],
        variant_columns=("bundle", "variant", "status", "size", "p50"),
        variants=variants,
        failures=failures,
    )


def cells(row: CatalogueRow) -> tuple[str, ...]:
    """Return a build as a row of the table."""
    accepted = _accepted(row["variants"])
    timed = [variant for variant in accepted if variant["p50_ms"] is not None]
    best = min(timed, key=lambda variant: variant["p50_ms"] or 0.0, default=None)
    done = row["bundle"] is not None
    return (
        row["name"],
        row["state"],
        f"{len(accepted)} of {len(row['variants'])}" if done else "-",
        size(row["size_bytes"]) if done else "-",
        best["name"] if best else "-",
        _latency(best) if best else "-",
        f"{row['seconds']:.1f} s" if done else "-",
    )


def _accepted(variants: Sequence[VariantRow]) -> list[VariantRow]:
    return [variant for variant in variants if parse_status(variant["status"])[0] is not Status.REJECTED]


def _latency(variant: VariantRow) -> str:
    return "-" if variant["p50_ms"] is None else milliseconds(variant["p50_ms"])


def _failure(row: CatalogueRow) -> list[str]:
    if row["error"] is None:
        return []
    first, *more = row["error"]["message"].splitlines() or [""]
    return [f"  failed    {row['name']}  {first}", *(f"            {line.strip()}" for line in more)]
