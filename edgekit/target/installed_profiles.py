"""The device profiles of the installed targets, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from edgekit.errors import ProfileError
from edgekit.target import registry
from edgekit.target.profile import Profile, parse_profile


def profile_names() -> dict[str, str]:
    """Profile name -> target name, for all installed targets; generic profiles first in each target."""
    names: dict[str, str] = {}
    for name in registry.target_names():
        profiles = _profiles_in(registry.target_package(name))
        for profile in sorted(profiles, key=lambda p, name=name: (p != name, p)):  # type: ignore[misc]
            names[profile] = name
    return names


@cache
def _profiles_in(package: str) -> tuple[str, ...]:
    """Return the names of the profiles in a target's package, which is listed once: it takes 1 ms."""
    folder = files(package) / "profiles"
    return tuple(p.name[: -len(".toml")] for p in folder.iterdir() if p.name.endswith(".toml"))


def find_profile(name: str) -> Profile:
    """Return the profile called ``name``.

    Raises:
        ProfileError: there is none, or its file is malformed.
    """
    names = profile_names()
    if name not in names:
        near = _near(name, names)
        other = (
            f"did you mean {near}? Run edgekit targets for a list"
            if near
            else f"available: {', '.join(names)}"
        )
        if "," in name:
            other = f"give each one separately: {' '.join(f'-t {part.strip()}' for part in name.split(','))}"
        raise ProfileError(f"unknown target {name!r}; {other}")
    text = (files(registry.target_package(names[name])) / "profiles" / f"{name}.toml").read_text("utf-8")
    return parse_profile(text, name, names[name])


def _near(name: str, names: Mapping[str, str]) -> str:
    """Return up to three similar profiles: the word is in their name or title, or is spelt alike."""
    import difflib  # only if a name is wrong

    word = _letters(name)
    near = [n for n in names if len(word) > 2 and word in _letters(n + find_profile(n).title)]
    near += [n for n in difflib.get_close_matches(name.lower(), names) if n not in near]
    return " or ".join(near[:3])


def _letters(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())
