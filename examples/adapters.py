"""Fine-tuning, federated: adapters in a frozen transformer, each role of Shakespeare's a client.

A causal transformer learns the next character from some roles; this is the base, which everybody
has. Other roles are the clients. They train only adapters of rank 4 (LoRA: Hu et al., 2021) in its
attention, by FedAvg with fine-tuning and by Scafflix, and send nothing else.

python examples/adapters.py --data shakespeare
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

import scafflix as sx
from scafflix.data.text import CODES, LENGTH


class Adapter(nn.Module):
    """A frozen layer W, and what is added to it: x W' + x A' B'. B begins at 0, so that the start
    of an adapted model is its base."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.up(self.down(x))


class Block(nn.Module):
    """Attention to what came before, then two layers at each place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        y = self.before(x)
        q, k, v = (
            layer(y).view(rows, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Transformer(nn.Module):
    """Codes of characters `[rows, length]` to logits for the character that follows each."""

    def __init__(self, width: int, layers: int, heads: int = 4) -> None:
        super().__init__()
        self.codes, self.places = nn.Embedding(CODES, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, CODES)

    def forward(self, codes: Tensor) -> Tensor:
        places = torch.arange(codes.shape[1], device=codes.device)
        x = self.codes(codes.long()) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


def adapted(base: Mapping[str, Tensor], width: int, layers: int, rank: int) -> nn.Module:
    """The base, frozen, with adapters at the queries and the values of its attention."""
    model = Transformer(width, layers)
    model.load_state_dict(base)
    model.requires_grad_(False)
    for block in model.blocks:
        assert isinstance(block, Block)
        for name in ("query", "value"):
            setattr(block, name, Adapter(getattr(block, name), rank))
    return model


def train_base(model: nn.Module, lines: Tensor, labels: Tensor, steps: int) -> None:
    """Adam on the lines of all base roles together, as one would train it in one place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for step in range(steps):
        rows = torch.randint(len(lines), (32,))
        logits = model(lines[rows]).flatten(0, 1)
        loss = functional.cross_entropy(logits, labels[rows].flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"base, step {step}: loss {float(loss.detach()):.2f}", flush=True)


def main(words: list[str] | None = None) -> dict[str, sx.Record]:
    options = argparse.ArgumentParser()
    options.add_argument("--data", default="shakespeare", help="roles, as scafflix run takes them")
    options.add_argument("--clients", type=int, default=20)
    options.add_argument("--least", type=int, default=60, help="training lines of a client")
    options.add_argument("--width", type=int, default=192)
    options.add_argument("--layers", type=int, default=3)
    options.add_argument("--steps", type=int, default=700, help="training steps of the base")
    options.add_argument("--base", type=Path, default="base.safetensors", help="made if absent")
    options.add_argument("--rank", type=int, default=4)
    options.add_argument("--rounds", type=int, default=24)
    options.add_argument("--cohort", type=int, default=5)
    options.add_argument("--stepsizes", type=float, nargs="+", default=[1.0, 4.0, 16.0])
    options.add_argument("--trial", type=int, default=6, help="rounds by which one is chosen")
    asked = options.parse_args(words)
    torch.manual_seed(0)

    roles = sx.data.load(asked.data, min_examples=asked.least, test=0.2, validation=0.1)
    mine, others = np.arange(asked.clients), np.arange(asked.clients, len(roles.clients))
    fed, train = roles.take(mine), roles.take(others).train
    if not asked.base.exists():
        base, began = Transformer(asked.width, asked.layers), time.perf_counter()
        lines, labels = torch.tensor(train.features), torch.tensor(train.labels).long()
        train_base(base, lines, labels, asked.steps)
        save_file(base.state_dict(), asked.base)
        print(f"base of {len(others)} roles: {time.perf_counter() - began:.0f} s")

    state = load_file(asked.base)
    network = sx.models.from_torch(
        lambda: adapted(state, asked.width, asked.layers, asked.rank), name="adapters"
    )
    problem = sx.Problem(fed, network)
    whole = sum(array.numel() for array in state.values())
    print(f"{problem.size:,} parameters in adapters, {whole:,} in the base")

    def trained(who: Any, method: Any, stepsize: float, **of: Any) -> sx.Record:
        plan = sx.plan(problem, who, stepsize=stepsize)
        return sx.run(problem, who, method(plan), cohort=asked.cohort, every=of["rounds"], **of)

    common = sx.personalize(problem, 1.0, optima=False)
    losses = {}
    for tried in asked.stepsizes:  # the test part has no say
        found = trained(common, sx.finetuning, tried, rounds=asked.trial, part="validation")
        losses[tried] = found.summary["scores"]["validation"]["personal"]["loss"]
        print(f"stepsize {tried:g}: validation loss {losses[tried]:.4f}", flush=True)
    stepsize = min(losses, key=losses.__getitem__)

    recipe = sx.Recipe(stepsize=stepsize, batch=20, steps=40)
    person = sx.personalize(problem, 0.5, recipe=recipe)
    records: dict[str, sx.Record] = {}
    for name, who, method in (
        ("FedAvg + fine-tuning", person.at(1.0), sx.finetuning),
        ("Scafflix, alpha 0.5", person, sx.scafflix),
    ):
        record = trained(who, method, stepsize, rounds=asked.rounds)
        records[name] = record
        seconds, metrics = record.summary["seconds"], record.metrics
        kilobytes = metrics["bits_up"][-1] / 8e3 / asked.rounds / asked.cohort
        print(f"\n{name}, {asked.rounds} rounds of {asked.cohort} clients, {seconds:.0f} s")
        print(f"a client sends {kilobytes:.1f} kB a round; the whole model has {whole / 250:,.0f}")
        found = record.summary["scores"]["test"]
        print(f"accuracy of the base      {metrics['test_global'][0]:.2%}")
        for kind in ("global", "local", "personal"):
            print(f"accuracy of {kind:8} adapters {found[kind]['examples']:.2%}")
    return records


if __name__ == "__main__":
    main()
