"""Packages of the two roots: setup.cfg, which has the rest, can name one root only."""

from setuptools import find_packages, setup

TARGETS = find_packages("targets")

setup(
    packages=[*find_packages(include=["edgekit*"]), *TARGETS],
    package_dir={name: f"targets/{name}" for name in TARGETS if "." not in name},
)
