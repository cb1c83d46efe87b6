# Tasks of a developer, in the environment of the README's second command (or: make PYTHON=python3 test).
PYTHON ?= .venv/bin/python
WORKERS ?= 2

.PHONY: help test tiny slow lint format types docs bench

help:
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

test: ## what the README's second command runs: the suite without slow tests, with lint
	$(PYTHON) -m pytest -n $(WORKERS)

tiny: ## the whole path in under a minute: three engines, an array, a photograph, a token, a server
	$(PYTHON) -m pytest -q tests/test_tiny.py

slow: ## the slow tests, which .ci/run runs after the others (make types: types on three systems)
	$(PYTHON) -m pytest -n $(WORKERS) -m slow

lint: ## ruff
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format: ## ruff, mending what it can
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

types: ## mypy, for this system and for Windows and macOS
	$(PYTHON) -m mypy --platform linux edgekit targets tests samples
	$(PYTHON) -m mypy --platform win32 --cache-dir .mypy_cache/win32 edgekit targets
	$(PYTHON) -m mypy --platform darwin --cache-dir .mypy_cache/darwin edgekit targets

docs: ## the site, in build/docs/site
	docs/build-site

bench: ## one benchmark: make bench NAME=bench_overhead ARGS="..."
	$(PYTHON) tests/benchmarks/$(NAME).py $(ARGS)
