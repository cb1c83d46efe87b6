"""What a build says of a card: of wrong ones, with labels and without, and of right ones.

    python tests/benchmarks/bench_cards.py wrong [NETWORK...]    # 19 cards, each wrong in one line
    python tests/benchmarks/bench_cards.py right                 # those of samples/cards

Models and samples are those of the scoreboard. A right card is also tried with models whose first nodes map
another range of pixels to theirs: the card has another mean and std then, and is as right.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import wave
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import edgekit
from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.evaluate.card_rules import UNCHECKED, check_without_labels
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.errors import EdgeKitError
from edgekit.processing.card import Card, load_card, parse_card
from edgekit.processing.inputs.image import ImageInput
from tests.benchmarks.bert_tokenizer import write_tokenizer
from tests.benchmarks.packaged_models import SHARED, fetch, fetch_member, read_table
from tests.benchmarks.real_inputs import CARDS, spoken_words
from tests.benchmarks.scoreboard.networks import NETWORKS, Network
from tests.benchmarks.scoreboard.samples import PHOTOGRAPHS, SAMPLES
from tests.fixtures.texts import TOKENIZER

IMAGENET = {"mean": (123.675, 116.28, 103.53), "std": (58.395, 57.12, 57.375)}
RAW, UNIT, SIGNED = (
    {"mean": (mean,) * 3, "std": (std,) * 3} for mean, std in ((0.0, 1.0), (0.0, 255.0), (127.5, 127.5))
)
PLAIN = {"place": "top-left", "pad": 0, "rounding": "down", "crop": 1.0}
Change = Callable[[Card], Card]


def entry(**values: Any) -> Change:
    """Change lines of the card's first input."""

    def change(card: Card) -> Card:
        name = next(iter(card.inputs))
        return replace(card, inputs={**card.inputs, name: replace(card.inputs[name], **values)})  # type: ignore[type-var]

    return change


def features(**values: Any) -> Change:
    def change(card: Card) -> Card:
        sound: Any = next(iter(card.inputs.values()))
        return entry(features=replace(sound.features, **values))(card)

    return change


def tokenizer(change: Callable[[str], str]) -> Change:
    def changed(card: Card) -> Card:
        files = {name: change(content.decode()).encode() for name, content in card.files.items()}
        return replace(card, files=files)

    return changed


def task(**values: Any) -> Change:
    """Change lines of the card's task; another decoder has its own options."""

    def change(card: Card) -> Card:
        table: Any = card.as_json()
        kept = ("kind", "outputs", "labels") if "decode" in values else table["task"]
        table["task"] = {**{key: table["task"][key] for key in kept}, **values}
        return parse_card(table)

    return change


WRONG: Mapping[str, Mapping[str, Change]] = {
    "YOLOX-nano": {
        "RGB for BGR": entry(colour="RGB"),
        "0 to 1 for 0 to 255": entry(**UNIT),
        "ImageNet's mean and std": entry(**IMAGENET),
        "stretch for letterbox": entry(resize="stretch", **PLAIN),
        "picture in the middle": entry(place="center"),
        "strides in the other order": task(strides=[32, 16, 8]),
        "score 0.95": task(score=0.95),
        "yolov5 for yolox": task(decode="yolov5"),
    },
    "EfficientNet-Lite0": {
        "0 to 255": entry(**RAW),
        "BGR for RGB": entry(colour="BGR"),
        "stretch for the middle": entry(resize="stretch", **PLAIN),
    },
    "selfie-segmentation": {"0 to 255 for 0 to 1": entry(**RAW)},
    "BlazePose-full": {"-1 to 1 for 0 to 1": entry(**SIGNED)},
    "PP-OCRv4-reader": {"0 to 255 for -1 to 1": entry(**RAW)},
    "keywords": {
        "samples of 16 bits": entry(normalize="none", full_scale=32768.0),
        "8 kHz for 16": entry(rate=8000),
        "mel to 8 kHz": features(fmax=8000.0),
    },
    "MiniLM-L3": {
        "a tokenizer that keeps capitals": tokenizer(
            lambda text: re.sub('("lowercase": ?)true', r"\1false", text)
        ),
        "a tokenizer of 25 words": tokenizer(lambda _: TOKENIZER.read_text("utf-8")),
    },
}


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if sys.argv[1:2] == ["wrong"]:
            for name, changes in WRONG.items():
                if sys.argv[2:] and name not in sys.argv[2:]:
                    continue
                model, card, sets = prepared(NETWORKS[name], folder / name)
                for title, change in {"right": lambda card: card, **changes}.items():
                    print(f"{name}: {title}", flush=True)
                    for kind, samples in sets.items():
                        print(f"  {kind:15} {said(model, change(card), samples)}", flush=True)
        elif sys.argv[1:] == ["right"]:
            check_right(folder)
        else:
            sys.exit(__doc__)


def said(model: Path, card: Card, samples: Path) -> str:
    """Return what a build says of the card."""
    try:
        bundle = edgekit.build(model, targets=["ort"], card=card, precision="fp32", samples=samples)
    except EdgeKitError as problem:
        return "stops: " + " ".join(str(problem).split())
    found = bundle.manifest["samples"]
    labels = found.get("labels", {})
    score = f"{labels['metric']} {labels['value']:.3f}" if "metric" in labels else labels.get("unused", "")
    better = f"better: {labels['better']}" if labels.get("better") else ""
    findings = [text for text in found.get("card", ()) if text != UNCHECKED]
    return "; ".join(filter(None, [score, better, *findings])) or "nothing"


def prepared(network: Network, folder: Path) -> tuple[Path, Card, dict[str, Path]]:
    """Return the model's file, its card, and the folders or files of samples by kind."""
    (folder / "made").mkdir(parents=True)
    packages, models = read_table()
    model = next(entry for entry in models if entry.name == network.model)
    path = fetch(model, packages)
    if network.name == "MiniLM-L3":
        row = model.vocabulary
        vocabulary = fetch_member(packages[row["package"]], row["member"], row["sha256"])
        write_tokenizer(vocabulary, folder / "tokenizer.json")
        (folder / "card.toml").write_text(draft_card(str(path)).text, "utf-8")
        SAMPLES[network.samples](folder / "made")
        return path, load_card(folder / "card.toml"), {"without labels": folder / "made" / "sentences.txt"}
    card = load_card(CARDS / f"{network.card}.toml")
    if network.name == "keywords":
        return path, card, _spoken(folder)
    if network.samples == "imagenet":
        labelled = SHARED / "data" / "imagenet500"
    elif network.samples == "photographs":
        labelled = PHOTOGRAPHS / "val" / "images"
    else:
        SAMPLES[network.samples](folder / "made")
        return path, card, {"without labels": folder / "made"}
    for photograph in sorted(labelled.glob("*.jpg"))[:128]:
        shutil.copy(photograph, folder / "made")
    return path, card, {"with labels": labelled, "without labels": folder / "made"}


def _spoken(folder: Path) -> dict[str, Path]:
    espeak = shutil.which("espeak-ng")
    if espeak is None:
        sys.exit("the samples are spoken by espeak-ng, which is not installed (Debian: espeak-ng)")
    for name, _, sound in spoken_words(espeak):
        for place in (folder / "made", folder / "labelled" / name.partition("-")[0]):
            place.mkdir(parents=True, exist_ok=True)
            with wave.open(str(place / f"{name}.wav"), "wb") as file:
                file.setparams((1, 2, 16000, 0, "NONE", ""))
                file.writeframes(np.clip(np.rint(sound), -32768, 32767).astype(np.int16).tobytes())
    return {"with labels": folder / "labelled" / "**", "without labels": folder / "made"}


def check_right(folder: Path) -> None:
    """Print the findings of right cards: each is a false alarm."""
    count = alarms = 0
    for network in NETWORKS.values():
        if not network.card or network.name == "keywords":
            continue
        path, card, sets = prepared(network, folder / network.name)
        photographs = sorted(p for p in sets["without labels"].iterdir() if p.suffix in (".jpg", ".png"))[
            :128
        ]
        model, _ = open_source_model(path, card.shapes(), ImportOptions())
        for title, other, changed in equal_models(model, card):
            findings = check_without_labels(changed, other, photographs)
            count, alarms = count + 1, alarms + bool(findings)
            for finding in findings:
                print(f"{network.name}, {title}: {finding.text}", flush=True)
    print(f"{alarms} of {count} right cards with a finding")


def equal_models(model: ir.Model, card: Card) -> Iterator[tuple[str, Card, ir.Model]]:
    """Yield the card and the model, and those whose first nodes compute what the card does no longer."""
    image = card.image_input()
    yield "as it is", card, model
    for title, values in (("0 to 255", RAW), ("0 to 1", UNIT), ("-1 to 1", SIGNED)):
        other = replace(image, **{key: value[: image.channels] for key, value in values.items()})  # type: ignore[arg-type]
        if (tuple(other.mean), tuple(other.std)) != (tuple(image.mean), tuple(image.std)):
            changed = {**card.inputs, image.name: other}
            yield title, replace(card, inputs=changed), with_first_nodes(model, image, other)


def with_first_nodes(model: ir.Model, image: ImageInput, other: ImageInput) -> ir.Model:
    """Return the model for another card's pixels: x * (other.std / std) + (other.mean - mean) / std."""
    changed = model.clone()
    value = next(one for one in changed.graph.inputs if one.name == image.name)
    shape = (1, -1, 1, 1) if image.layout == "NCHW" else (1, 1, 1, -1)

    def constant(name: str, numbers: Sequence[float]) -> ir.Value:
        array = np.reshape(np.array(numbers, np.float32), shape)
        made = ir.Value(name=name, const_value=ir.tensor(array, name=name))
        changed.graph.register_initializer(made)
        return made

    uses = list(value.uses())
    std, mean, own = np.array(other.std), np.array(other.mean), np.array(image.std)
    scaled = ir.node("Mul", [value, constant("own_scale", (std / own).tolist())])
    shifted = ir.node("Add", [scaled.outputs[0], constant("own_shift", ((mean - image.mean) / own).tolist())])
    changed.graph.insert_before(changed.graph[0], [scaled, shifted])
    for node, index in uses:
        node.replace_input_with(index, shifted.outputs[0])
    return changed


if __name__ == "__main__":
    main()
