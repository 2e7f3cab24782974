# Everything that a person or a machine runs here. Each target sets up what it needs in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COOKBOOK := build/cookbook/venv

.DEFAULT_GOAL := help
.PHONY: help demo demo-sim test lint format check bench nightly sdk cookbook gpu-check clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## three training jobs share two devices, then each runs alone; no GPU needed
	$(BIN)/python -m examples.three_jobs

demo-sim: $(READY) ## predict a recorded run under every policy, and run it live in virtual time
	@mkdir -p build
	$(BIN)/tsched demo

test: $(READY) ## run the tests
	$(BIN)/python -m pytest

lint: $(READY) ## check style, types and imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: ## lint, then test
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test

bench: $(READY) ## measure speed; prints ratios
	$(BIN)/python -m benchmarks

gpu-check: $(READY) ## on a machine with an NVIDIA GPU: park real models there, and compare
	$(BIN)/python -m benchmarks.gpu_check

nightly: $(READY) ## run all tests, with long searches
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -m 'nightly or not gpu' --timeout 14400

sdk: $(READY) ## run the tests of openrl that use the tinker SDK, in all its versions from 0.9 on
	$(BIN)/python -m pytest -m 'not gpu' tests/openrl/test_sdk.py tests/openrl/test_sdk_public_methods.py \
		tests/openrl/test_sdk_versions.py

cookbook: $(READY) $(COOKBOOK)/.ready ## run two recipes of tinker-cookbook against openrl: does what they train learn?
	$(BIN)/python -m benchmarks.cookbook

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Debian ships Python without ensurepip; then the pip beside it fills the environment, if there is one.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not; name one: make PYTHON=python3.11" >&2; exit 1; }
	@rm -rf $(VENV)
	@if $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null && $(PYTHON) -m venv $(VENV) >/dev/null 2>&1; then :; \
	elif $(PYTHON) -m venv --without-pip $(VENV) >/dev/null 2>&1 \
		&& $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check pip 2>/dev/null; then :; \
	else rm -rf $(VENV); \
		echo "Python's venv module is missing: apt install python3-venv (Debian 12: python3.11-venv), then run make again" >&2; \
		exit 1; fi

$(READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(COOKBOOK)/.ready: benchmarks/cookbook/requirements.txt | $(READY)
	@rm -rf $(COOKBOOK)
	@$(BIN)/python -m venv --without-pip $(COOKBOOK)
	@$(BIN)/python -m pip --python $(COOKBOOK)/bin/python install --quiet --disable-pip-version-check -r $<
	@$(BIN)/python -m pip --python $(COOKBOOK)/bin/python install --quiet --disable-pip-version-check --no-deps \
		tinker-cookbook==0.6.1 tml-renderers==0.2.1
	@touch $@
