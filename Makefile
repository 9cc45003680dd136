# Each target does its own set-up: a virtual environment, pinned packages, tshark, the ClickHouse engines.
# ARGS passes arguments on: make repro ARGS="--rtt 80ms --initcwnd 6"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: repro test check golden bench clean help setup system engines
.DEFAULT_GOAL := help

help: ## Say what each target does
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

repro: setup engines ## Reproduce the stall on ClickHouse 26.7 and 26.9, 32 ms away
	$(BIN)/netlab repro --rtt 32ms --initcwnd 8 $(ARGS)

test: setup engines check ## Pass every test
	$(BIN)/python -m pytest $(ARGS)

check: setup ## Style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

golden: setup engines ## Remake the golden captures and what is derived from them
	$(BIN)/python tests/golden/remake.py $(ARGS)

bench: setup engines ## Measure speeds and errors; these have upper bounds, so they are not tests
	$(BIN)/python -m pytest tests/bench -s --override-ini norecursedirs= $(ARGS)

setup: system $(VENV)/.stamp

engines: $(VENV)/.stamp
	@$(BIN)/netlab engine install

system:
	@PYTHON="$(PYTHON)" sh .ci/system

$(VENV)/.stamp: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

clean: ## Remove what building and testing made; engines stay in the cache (netlab engine remove)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find reports -mindepth 1 -maxdepth 1 ! -name example -exec rm -rf {} +
