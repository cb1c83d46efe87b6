"""The page: a template filled in with facts and drawn charts.

Everything that comes from a file is escaped by the template, or by the package that draws the charts. A
Content-Security-Policy allows the page's own script alone, by its sha256, and no connection at all: markup
that came from a file in spite of it would not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundle import device_evidence
from edgekit.bundle.report import checked_evidence
from edgekit.bundle.source_names import read_source_names
from edgekit.errors import MissingDependency, UsageError
from edgekit.report import charts
from edgekit.report.cells import FILTERS
from edgekit.report.facts import facts_of
from edgekit.report.layers import layers_of
from edgekit.report.parts import Evidence, parts_of
from edgekit.system.atomic_files import write_atomically

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.compiler.accuracy.evaluation import Evaluation
    from edgekit.compiler.explain.accelerated import AcceleratedExplanation
    from edgekit.compiler.explain.explain import Explanation
    from edgekit.report.answers import ShownSamples


def need_page(path: Path) -> None:
    """Say what is wrong before any work is done.

    Raises:
        UsageError: the name does not end as that of a page, and may be that of another file.
        MissingDependency: a package of the extra ``report`` is not installed.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path} must be an HTML page; end its name in .html")
    need_packages()


def need_packages() -> None:
    """Raise MissingDependency if a package of the extra ``report`` is not installed."""
    from importlib.util import find_spec

    for package, module in (("jinja2", "jinja2"), ("vl-convert-python", "vl_convert")):
        if find_spec(module) is None:
            raise MissingDependency(package, "writing a report", extra="report")


def write_report(
    bundle: Bundle,
    path: Path,
    *,
    samples: str | Path | None = None,
    labelled: str | Path | None = None,
    explain: bool = False,
    accelerator: str | None = None,
) -> None:
    """Write the page of a bundle.

    Args:
        path: File to write; it ends in ``.html``.
        samples: Folder or glob of images, recordings, texts (one a line) or, without a task, arrays, on which
            the predictions of the variants are shown.
        labelled: Folder of labelled samples, on which their accuracy is measured.
        explain: Also measure latency and accuracy by node on this machine.
        accelerator: Interface whose copies are explained too.

    Raises:
        UsageError: the file cannot be written, or an argument does not fit the bundle.
        MissingDependency: the extra ``report`` is not installed.
        BundleError: its evidence is not what a build writes.
    """
    need_page(path)
    bundle.verify_entries()
    answers = accuracy = None
    if samples is not None:
        from edgekit.report.answers import answers_of

        answers = answers_of(bundle, str(samples))
    if labelled is not None:
        from edgekit.compiler.accuracy.evaluate import evaluate

        accuracy = evaluate(bundle, labelled)
    explained, accelerated = [], []
    if explain:
        from edgekit.compiler.explain.explain import explain as explained_by_node

        explained = explained_by_node(bundle)
    if accelerator is not None:
        from edgekit.compiler.explain.accelerated import explain_accelerated

        accelerated = explain_accelerated(bundle, accelerator)
    page = page_of(bundle, explained=explained, accelerated=accelerated, answers=answers, accuracy=accuracy)
    write_page(path, page)


def page_of(
    bundle: Bundle,
    *,
    explained: Sequence[Explanation] = (),
    accelerated: Sequence[AcceleratedExplanation] = (),
    answers: ShownSamples | None = None,
    accuracy: Evaluation | None = None,
) -> str:
    """Return the page of a bundle: one HTML document that loads no other resource.

    Args:
        explained: Measurements of its variants by ``edgekit.compiler.explain.explain.explain``; empty:
            nothing.
        accelerated: Its copies on an accelerator, by ``explain_accelerated``. Empty means none.
        answers: Samples with the variants' answers, or None.
        accuracy: Accuracy of the variants on labelled samples, or None.

    Raises:
        BundleError: its evidence is not what a build writes.
        MissingDependency: the extra ``report`` is not installed.
    """
    need_packages()
    facts = facts_of(bundle)
    with checked_evidence(bundle.name):
        parts = list(parts_of(Evidence(bundle, answers)))
    specs = {name: part.spec for name, _, part in parts}
    specs["variants"] = charts.variants_chart(facts)
    for number, search in enumerate(facts.searches):
        specs[f"candidates-{number}"] = charts.candidates_chart(search)
        specs[f"damage-{number}"] = charts.damage_chart(search)
    with checked_evidence(bundle.name):
        causes = [cause for losses in facts.losses for cause in losses.causes]
        nodes = read_source_names(bundle).nodes
        layers = layers_of(nodes, bundle.variants, explained, accelerated, causes)
    return rendered(
        "page.html",
        specs,
        facts=facts,
        parts=parts,
        layers=layers,
        device_columns=device_evidence.COLUMNS,
        explained=explained,
        accelerated=accelerated,
        answers=answers,
        accuracy=accuracy,
    )


def rendered(template: str, specs: Mapping[str, charts.Spec | None], **values: Any) -> str:
    """Render one HTML document that loads no other resource, from a template that extends ``frame.html``.

    Args:
        specs: Name of a chart -> its Vega-Lite specification. None means that it is left out.
        **values: For the template, which escapes them.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    drawn = {
        name: [Markup(svg) for svg in charts.drawings(spec)]
        for name, spec in specs.items()
        if spec is not None
    }
    script = _file("page.js")
    page: str = environment.get_template(template).render(
        charts=drawn, script=script, policy=_policy(script), style=_file("page.css"), **values
    )
    return page


def write_page(path: Path, page: str) -> None:
    """Write a page, whole or not at all.

    Raises:
        UsageError: it can't be written; ``path`` is untouched.
    """
    try:
        write_atomically(path, [page.encode("utf-8")])
    except OSError as problem:
        raise UsageError(f"can't write {path}: {problem.strerror}; choose another path") from None


def _file(name: str) -> str:
    return resources.files("edgekit.report").joinpath(name).read_text("utf-8")


def _policy(script: str) -> str:
    """Return the page's content security policy: this script, and styles and images inside the page."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "form-action 'none'"
    )
