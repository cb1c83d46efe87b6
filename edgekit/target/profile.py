"""Device profiles: facts about a target or a device, each with its source.

A profile is a TOML file in the ``profiles`` folder of a target's package; the file's name is the profile's.
The one with the target's name (``tflite``) is its generic profile.

    title = "Raspberry Pi 5"
    [facts.arch]
    value = "aarch64"
    source = "https://..."
    [facts.memory]
    value = 8192
    unit = "MB"
    source = "https://..."
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.errors import ProfileError
from edgekit.system.formats.strict_tables import load_toml
from edgekit.target.precisions import FULL_PRECISION, precision_of

FACTS: Mapping[str, tuple[type, str]] = {
    "arch": (str, ""),  # machine as platform.machine() names it
    "cpu": (str, ""),  # its core, as qemu and compilers name it, e.g. "cortex-a76"
    "isa": (list, ""),  # instruction set extensions that matter to the engine
    "cores": (int, ""),
    "memory": (int, "MB"),
    "ram": (int, "KiB"),  # of a small device: a variant that needs more is rejected
    "flash": (int, "KiB"),  # the same
    "accelerator": (str, ""),  # what its compiler calls it
    "compile_options": (list, ""),  # of that compiler, each "name=value"
    "os": (str, ""),
    "delegates": (list, ""),  # accelerators the engine can hand nodes to
    "gpu": (str, ""),
    "compute_capability": (str, ""),  # of an NVIDIA GPU, e.g. "8.7"
    "dla_cores": (int, ""),  # NVIDIA's fixed-function accelerators next to the GPU
    "precisions": (list, ""),  # what the chip multiplies fast
    "precision": (str, ""),  # float precision of a build without --precision, if it is not fp32
    "jetpack": (list, ""),  # JetPack releases, each with the versions of what matters in it
    "python": (str, ""),  # versions of CPython that have the engine's wheel
}
"""Fact -> its type and unit. Unknown facts are refused, because a misspelt one would be ignored silently."""


@dataclass(frozen=True)
class Fact:
    """One fact about a device: its value, its unit ("" if it has none) and its source."""

    value: Any
    unit: str
    source: str


@dataclass(frozen=True)
class Profile:
    """A target (``tflite``) or a device (``rpi5``) to build for."""

    name: str
    target: str
    title: str
    facts: Mapping[str, Fact]

    @property
    def own_precision(self) -> str:
        """Return the float precision that it is built in if the user requests none."""
        return str(self.facts["precision"].value) if "precision" in self.facts else FULL_PRECISION

    def as_json(self) -> dict[str, Any]:
        facts = {k: {"value": f.value, "unit": f.unit, "source": f.source} for k, f in self.facts.items()}
        return {"name": self.name, "target": self.target, "title": self.title, "facts": facts}


def parse_profile(text: str, name: str, target_name: str) -> Profile:
    """Read one profile.

    >>> text = 'title = "A board"\\n[facts.cores]\\nvalue = 4\\nsource = "its manual"'
    >>> dict(parse_profile(text, "b", "tflite").facts)
    {'cores': Fact(value=4, unit='', source='its manual')}

    Raises:
        ProfileError: the text is not TOML, or a fact is unknown, of a wrong type or without a source.
    """
    table = load_toml(text, f"profile {name}", ProfileError)
    unknown = sorted(set(table) - {"title", "facts"})
    if unknown or not isinstance(table.get("title"), str):
        raise ProfileError(
            f"profile {name}: needs a title and facts, and has {', '.join(unknown) or 'no title'}"
        )
    facts = {}
    for key, fact in table.get("facts", {}).items():
        if key not in FACTS:
            raise ProfileError(f"profile {name}: fact {key!r} is unknown; available: {', '.join(FACTS)}")
        kind, unit = FACTS[key]
        if not isinstance(fact, dict) or not isinstance(fact.get("value"), kind):
            raise ProfileError(f"profile {name}: facts.{key}.value must be a {kind.__name__}")
        if fact.get("unit", "") != unit:
            raise ProfileError(f"profile {name}: facts.{key}.unit must be {unit!r}")
        if not fact.get("source"):
            raise ProfileError(f"profile {name}: facts.{key} has no source")
        if key == "precision" and not precision_of(fact["value"]).is_float:
            raise ProfileError(f"profile {name}: facts.precision.value must be a float precision, e.g. fp16")
        facts[key] = Fact(fact["value"], unit, fact["source"])
    return Profile(name, target_name, table["title"], facts)
