"""Draft for ``edgekit build --draft``: a small language model, trained on the large model's texts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.compiler.compress.torch import need_torch
from edgekit.compiler.compress.training_length import checked_end
from edgekit.compiler.pipeline.distil_request import DraftRequest
from edgekit.errors import SampleError, UsageError
from edgekit.generate.host.judge.texts import calibration_tokens, tokens_of
from edgekit.generate.host.readers.language.hugging_face_writer import check_writable, write_hugging_face
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.open_model import is_language_model, open_language_model
from edgekit.system.cpu import allowed_threads, default_threads
from edgekit.system.declared_options import called_with
from edgekit.system.formats.plain_text import duration
from edgekit.system.progress import listener, stage
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.generate.host.distil.draft_training import TrainingTexts

LAYERS = 8
"""A draft has one layer for so many of the model's."""
TEXTS, TEXT_TOKENS, PROMPT_TOKENS = 256, 96, 12
"""Texts that the model writes, their tokens, and those of them that are read from the samples."""
BATCH, LEARNING_RATE = 4, 5e-4
SAMPLES_LIMIT_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class DistilledDraft:
    """Trained draft: ``save`` writes a Hugging Face folder.

    Attributes:
        weights: Weights by Hugging Face's names, float32.
        before, after: Share of tokens in held-out texts at which its likeliest next token is the model's,
            before and after training.
        texts: Number of texts for training, for choosing the best weights, and for testing.
        losses: Divergence on the validation texts in nats per token; the first is before training.
        finished: Whether the training finished; False if it was stopped, with the best weights so far.
    """

    model: LanguageModel
    layers: int
    weights: Mapping[str, Array]
    before: float
    after: float
    texts: Mapping[str, int]
    epochs: float
    seconds: float
    losses: Sequence[float]
    finished: bool

    @property
    def better(self) -> bool:
        """Return whether more of its tokens are the model's than before."""
        return min(self.losses) < self.losses[0] and self.after > self.before

    def save(self, folder: Path | str) -> None:
        """Write the folder. Raises OSError if it can't be written."""
        name = f"{self.model.name} draft"
        write_hugging_face(Path(folder), self.model, self.layers, self.weights, name)

    def as_json(self) -> dict[str, Json]:
        return {
            "model": self.model.name,
            "layers": [self.model.config.layers, self.layers],
            "before": round(self.before, 4),
            "after": round(self.after, 4),
            "texts": dict(self.texts),
            "epochs": round(self.epochs, 3),
            "seconds": round(self.seconds, 1),
            "losses": [round(loss, 6) for loss in self.losses],
            "finished": self.finished,
            "better": self.better,
        }

    def text(self) -> str:
        stopped = "" if self.finished else "; stopped, this is the best so far"
        lines = [
            f"  draft            {self.layers} of {self.model.config.layers} layers of {self.model.name}",
            f"  training         {self.epochs:.1f} epochs of {self.texts['training']} texts in"
            f" {duration(self.seconds)}{stopped}",
            f"  divergence       {self.losses[0]:.3f} -> {min(self.losses):.3f} nats a token on"
            f" {self.texts['validation']} validation texts",
            f"  accepted tokens  {self.before:.3f} -> {self.after:.3f} of the tokens of "
            f"{self.texts['test']} test texts",
        ]
        return "\n".join([*lines, *([] if self.better else ["  not better than before"])])


@called_with(DraftRequest)
def distil_draft(request: DraftRequest) -> DistilledDraft:
    """Train a few layers of a language model to predict the tokens of the whole model, on the CPU.

    Raises:
        UsageError: an option is invalid, the model is of another type, or the training diverged.
        SampleError: the text has too few tokens.
        ModelError: the model is damaged.
        MissingDependency: PyTorch or the package ``tokenizers`` is not installed.
    """
    need_torch("distilling a draft")
    import torch

    from edgekit.compiler.compress.torch.training_loop import TrainingOptions
    from edgekit.compiler.compress.torch.training_state import TrainingState, load_state, save_state
    from edgekit.generate.host.distil.draft_training import DraftTraining, model_weights, write_texts

    epochs, minutes, batch, rate = request.epochs, request.minutes, request.batch, request.learning_rate
    threads = default_threads() if request.threads is None else allowed_threads(request.threads)
    checked_end(epochs, minutes, batch, rate)
    seed, progress = request.seed, listener(request.progress)
    if request.resume and request.checkpoint is None:
        raise UsageError("resume needs the checkpoint of the interrupted training")
    options = TrainingOptions(
        epochs, minutes, batch or BATCH, LEARNING_RATE if rate is None else rate, seed=seed
    )
    before_threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with stage(progress, "opened") as emit:
            opened = _opened(Path(request.model))
            layer_count = _layer_count(opened, request.layers)
            emit(f"{opened.name}, {layer_count} of {opened.config.layers} layers")
        with stage(progress, "samples", live=True) as emit:
            prompts, weights = _prompts(opened, request.samples), model_weights(opened)
            length = min(TEXT_TOKENS, opened.config.context_length)
            texts = write_texts(
                opened, weights, prompts, length, seed, lambda n: emit(f"{n} of {len(prompts)} texts written")
            )
            training, validation, test = _split(texts, len(prompts))
        with stage(progress, "trained", live=True) as emit:
            run = DraftTraining.from_model(opened, weights, layer_count, training, validation, options)
            before = run.agreement(test)
            key = _key(opened, layer_count, prompts, options)
            saved = None if request.checkpoint is None else Path(request.checkpoint)
            state = load_state(saved, key) if request.resume and saved is not None else TrainingState()

            def save(now: TrainingState) -> None:
                if saved is not None:
                    save_state(saved, now, key)

            finished = run.run(
                state, lambda now: emit(f"{now.epochs:.1f} epochs, {now.loss:.3f} nats a token"), save
            )
        return DistilledDraft(
            model=opened,
            layers=layer_count,
            weights={name: weight.detach().numpy() for name, weight in run.weights.items()},
            before=before,
            after=run.agreement(test),
            texts={
                "training": len(training.tokens), "validation": len(validation.tokens),
                "test": len(test.tokens),
            },
            epochs=state.step / run.steps_per_epoch,
            seconds=state.seconds,
            losses=tuple(state.losses),
            finished=finished,
        )  # fmt: skip
    finally:
        torch.set_num_threads(before_threads)


def _opened(path: Path) -> LanguageModel:
    if not is_language_model(path):
        raise UsageError(f"{path} is not a language model; pass a GGUF file or a Hugging Face folder")
    model = open_language_model(path)
    check_writable(model.config, model.name)
    return model


def _layer_count(model: LanguageModel, layers: int | None) -> int:
    total = model.config.layers
    if layers is None:
        return max(1, total // LAYERS)
    if not 1 <= layers < total:
        raise UsageError(f"a draft of {layers} layers: {model.name} has {total}, and a draft must have fewer")
    return layers


def _prompts(model: LanguageModel, samples: str | Path | None) -> list[list[int]]:
    if samples is None:
        tokens, origin = calibration_tokens(model), "the text that comes with EdgeKit"
    else:
        origin = str(samples)
        try:
            text = read_plain(Path(samples), SAMPLES_LIMIT_BYTES).decode("utf-8")
        except OSError as problem:
            raise SampleError(f"{samples} can't be read: {problem.strerror or problem}") from None
        except UnicodeDecodeError:
            raise SampleError(f"{samples} is not UTF-8 text") from None
        tokens = tokens_of(model, text, special_tokens=False)
    if len(tokens) < TEXTS:
        raise SampleError(f"{origin} has {len(tokens)} tokens; at least {TEXTS} are needed")
    before = [] if model.bos_id is None else [model.bos_id]
    starts = sorted({round(n * (len(tokens) - PROMPT_TOKENS) / (TEXTS - 1)) for n in range(TEXTS)})
    return [[*before, *tokens[start : start + PROMPT_TOKENS]] for start in starts]


def _split(texts: TrainingTexts, count: int) -> tuple[TrainingTexts, TrainingTexts, TrainingTexts]:
    """Split the texts: an eighth for validation, another eighth for testing, the rest for training."""
    import torch

    place = torch.arange(count) % 8
    return texts.part(place > 1), texts.part(place == 0), texts.part(place == 1)


def _key(model: LanguageModel, layers: int, prompts: list[list[int]], options: object) -> str:
    """Return the key of a checkpoint. It excludes the length: a training may be resumed for longer."""
    chosen = {k: v for k, v in asdict(options).items() if k not in ("minutes", "epochs")}  # type: ignore[call-overload]
    text = repr([model.sha256, layers, prompts, sorted(chosen.items())])
    return hashlib.sha256(text.encode()).hexdigest()
