"""A page that listens for some seconds, and Python on what it heard."""

from __future__ import annotations

import base64
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.runtime import Session

SCORE_LIMIT = 1e-4
HEAR = """async (seconds) => {
  const {Session} = await import('./edgekit.js'), {Microphone} = await import('./microphone.js');
  const session = await Session.open('model.edgekit'), problems = [], windows = [], pieces = [];
  const microphone = await Microphone.open((problem) => problems.push(problem.message));
  let rate = 0, begun = 0, dropped_s = 0;
  const running = microphone.run((samples, hertz, begin) => {
    rate = hertz;
    begun += begin;
    pieces.push(samples.slice());
    return session.listen(samples, hertz, {begin});
  }, (predicted, facts) => { windows.push(...predicted); dropped_s = facts.dropped_s; });
  await new Promise((done) => setTimeout(done, 1000 * seconds));
  microphone.stop();
  await running;
  await session.close();
  let text = '';
  for (const byte of new Uint8Array(await new Blob(pieces).arrayBuffer())) text += String.fromCharCode(byte);
  return {windows, problems, begun, dropped_s, rate, heard: btoa(text)};
}"""
"""Listens for some seconds, and returns windows and the samples that they are of."""


def write_wav(path: Path, sound: np.ndarray[Any, np.dtype[Any]], rate: int) -> Path:
    """Write one channel as 16-bit PCM, which Chromium plays again and again as a microphone's sound."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return path


def compare(heard: dict[str, Any], bundle: Bundle, path: Path) -> list[Any]:
    """Compare the page's windows with Python's on the same samples; return Python's."""
    assert (heard["problems"], heard["begun"], heard["dropped_s"]) == ([], 1, 0)
    samples = np.frombuffer(base64.b64decode(heard["heard"]), np.float32)
    with Session(bundle.save(path), threads=1) as session:
        expected = list(session.listen(samples, rate=heard["rate"]))[: len(heard["windows"])]
    for window, one in zip(heard["windows"], expected, strict=True):
        assert window["start_s"] == pytest.approx(one.start_s, abs=1e-9)
    return expected
