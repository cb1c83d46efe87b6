"""Small networks of pictures, graphs and tables as people write them, in PyTorch."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


def graph() -> tuple[Tensor, Tensor]:
    adjacency = (torch.rand(10, 10) > 0.7).float()
    return torch.randn(10, 8), adjacency + adjacency.T + torch.eye(10)


def pairs() -> tuple[Tensor, Tensor]:
    return torch.randint(0, 100, (4,)), torch.randint(0, 50, (4,))


def bags() -> tuple[Tensor, Tensor]:
    return torch.randint(0, 100, (2, 5)), torch.randn(2, 4)


def regions() -> tuple[Tensor, Tensor]:
    corners = torch.rand(4, 2) * 24
    return torch.randn(1, 8, 32, 32), torch.cat([torch.zeros(4, 1), corners, corners + 7], 1)


def block(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = block(1, 8), block(8, 16), block(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1, self.head = block(32, 16), block(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        one = self.down1(image)
        two = self.down2(F.max_pool2d(one, 2))
        deep = self.middle(F.max_pool2d(two, 2))
        joined = self.join2(torch.cat([self.up2(deep), two], 1))
        return self.head(self.join1(torch.cat([self.up1(joined), one], 1)))


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.InstanceNorm2d(16),
            nn.ELU(),
        )
        self.decode = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, 8, 3, 1, 1), nn.PReLU(8),
            nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        return self.decode(self.encode(image))


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 5, padding=2), nn.Conv2d(16, 27, 3, padding=1)
        self.body = nn.Sequential(*(block(16, 16) for _ in range(2)))

    def forward(self, image: Tensor) -> Tensor:
        large = F.interpolate(image, scale_factor=3, mode="bicubic", align_corners=False)
        return F.pixel_shuffle(self.last(self.body(torch.tanh(self.first(image)))), 3) + large


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.align = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.turn, self.points, self.head = nn.Linear(16, 9), nn.Conv1d(3, 32, 1), nn.Linear(32, 6)

    def forward(self, points: Tensor) -> Tensor:
        turn = self.turn(self.align(points).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        turned = torch.bmm(points.transpose(1, 2), turn).transpose(1, 2)
        return F.log_softmax(self.head(self.points(turned).amax(2)), 1)


class GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, features: Tensor, adjacency: Tensor) -> Tensor:
        degree = adjacency.sum(1).rsqrt()
        smooth = degree[:, None] * adjacency * degree[None]
        return smooth @ self.two(F.relu(smooth @ self.one(features)))


class CRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(block(1, 8), nn.MaxPool2d(2), block(8, 16), nn.MaxPool2d((2, 1)))
        self.lstm, self.head = nn.LSTM(16 * 8, 32, bidirectional=True), nn.Linear(64, 37)

    def forward(self, image: Tensor) -> Tensor:
        columns = self.conv(image).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.lstm(columns)[0])


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            block(3, 8), nn.AvgPool2d(4), block(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return F.cosine_similarity(self.net(first), self.net(second))


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, 8), nn.AdaptiveMaxPool2d(4), nn.Flatten())
        self.age, self.mood, self.box = nn.Linear(128, 1), nn.Linear(128, 5), nn.Linear(128, 4)

    def forward(self, face: Tensor) -> dict[str, Tensor]:
        body = self.body(face)
        return {"age": F.softplus(self.age(body)), "mood": self.mood(body), "box": self.box(body).sigmoid()}


class Voxels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(4, 8, 3),
            nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 4),
        )  # fmt: skip

    def forward(self, voxels: Tensor) -> Tensor:
        return self.net(voxels)


class NMSDetector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, 8), nn.MaxPool2d(8), nn.Conv2d(8, 5, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        grid = self.body(image)[0].flatten(1).T
        centre, size = grid[:, :2].sigmoid() * 64, grid[:, 2:4].exp() * 4
        boxes, scores = torch.cat([centre - size, centre + size], 1), grid[:, 4].sigmoid()
        keep = torchvision.ops.nms(boxes, scores, 0.5)
        return boxes[keep], scores[keep]


class STN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Sequential(nn.Conv2d(1, 4, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 6))
        self.head = nn.Sequential(block(1, 4), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, image: Tensor) -> Tensor:
        theta = self.locate(image).view(-1, 2, 3) * 0.1 + torch.tensor([[1.0, 0, 0], [0, 1, 0]])
        grid = F.affine_grid(theta, list(image.shape), align_corners=False)
        return self.head(F.grid_sample(image, grid, align_corners=False))


class NCF(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(100, 8), nn.Embedding(50, 8)
        self.mlp = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        u, i = self.users(user), self.items(item)
        return torch.sigmoid(self.mlp(torch.cat([u, i], -1)).squeeze(-1) + (u * i).sum(-1))


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.dense = nn.EmbeddingBag(100, 8, mode="mean"), nn.Linear(4, 8)
        self.head = nn.Linear(9, 1)

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        dense, sparse = self.dense(features), self.bag(ids)
        return self.head(torch.cat([dense, (dense * sparse).sum(1, keepdim=True)], 1))


class RoIHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8 * 9, 5)

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        pooled = torchvision.ops.roi_align(features, boxes, 3, 1.0, 2, aligned=True)
        return self.head(pooled.flatten(1))


class KAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2, 2, 8))
        self.weights = nn.Parameter(torch.randn(5, 8, 3))

    def forward(self, x: Tensor) -> Tensor:
        bumps = torch.exp(-((x.unsqueeze(-1) - self.knots) ** 2) * 2)
        return torch.einsum("bik,iko->bo", bumps, self.weights) + F.silu(x).sum(-1, keepdim=True)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.weights = nn.Linear(16, 4), nn.Parameter(torch.randn(4, 16, 16) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        best, index = self.gate(x).topk(2, -1)
        every = torch.einsum("ni,eio->neo", x, self.weights)
        picked = every.gather(1, index.unsqueeze(-1).expand(-1, -1, 16))
        return (best.softmax(-1).unsqueeze(-1) * picked).sum(1)


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Unflatten(1, (16, 1, 1)), nn.ConvTranspose2d(16, 32, 4, 1, 0), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.GroupNorm(4, 16), nn.Mish(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)


class ConvLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(9, 32, 3, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        hidden = cell = torch.zeros(frames.shape[0], 8, 16, 16)
        for k in range(frames.shape[1]):
            i, f, o, g = self.gates(torch.cat([frames[:, k], hidden], 1)).chunk(4, 1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        return hidden


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else x - 1


def quantized() -> nn.Module:
    float_net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return torch.ao.quantization.quantize_dynamic(float_net, {nn.Linear}, dtype=torch.qint8)
