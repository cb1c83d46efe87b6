"""False hits of the semantic cache on sentences of Home Assistant's English templates, and the time of a hit.

    pip install hassil home-assistant-intents
    python -m tests.benchmarks.bench_text_cache ENCODER.edgekit

Commands of different kinds (intent, and names of its slots) are asked by a Zipf-like law, each time in one of
its sentences. The answer is the intent with its slots. Half of a recording chooses the limit, half tests it;
then 6,000 more are asked.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from typing import Any

import numpy as np
from hassil import expression as parts  # type: ignore[import-not-found,unused-ignore]
from hassil.intents import Intents, RangeSlotList, TextSlotList  # type: ignore[import-not-found,unused-ignore]
from home_assistant_intents import get_intents  # type: ignore[import-not-found,unused-ignore]

from edgekit.runtime import Session, Similar, measure_similarity

WORDS = {
    "area": "kitchen,living room,bedroom,bathroom,garage,office,hallway,garden,attic,basement,nursery",
    "name": "ceiling light,desk lamp,coffee machine,tv,heater,fan,blinds,front door,radio,washing machine",
    "floor": "first floor,ground floor,upstairs",
    "": "milk,eggs,bread,apples,coffee,tomatoes,soap,batteries,paper towels,cheese",
}
SAMPLES, LEAST_SENTENCES = 150_000, 8
Key = tuple[str, tuple[tuple[str, str], ...]]


class Assistant:
    """Answers by the templates."""

    active = "templates"

    def __init__(self, bundle: Any, answers: dict[str, Key]) -> None:
        self.bundle, self._answers = bundle, answers

    def predict(self, text: str) -> str:
        return repr(self._answers[text])


def expanded(part: Any, rules: Any, lists: Any, draw: random.Random, slots: dict[str, str]) -> str:
    """Return a random text of a template; writes its slots."""
    if isinstance(part, parts.TextChunk):
        return str(part.text)
    if isinstance(part, parts.RuleReference):
        return expanded(rules[part.rule_name], rules, lists, draw, slots)
    if isinstance(part, parts.ListReference):
        known = lists.get(part.list_name)
        if isinstance(known, RangeSlotList):
            last = max(known.start, min(known.stop, 100))
            text = value = str(draw.randrange(known.start, last + 1, max(1, known.step)))
        elif isinstance(known, TextSlotList) and part.list_name not in WORDS:
            chosen = draw.choice(known.values)
            text, value = expanded(chosen.text_in, rules, lists, draw, {}), str(chosen.value_out)
        else:
            text = value = draw.choice(WORDS.get(part.list_name, WORDS[""]).split(","))
        slots[part.slot_name] = value
        return text
    if hasattr(part, "expression"):
        return expanded(part.expression, rules, lists, draw, slots)
    items = [draw.choice(part.items)] if isinstance(part, parts.Alternative) else list(part.items)
    if isinstance(part, parts.Permutation):
        draw.shuffle(items)
    between = " " if isinstance(part, parts.Permutation) else ""
    return between.join(expanded(item, rules, lists, draw, slots) for item in items)


def sentences(draw: random.Random) -> dict[Key, list[str]]:
    """Return commands with their sentences."""
    intents = Intents.from_dict({"language": "en", **get_intents("en")})
    blocks = [
        (name, data, sentence)
        for name, intent in intents.intents.items()
        if name not in ("HassRespond", "HassNevermind", "HassBroadcast")
        for data in intent.data
        for sentence in data.sentences
    ]
    found: dict[Key, set[str]] = defaultdict(set)
    for _ in range(SAMPLES):
        name, data, sentence = draw.choice(blocks)
        slots = dict(data.slots or {})
        rules = {**intents.expansion_rules, **(data.expansion_rules or {})}
        text = " ".join(expanded(sentence, rules, intents.slot_lists, draw, slots).split())
        found[name, tuple(sorted((slot, str(value)) for slot, value in slots.items()))].add(text)
    return {key: sorted(texts) for key, texts in found.items() if len(texts) >= LEAST_SENTENCES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder")
    parser.add_argument("--commands", type=int, nargs="*", default=[30, 60])
    parser.add_argument("--recorded", type=int, default=3000)
    options = parser.parse_args()
    pool = sentences(random.Random(5))
    keys = sorted(pool)
    random.Random(5).shuffle(keys)
    kinds: dict[Any, Key] = {}
    for name, slots in keys:
        kinds.setdefault((name, tuple(slot for slot, _ in slots)), (name, slots))
    with Session(options.encoder, threads=1) as encoder:
        for commands in options.commands:
            _commands(encoder, {key: pool[key] for key in list(kinds.values())[:commands]}, options.recorded)
        _commands(encoder, {key: pool[key] for key in keys[:300]}, options.recorded)  # that differ in a word


def _stream(pool: dict[Key, list[str]], count: int, seed: int) -> list[str]:
    draw, weights = random.Random(seed), [1 / (n + 1) ** 0.7 for n in range(len(pool))]
    return [draw.choice(pool[key]) for key in draw.choices(list(pool), weights, k=count)]


def _commands(encoder: Session, pool: dict[Key, list[str]], recorded: int) -> None:
    answers = {text: key for key, texts in pool.items() for text in texts}
    assistant: Any = Assistant(encoder.bundle, answers)
    permit = measure_similarity(assistant, _stream(pool, recorded, 1), embedder=encoder)
    print(f"{len(pool)} commands: {permit}; limit {permit.limit:.3f}, {permit.references} references")
    if not permit.granted:
        return
    similar, seen, hits, false = Similar(assistant, permit, embedder=encoder), set[str](), 0, 0
    times = list[float]()
    for text in _stream(pool, 6000, 2):
        before, began_s = similar.hits, time.process_time()
        answer = similar.predict(text)
        took_s, is_hit = time.process_time() - began_s, similar.hits > before
        if is_hit and text not in seen:
            times.append(took_s)
            hits += 1
            false += answer != repr(answers[text])
        seen.add(text)
    print(f"  6000 more: {len(seen)} texts, {hits} similar to an earlier one, {false} of them false")
    print(f"  such a hit: {1000 * float(np.quantile(times, 0.25)):.3f} ms of processor time (low quartile)")


if __name__ == "__main__":
    main()
