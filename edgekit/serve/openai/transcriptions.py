"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``: forms with a recording, for speech models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.sound_files import WavFormat, sound_format
from edgekit.serve.openai.api_errors import ApiError
from edgekit.serve.openai.multipart import FORM_BYTES, MultipartForm
from edgekit.serve.openai.request_fields import check_fields

if TYPE_CHECKING:
    from edgekit.serve.served_parts import ServedSpeech

FILE_BYTES = 25 << 20
"""Maximum size of a recording, as in the API."""
BODY_BYTES = FILE_BYTES + FORM_BYTES
SECONDS = 3600
"""Maximum length of a recording."""
LEAST_RATE_HZ = 4000
"""Audio of fewer samples a second has no words, and is longer than its bytes suggest."""
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
FIELDS = (
    "model",
    "language",
    "response_format",
    "stream",
    "timestamp_granularities",
    "temperature",
    "prompt",
)
FILTER_BYTES = 2 << 20
"""Memory of the filter that changes the rate of audio."""


class TranscriptionRequest(NamedTuple):
    """Request for a transcript.

    Attributes:
        sound: A WAV file, whose format was checked.
        decoded_bytes: Maximum memory of the audio while it is decoded, and afterwards.
    """

    sound: memoryview
    seconds: float
    options: Mapping[str, Any]
    form: str
    stream: bool
    decoded_bytes: int


def read_transcription(
    form: MultipartForm, model: ServedSpeech, translate: bool = False
) -> TranscriptionRequest:
    """Read a form. The audio is not decoded.

    Args:
        translate: Whether an English text is requested, whatever is spoken.

    Raises:
        ApiError: a field is malformed or not supported, or the audio is not a WAV file, or too long.
    """
    fields = {name: _single(name, texts) for name, texts in form.fields.items()}
    check_fields(fields, FIELDS, ())
    stream = fields.get("stream", "false").lower()
    if stream not in ("true", "false"):
        raise ApiError("stream must be true or false", "stream")
    kind = fields.get("response_format", "json")
    if kind not in FORMATS:
        raise ApiError(f"response_format must be one of {', '.join(FORMATS)}", "response_format")
    if stream == "true" and kind not in ("json", "text"):
        raise ApiError("a streamed transcript needs response_format json", "response_format")
    _check_times(form.fields.get("timestamp_granularities", ()), kind)
    if fields.get("prompt"):
        raise ApiError("prompt is not supported; leave it out", "prompt")
    if fields.get("temperature", "0") not in ("0", "0.0"):
        raise ApiError("temperature is not supported; leave it out or send 0", "temperature")
    options: dict[str, Any] = {}
    if translate:
        if not model.translates:
            raise ApiError(
                f"{model.name} does not translate; send the sound to /v1/audio/transcriptions", "model"
            )
        options["translate"] = True
    if language := fields.get("language"):
        _check_language(language, model.languages)
        options["language"] = language
    if form.file is None or not form.file:
        raise ApiError("file must be a sound: a WAV file, sent as the form's field file", "file")
    entry = model.session.card.sources()[0]
    assert isinstance(entry, AudioInput)
    wav = _checked_format(form.file)
    size_bytes = decoded_bytes(wav, entry.rate)
    return TranscriptionRequest(form.file, wav.seconds, options, kind, stream == "true", size_bytes)


def _single(name: str, texts: Sequence[str]) -> str:
    if len(texts) > 1 and name != "timestamp_granularities":
        raise ApiError(f"{name[:64]!r} was given twice", name[:64])
    return texts[0]


def _check_times(granularities: Sequence[str], kind: str) -> None:
    name = "timestamp_granularities"
    for granularity in granularities:
        if granularity == "word":
            raise ApiError("times of words are not supported; send segment", name)
        if granularity != "segment":
            raise ApiError("timestamp_granularities has word or segment", name)
    if granularities and kind != "verbose_json":
        raise ApiError("timestamp_granularities needs response_format verbose_json", name)


def _check_language(language: str, languages: Sequence[str]) -> None:
    if language not in languages:
        names = ", ".join(languages) or "one language only, so leave it out"
        raise ApiError(f"language is {language[:32]!r}; the model knows {names}", "language")


def _checked_format(sound: memoryview) -> WavFormat:
    if len(sound) > FILE_BYTES:
        raise ApiError(f"file has more than {FILE_BYTES >> 20} MB", "file", 413)
    try:
        wav = sound_format(sound)
    except ValueError as problem:
        raise ApiError(f"file can't be read as a sound: {problem}", "file") from None
    if wav.rate < LEAST_RATE_HZ:
        raise ApiError(f"file has {wav.rate} samples a second; at least {LEAST_RATE_HZ} are needed", "file")
    if wav.seconds > SECONDS:
        raise ApiError(
            f"file is {math.ceil(wav.seconds)} s long; {SECONDS} s are allowed. Send it in parts", "file"
        )
    return wav


def decoded_bytes(wav_format: WavFormat, rate: int) -> int:
    """Return the maximum memory of a recording while it is decoded (``sound_files``, ``mono`` and
    ``resample``). Its samples at the model's rate take less afterwards.

    >>> decoded_bytes(WavFormat(1, 16, 1, 16000, 44, 1000), 16000)
    11000
    """
    count, values = wav_format.frames, wav_format.frames * wav_format.channels
    result = math.ceil(count * rate / wav_format.rate)
    is_short = wav_format.bits == 16
    decoded = values * (2 if is_short else 4)
    peak = max(
        values * (2 if is_short else 16), decoded + 9 * values + (8 * count if wav_format.channels > 1 else 0)
    )
    if wav_format.rate != rate:
        peak = max(peak, decoded + 16 * count + 16 * result + FILTER_BYTES)
    return peak
