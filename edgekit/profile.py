"""Device profiles: what is known of a target or a device, each fact with its source.

A profile is a TOML file in the ``profiles`` folder of a target's package; the file's name is the profile's.
The one that is called like the target (``tflite``) is its generic profile.

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

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from edgekit import target
from edgekit.errors import MissingDependency, ProfileError

FACTS: Mapping[str, tuple[type, str]] = {
    "arch": (str, ""),  # machine as platform.machine() names it
    "isa": (list, ""),  # instruction set extensions that matter to the engine
    "cores": (int, ""),
    "memory": (int, "MB"),
    "os": (str, ""),
    "delegates": (list, ""),  # accelerators the engine can hand nodes to
    "gpu": (str, ""),
    "compute_capability": (str, ""),  # of an NVIDIA GPU, e.g. "8.7"
    "dla_cores": (int, ""),  # NVIDIA's fixed-function accelerators beside the GPU
    "precisions": (list, ""),  # what the chip multiplies fast
    "jetpack": (list, ""),  # JetPack releases, each with the versions of what matters in it
    "python": (str, ""),  # versions of CPython that have the engine's wheel
}
"""Fact -> its type and unit. A fact that is not here is refused: a misspelt one would be lost in silence."""


@dataclass(frozen=True)
class Fact:
    """One fact about a device: its value, its unit ("" where it has none) and where it is written."""

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

    def as_json(self) -> dict[str, Any]:
        facts = {k: {"value": f.value, "unit": f.unit, "source": f.source} for k, f in self.facts.items()}
        return {"name": self.name, "target": self.target, "title": self.title, "facts": facts}


def profile_names() -> dict[str, str]:
    """Profile name -> target name, for all installed targets; generic profiles first in each target."""
    names: dict[str, str] = {}
    for name in target.target_names():
        folder = files(target.target_package(name)) / "profiles"
        found = sorted(p.name[: -len(".toml")] for p in folder.iterdir() if p.name.endswith(".toml"))
        for profile in sorted(found, key=lambda p, name=name: (p != name, p)):  # type: ignore[misc]
            names[profile] = name
    return names


def find_profile(name: str) -> Profile:
    """The profile called ``name``.

    Raises:
        ProfileError: there is none, or its file is malformed.
    """
    names = profile_names()
    if name not in names:
        near = _near(name, names)
        other = f"did you mean {near}? edgekit targets lists all" if near else f"there are {', '.join(names)}"
        if "," in name:
            other = f"give each by itself: {' '.join(f'-t {part.strip()}' for part in name.split(','))}"
        raise ProfileError(f"no target or device profile is called {name!r}; {other}")
    text = (files(target.target_package(names[name])) / "profiles" / f"{name}.toml").read_text("utf-8")
    return parse_profile(text, name, names[name])


def _near(name: str, names: Mapping[str, str]) -> str:
    """Up to three profiles that may be meant: with the word in their name or title, then written alike."""
    import difflib  # only where a name is wrong

    word = _letters(name)
    near = [n for n in names if len(word) > 2 and word in _letters(n + find_profile(n).title)]
    near += [n for n in difflib.get_close_matches(name.lower(), names) if n not in near]
    return " or ".join(near[:3])


def _letters(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


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
            raise ProfileError(f"profile {name}: fact {key!r} is unknown; there are {', '.join(FACTS)}")
        kind, unit = FACTS[key]
        if not isinstance(fact, dict) or not isinstance(fact.get("value"), kind):
            raise ProfileError(f"profile {name}: facts.{key}.value must be a {kind.__name__}")
        if fact.get("unit", "") != unit:
            raise ProfileError(f"profile {name}: facts.{key}.unit must be {unit!r}")
        if not fact.get("source"):
            raise ProfileError(f"profile {name}: facts.{key} has no source")
        facts[key] = Fact(fact["value"], unit, fact["source"])
    return Profile(name, target_name, table["title"], facts)


def load_toml(text: str, what: str, error: type[Exception]) -> dict[str, Any]:
    """Parse TOML, on CPython 3.10 with tomli. Host side: a bundle carries its card and profiles as JSON.

    Raises:
        error: the text is not TOML, or holds numbers beyond 64 bits; the message names ``what`` and the line.
        MissingDependency: CPython 3.10 without tomli.
    """
    try:
        import tomllib
    except ModuleNotFoundError:
        try:
            import tomli as tomllib  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ModuleNotFoundError:
            raise MissingDependency("tomli", "reading TOML on Python 3.10", "pip install tomli") from None
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise error(f"{what} is not valid TOML: its lists or tables are nested too deep") from None
    except ValueError as problem:  # TOMLDecodeError, and what int() and datetime say
        why = "a number of thousands of digits" if "integer string conversion" in str(problem) else problem
        raise error(f"{what} is not valid TOML: {why}") from None
    _within_64_bits(table, what, error)
    return table


def _within_64_bits(value: Any, what: str, error: type[Exception]) -> None:
    """TOML 1.0: an integer that 64 bits do not hold is an error. Python takes one of a million digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise error(f"{what} is not valid TOML: a whole number of {value.bit_length()} bits; 64 are allowed")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _within_64_bits(inner, what, error)
