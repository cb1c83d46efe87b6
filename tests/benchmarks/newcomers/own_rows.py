"""Networks that people write themselves in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.benchmarks.newcomers.rows import Row
from tests.benchmarks.newcomers.torch_modules import image, module_row, noise

FRAMEWORK = "PyTorch, own network"


def rows() -> Iterator[Row]:
    from tests.benchmarks.newcomers import own_networks as own
    from tests.benchmarks.newcomers import own_sequences as sequences

    def row(name: str, module: Any, inputs: Any, form: str = "Python", **rest: Any) -> Row:
        return module_row(FRAMEWORK, name, module, inputs, form, **rest)

    yield row("U-Net", own.UNet, image(64, 1), ".pt2")
    yield row("LSTM classifier of texts", sequences.TextLSTM, sequences.tokens(1, 20))
    yield row("GRU forecaster", sequences.Forecaster, noise((1, 24, 4)))
    yield row("bidirectional LSTM tagger", sequences.Tagger, sequences.tokens(1, 12), ".pt2")
    yield row("BiGRU with attention, packed sequences", sequences.PackedGRU, sequences.packed(12),
              refused="pack_padded_sequence", known=True)  # fmt: skip
    yield row("temporal convolutional network", sequences.TCN, noise((1, 3, 100)))
    yield row("nn.TransformerEncoder", sequences.Encoder, sequences.tokens(1, 16))
    yield row("encoder and decoder, nn.Transformer", sequences.Translator, sequences.tokens((1, 10), (1, 7)))
    yield row("autoencoder of convolutions", own.Autoencoder, image(64))
    yield row("super-resolution with PixelShuffle", own.SuperResolution, image(48))
    yield row("PointNet", own.PointNet, noise((1, 3, 128)))
    yield row("graph convolutions", own.GCN, own.graph)
    yield row("speech CTC: convolutions, GRU", sequences.SpeechCTC, noise((1, 40, 120)))
    yield row("CRNN line reader", own.CRNN, image(32, 1))
    yield row("Siamese network, two pictures", own.Siamese, lambda: image(64)() + image(64)())
    yield row("three heads, a dictionary out", own.Heads, image(64))
    yield row("voxels, Conv3d", own.Voxels, noise((1, 1, 16, 16, 16)))
    yield row("detector with torchvision.ops.nms", own.NMSDetector, image(64), targets=("ort",))
    yield row("spatial transformer, grid_sample", own.STN, image(32, 1))
    yield row("recommender, embeddings", own.NCF, own.pairs)
    yield row("EmbeddingBag and features (DLRM)", own.DLRM, own.bags)
    yield row("spectrogram by torch.stft", sequences.Spectrogram, noise((1, 4000)))
    yield row("RoI Align head", own.RoIHead, own.regions, targets=("ort",))
    yield row("KAN, splines", own.KAN, noise((4, 5)))
    yield row("Mixture of experts, top 2", own.Experts, noise((6, 16)))
    yield row("RMSNorm, rotary attention", sequences.Rotary, noise((1, 12, 32)))
    yield row("GAN generator", own.Generator, noise((1, 16)))
    yield row("ECG, Conv1d with squeeze and excitation", sequences.ECG, noise((1, 12, 250)))
    yield row("ConvLSTM, a loop over frames", own.ConvLSTM, noise((1, 4, 1, 16, 16)))
    yield row("int8 by dynamic quantization", own.quantized, noise((1, 16)),
              refused="quantiz")  # fmt: skip
    yield row("state dict alone", own.Autoencoder, image(64), form=".pth, state dict",
              refused="weights but no graph")  # fmt: skip
    yield row("a branch on a sum", own.Branch, noise((1, 8)), refused="depends on")
