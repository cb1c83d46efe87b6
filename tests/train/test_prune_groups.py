"""A module without some units answers as the module in which nothing reads them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from edgekit.errors import UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from edgekit.compiler.compress.torch import prune_groups  # noqa: E402  (needs torch)

nn = torch.nn


class Block(nn.Module):  # type: ignore[misc,name-defined]
    """Wide, depthwise, narrow, and the sum with its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(channels, 16, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.slope = nn.PReLU(16)
        self.narrow = nn.Conv2d(16, channels, 1)

    def forward(self, x: Any) -> Any:
        return x + self.narrow(self.slope(self.depthwise(torch.relu(self.norm(self.wide(x))))))


class Network(nn.Module):  # type: ignore[misc,name-defined]
    """Residual blocks, a grouped Conv, two Convs side by side, numbers after a Flatten, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.grouped = nn.Conv2d(8, 12, 3, groups=4)
        self.left, self.right = nn.Conv2d(12, 6, 1), nn.Conv2d(12, 6, 1)
        self.join = nn.Conv2d(12, 4, 1)
        self.hidden, self.last = nn.Linear(4 * 16, 10), nn.Linear(10, 3, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.grouped(self.blocks(torch.relu(self.stem(x))))
        y = self.join(torch.cat([self.left(x), torch.sigmoid(self.right(x))], 1))
        return self.last(torch.tanh(self.hidden(y.flatten(1)))), y


def network() -> tuple[Any, Any]:
    """In evaluation mode, with statistics that are not 0 and 1, and an input."""
    torch.manual_seed(0)
    module, x = Network(), torch.randn(4, 3, 8, 8)
    module.train()
    module(x)
    return module.eval(), torch.randn(1, 3, 8, 8)


def test_removed_is_zeroed() -> None:
    module, x = network()
    before = copy.deepcopy(module)
    module.train()
    groups = prune_groups(module, x)
    assert module.training
    module.eval()
    found = module.state_dict().items()
    assert all(torch.equal(before.state_dict()[name], tensor) for name, tensor in found)
    units = {group.name: range(0, group.units, 3) for group in groups}
    assert list(units) == ["stem", "blocks.0.wide", "blocks.1.wide", "left", "right", "hidden"]
    assert [group.units for group in groups] == [4, 16, 16, 6, 6, 10], "the stem's go by the grouped Conv"
    check_refusals(groups)
    groups.zero(units)
    zeroed = copy.deepcopy(module)
    module.load_state_dict(before.state_dict())
    groups.remove(units)
    for batch in (x, torch.randn(5, 3, 8, 8)):
        for a, b in zip(zeroed(batch), module(batch), strict=True):
            assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    count = [sum(p.numel() for p in each.parameters()) for each in (zeroed, module)]
    assert count[1] < 0.75 * count[0]
    assert (module.stem.out_channels, module.grouped.groups, module.hidden.out_features) == (4, 2, 6)
    assert module.blocks[0].norm.num_features == len(module.blocks[0].norm.running_var) == 10
    with pytest.raises(UsageError, match="units were already removed"):
        groups.remove({})
    assert [group.units for group in prune_groups(module, (x,))] == [2, 10, 10, 4, 4, 6]
    module.train()
    sum(y.sum() for y in module(torch.randn(4, 3, 8, 8))).backward()


def check_refusals(groups: Any) -> None:
    for units, message in (
        ({"stam": [0]}, "no group 'stam'; available: stem, "),
        ({"left": [6]}, "group left has no unit 6: it has 6, from 0"),
        ({"left": range(6)}, "group left has 6 units, and at least one has to stay"),
    ):
        with pytest.raises(UsageError) as found:
            groups.remove(units)
        assert message in str(found.value)


def test_sizes_that_the_code_states() -> None:
    class Heads(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.last = nn.Linear(4, 12), nn.Linear(12, 2)
            self.free = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.last(self.wide(torch.relu(self.free(x))).view(1, 3, 4).relu().flatten(1))

    groups = prune_groups(Heads(), torch.randn(1, 4))
    assert [group.name for group in groups] == ["free"]
    assert [why.split(":")[0] for why in groups.refused.values()] == ["the module's code needs it"]


def test_a_condition_of_the_code_without_a_text() -> None:
    class Stated(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2, 1)

        def forward(self, x: Any) -> Any:
            hidden = self.first(x)
            if hidden.shape[1] != 8:
                raise ValueError
            return self.last(hidden)

    groups = prune_groups(Stated(), torch.rand(1, 3, 4, 4))
    assert list(groups.refused.values()) == ["the module's code needs it: ValueError: "]


def test_a_weight_that_is_used_twice() -> None:
    class Tied(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.there, self.back = nn.Linear(6, 6), nn.Linear(6, 6)
            self.back.weight = self.there.weight
            self.last = nn.Linear(6, 2)

        def forward(self, x: Any) -> Any:
            return self.last(torch.relu(self.back(torch.relu(self.there(x)))))

    groups = prune_groups(Tied(), torch.randn(1, 6))
    assert not groups
    assert set(groups.refused.values()) == {
        "one of its parameters is also used elsewhere, without these channels"
    }


def test_a_module_that_cannot_be_exported() -> None:
    class Branches(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(UsageError, match=r"^Branches: torch\.export can't export it: "):
        prune_groups(Branches(), torch.ones(1, 2))
