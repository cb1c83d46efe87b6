"""Small networks of texts, series and sounds as people write them, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

WORDS = 200


def tokens(*shapes: Any) -> Callable[[], tuple[Tensor, ...]]:
    """Return a maker of token ids; a shape, or several."""
    wanted = [shapes] if isinstance(shapes[0], int) else list(shapes)
    return lambda: tuple(torch.randint(1, WORDS, shape) for shape in wanted)


def packed(length: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randint(1, WORDS, (1, length)), torch.tensor([length - 2]))


class TextLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(WORDS, 32), nn.LSTM(32, 48, 2, batch_first=True)
        self.head = nn.Linear(48, 3)

    def forward(self, ids: Tensor) -> Tensor:
        _, (hidden, _) = self.lstm(self.words(ids))
        return self.head(hidden[-1]).softmax(-1)


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(4, 32, batch_first=True), nn.Linear(32, 6)

    def forward(self, series: Tensor) -> Tensor:
        mean = series.mean(1, keepdim=True)
        spread = series.std(1, keepdim=True) + 1e-5
        out, _ = self.gru((series - mean) / spread)
        return self.head(out[:, -1]) * spread[:, 0, :1] + mean[:, 0, :1]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 24, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 9)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.head(self.lstm(self.words(ids))[0])
        return scores, scores.argmax(-1)


class PackedGRU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 24)
        self.gru = nn.GRU(24, 24, bidirectional=True, batch_first=True)
        self.attend, self.head = nn.Linear(48, 1), nn.Linear(48, 3)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        sequence = nn.utils.rnn.pack_padded_sequence(
            self.words(ids), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = nn.utils.rnn.pad_packed_sequence(self.gru(sequence)[0], batch_first=True)
        return self.head((self.attend(out).softmax(1) * out).sum(1))


class TCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(3 if k == 0 else 16, 16, 3, dilation=2**k))
            for k in range(4)
        )
        self.head = nn.Linear(16, 5)

    def forward(self, signal: Tensor) -> Tensor:
        for k, layer in enumerate(self.layers):
            out = F.relu(layer(F.pad(signal, (2 * 2**k, 0))))
            signal = out + signal if out.shape == signal.shape else out
        return self.head(signal[..., -1])


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Parameter(torch.randn(1, 16, 32) * 0.1)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu", norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 4)

    def forward(self, ids: Tensor) -> Tensor:
        padding = ids == 0
        return self.head(self.encoder(self.words(ids) + self.places, src_key_padding_mask=padding).mean(1))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
        self.head = nn.Linear(32, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.transformer(self.words(source), self.words(target), tgt_mask=mask))


class SpeechCTC(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(40, 32, 5, 2, 2), nn.GELU(), nn.Conv1d(32, 32, 5, 1, 2, groups=4))
        self.gru, self.head = nn.GRU(32, 24, 2, bidirectional=True, batch_first=True), nn.Linear(48, 29)

    def forward(self, features: Tensor) -> Tensor:
        out, _ = self.gru(self.conv(features).permute(0, 2, 1))
        return self.head(out).log_softmax(-1)


class Spectrogram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.head = nn.Linear(129, 4)

    def forward(self, sound: Tensor) -> Tensor:
        spectrum = torch.stft(sound, 256, 128, window=self.window, return_complex=True, center=True)
        return self.head(torch.log1p(spectrum.abs()).mean(-1))


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.RMSNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = self.qkv(self.norm(x)).view(1, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
        angles = torch.arange(length)[:, None] / 100 ** (torch.arange(4) / 4)
        turned = [self.rotate(part, angles.cos(), angles.sin()) for part in (q, k)]
        mixed = F.scaled_dot_product_attention(*turned, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))

    @staticmethod
    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        one, two = x.chunk(2, -1)
        return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


class ECG(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(12, 24, 7, 2, 3), nn.BatchNorm1d(24), nn.Hardswish())
        self.squeeze, self.excite = nn.Linear(24, 6), nn.Linear(6, 24)
        self.head = nn.Linear(24, 5)

    def forward(self, leads: Tensor) -> Tensor:
        x = self.conv(leads)
        x = x * F.hardsigmoid(self.excite(F.relu(self.squeeze(x.mean(-1))))).unsqueeze(-1)
        return self.head(F.adaptive_max_pool1d(x, 1).flatten(1))
