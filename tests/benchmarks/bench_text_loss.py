"""Perplexity of a bundle's variants by kind of text: measured, and expected by the divergence.

    python -m tests.benchmarks.bench_text_loss FILE.gguf CHAT.edgekit [VARIANT ...] [--text docs/security.md]

The kinds are those that a build judges, and the files of ``--text``, of ``--tokens`` tokens each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from edgekit.bundle.bundle import Bundle
from edgekit.generate.device import decoder_registry
from edgekit.generate.host.judge.evaluation import figures_by_kind, losses, reference_of, written_by
from edgekit.generate.host.judge.texts import judged_texts, tokens_of
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.runtime.loading import unpacked_files

CONTEXT = 512


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("variants", nargs="*", help="all that were kept by default")
    parser.add_argument("--text", type=Path, action="append", default=[], help="repeatable")
    parser.add_argument("--tokens", type=int, default=512)
    given = parser.parse_args(arguments)
    model, bundle = open_language_model(given.model), Bundle.open(given.bundle)
    texts = judged_texts(model)
    for path in given.text:
        texts[path.name] = tokens_of(model, path.read_text("utf-8"), special_tokens=False)
    cut = {kind: tokens[: given.tokens] for kind, tokens in texts.items()}
    reference = reference_of(model, ReferenceDecoder(model), CONTEXT, cut)
    print(f"float reference: {reference.shown()}", flush=True)
    for variant in bundle.variants:
        if variant.rejected or (given.variants and variant.name not in given.variants):
            continue
        files = unpacked_files.unpack(bundle, variant)
        runner = decoder_registry.open_decoder(variant.target, files, variant.options, 1, CONTEXT)
        figures = figures_by_kind(reference, written_by(runner, reference, model.stop_ids))
        runner.close()
        for kind, row in figures.items():
            least, expected = losses(row)
            margin = row["margin"] or 0.0
            print(
                f"{variant.name:16} {kind:14} {100 * (least + margin):+6.2f} % +- {100 * margin:.2f}, "
                f"expected {100 * expected:+.2f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
