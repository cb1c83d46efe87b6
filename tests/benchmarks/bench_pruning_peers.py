"""EdgeKit's pruning beside torch-pruning's and NNCF's: same photographs, no training, equal multiplications.

    python tests/benchmarks/bench_pruning_peers.py MODEL.onnx --card CARD.toml --samples PHOTOS \
        --truth LABELLED_PHOTOS [--shares .1 .2 .3] [--only edgekit torch-pruning nncf]

Run it in an environment that has the peers beside EdgeKit: ``pip install -e '.[build]' torch torch-pruning
nncf``. Three quarters of PHOTOS fit weights, a quarter chooses channels; the peers get all of them. Where
one needs a loss its labels are the model's own answers. EdgeKit leaves multiples of 4 to 16 channels,
torch-pruning any number: by ``round_to=16`` it cannot remove a tenth of EfficientNet-Lite0. A peer's network
has batch norms behind every Conv (``network_in_torch``), whose statistics are taken anew after the cut. How
much a peer removes is searched until the multiplications are those of EdgeKit's.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress import network_cost
from edgekit.compiler.compress.prune import allocate, plan_pruning, pruned_model
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.samples import FileSamples, Sample, read_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.processing import load_card
from edgekit.system.progress import unheard
from tests.benchmarks.bench_int8 import pictures
from tests.benchmarks.network_in_torch import (
    estimate_statistics,
    in_torch,
    multiplications,
    put_norms_back,
)

MOST = 0.75
"""The largest part of a layer that may go, as of EdgeKit's groups."""
STEPS = 8
"""Of the search for a peer's share."""

Judge = Callable[[Sequence[Sample]], float]
"""Outputs for each photograph with labels -> accuracy."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("--truth", type=Path, required=True)
    arguments.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    arguments.add_argument("--only", nargs="+", default=["edgekit", "torch-pruning", "nncf"])
    given = arguments.parse_args()
    card = load_card(given.card)
    source = open_model(given.model, card.shapes())
    inputs, outputs = signature(source)
    model = source.clone()
    run_passes(model)
    photographs = read_files(pictures(given.samples), inputs, card).arrays
    truth = read_files(pictures(given.truth), inputs, card).arrays
    assert isinstance(truth, FileSamples)
    run = Reference(source, optimize=True, threads=2).run
    evaluator = Evaluator(card, [run(sample) for sample in truth], find_labels(truth.paths, card))

    def judge(answers: Sequence[Sample]) -> float:
        found = evaluator.evaluate(answers).task
        assert found is not None
        return found.value

    print(
        f"unpruned {judge(evaluator.expected):.3f} on {len(truth)}; {len(photographs)} without labels",
        flush=True,
    )
    left = {share: 1 - share for share in given.shares}
    if "edgekit" in given.only:
        left |= by_edgekit(model, source, card, photographs, truth, judge, given.shares)
    if {"torch-pruning", "nncf"}.isdisjoint(given.only):
        return
    module, batch = network_of(model, photographs, str(inputs[0].name))
    others = tensors_of(truth, str(inputs[0].name))
    for name, rows in (("torch-pruning", by_torch_pruning), ("nncf", by_nncf)):
        if name in given.only:
            rows(module, batch, left, lambda m: judge(answers_of(m, others, str(outputs[0].name))))


def by_edgekit(
    model: ir.Model,
    source: ir.Model,
    card: Any,
    photographs: Sequence[Sample],
    truth: Sequence[Sample],
    judge: Judge,
    shares: Sequence[float],
) -> dict[float, float]:
    """Share -> the part of the multiplications that was left."""
    begun = time.process_time()
    fitting = [photographs[i] for i in range(len(photographs)) if i % 4]
    choosing = [photographs[i] for i in range(0, len(photographs), 4)]
    reference = Reference(source)
    chooser = Evaluator(card, [reference.run(sample) for sample in choosing])
    plan = plan_pruning(model, fitting, choosing, chooser, unheard)
    seconds = time.process_time() - begun
    total, left = network_cost.multiplications(model), {}
    for share in shares:
        begun = time.process_time()
        removed = allocate(plan, "multiplications", share, total)
        assert removed is not None
        pruned = pruned_model(plan, removed)
        spent = seconds + time.process_time() - begun
        left[share] = network_cost.multiplications(pruned) / total
        run = Reference(pruned, optimize=True, threads=2).run
        found = judge([run(sample) for sample in truth])
        print(f"{'edgekit':34} {left[share]:.3f}  {found:.3f}  {spent:5.0f} s", flush=True)
    return left


def tensors_of(samples: Sequence[Sample], name: str) -> list[Any]:
    import torch

    return [torch.from_numpy(np.array(sample[name])) for sample in samples]


def network_of(model: ir.Model, photographs: Sequence[Sample], name: str) -> tuple[Any, list[Any]]:
    """The network in torch, and the photographs as tensors."""
    import torch

    module, batch = in_torch(model), tensors_of(photographs, name)
    put_norms_back(module, batch[: len(batch) // 2])
    wanted = Reference(model).run(photographs[0])
    with torch.no_grad():
        difference = np.abs(module(batch[0]).numpy() - next(iter(wanted.values()))).max()
    print(f"in torch: differs by {difference:.1e} from ONNX Runtime", flush=True)
    return module, batch


def answers_of(module: Any, pictures: Sequence[Any], name: str) -> list[dict[str, Any]]:
    import torch

    with torch.no_grad():
        return [{name: module(each).numpy()} for each in pictures]  # batches take longer


def by_torch_pruning(
    module: Any, batch: list[Any], left: dict[float, float], judge: Callable[[Any], float]
) -> None:
    """Its importances that need no labels of people and no training, over single layers and over all."""
    total = multiplications(module, batch[0])
    for name, prepared, importance in importances(module, batch):
        for everywhere in (False, True):
            for wanted in left.values():
                begun = time.process_time()
                found = reach(prepared, importance, everywhere, batch[0], wanted * total)
                if found is None:
                    print(f"torch-pruning {name:20} cannot leave {wanted:.3f}", flush=True)
                    continue
                spent, after = time.process_time() - begun, multiplications(found, batch[0]) / total
                estimate_statistics(found, batch)
                print(
                    f"torch-pruning {name:12} {'global' if everywhere else 'layers':7} {after:.3f}  "
                    f"{judge(found):.3f}  {spent:5.0f} s",
                    flush=True,
                )


def importances(module: Any, batch: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, makes a copy of the module with what the importance needs, importance)."""
    import torch_pruning as tp
    from torch.nn import functional

    yield "magnitude", lambda: copy.deepcopy(module), tp.importance.GroupMagnitudeImportance(p=2)
    first = [parameter.data.new_zeros(parameter.shape) for parameter in module.parameters()]
    second = [each.clone() for each in first]
    for x in batch:
        module.zero_grad()
        y = module(x)
        functional.cross_entropy(y, y.argmax(1)).backward()
        for parameter, one, two in zip(module.parameters(), first, second, strict=True):
            one += parameter.grad / len(batch)
            two += parameter.grad**2
    module.zero_grad()

    def with_gradients() -> Any:
        made = copy.deepcopy(module)
        for parameter, gradient in zip(made.parameters(), first, strict=True):
            parameter.grad = gradient.clone()
        return made

    yield "Taylor", with_gradients, tp.importance.GroupTaylorImportance()
    importance = tp.importance.GroupHessianImportance()

    def with_squares() -> Any:
        made = with_gradients()
        # By hand: 1.6.1's accumulate_grad keeps the last sample only (it looks up names among parameters).
        importance._accu_grad = dict(zip(made.parameters(), second, strict=True))
        importance._counter = dict.fromkeys(made.parameters(), len(batch))
        return made

    yield "Hessian", with_squares, importance


def reach(prepared: Callable[[], Any], importance: Any, everywhere: bool, x: Any, wanted: float) -> Any:
    """The pruned network with the multiplications nearest to ``wanted``; None if none comes near."""
    import torch_pruning as tp
    from torch import nn

    low, high, best = 0.0, MOST, None
    for _ in range(STEPS):
        share = (low + high) / 2
        module = prepared()
        ignored = [each for each in module.modules() if isinstance(each, nn.Linear)]
        pruner = tp.pruner.BasePruner(
            module,
            x,
            importance=importance,
            pruning_ratio=share,
            max_pruning_ratio=MOST,
            global_pruning=everywhere,
            ignored_layers=ignored,
        )
        pruner.step()
        after = multiplications(module, x)
        if best is None or abs(after - wanted) < abs(multiplications(best, x) - wanted):
            best = module
        if after > wanted:
            low = share
        else:
            high = share
    return best if abs(multiplications(best, x) / wanted - 1) < 0.03 else None


def by_nncf(module: Any, batch: list[Any], left: dict[float, float], judge: Callable[[Any], float]) -> None:
    """Its zeros, by magnitude: it removes no channels, so as many weights are zero as multiplications go."""
    import nncf

    modes = (nncf.PruneMode.UNSTRUCTURED_MAGNITUDE_LOCAL, nncf.PruneMode.UNSTRUCTURED_MAGNITUDE_GLOBAL)
    total = multiplications(module, batch[0])
    for mode in modes:
        for wanted in left.values():
            begun = time.process_time()
            pruned = nncf.prune(copy.deepcopy(module), mode=mode, ratio=1 - wanted, examples_inputs=batch[0])
            pruned = nncf.strip(pruned, do_copy=False, example_input=batch[0])
            spent, after = time.process_time() - begun, multiplications(pruned, batch[0]) / total
            print(
                f"nncf {mode.value:29} {after:.3f}  {judge(pruned):.3f}  {spent:5.0f} s  "
                f"{1 - wanted:.0%} of the weights are zero",
                flush=True,
            )


if __name__ == "__main__":
    main()
