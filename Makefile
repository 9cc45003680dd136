# Each target does its own set-up: a virtual environment, pinned packages, tshark, the ClickHouse engines.
# ARGS passes arguments on: make repro ARGS="--rtt 80ms --initcwnd 6". PYTHON names an interpreter (3.11 to 3.13).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
STAMP := $(VENV)/.stamp-$(VERSION)
export PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: repro test check golden bench lock clean help setup engines tools test-tools
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## Say what each target does
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

repro: tools setup engines ## Reproduce the stall on ClickHouse 26.7 and 26.9, 32 ms away
	$(BIN)/netlab repro --rtt 32ms --initcwnd 8 $(ARGS)

test: test-tools setup engines check ## Pass every test
	$(BIN)/python -m pytest $(ARGS)

check: tools setup ## Style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

golden: tools setup engines ## Remake the golden captures and what is derived from them
	$(BIN)/python tests/golden/remake.py $(ARGS)

bench: test-tools setup engines ## Measure speeds and errors; these have upper bounds, so they are not tests
	$(BIN)/python -m pytest tests/bench -s --override-ini norecursedirs= $(ARGS)

lock: setup ## Pin the newest packages that pyproject.toml allows, with hashes, in requirements.txt
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet uv
	echo 'setuptools>=77' | $(VENV)/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--all-extras --generate-hashes --no-annotate --no-header --output-file requirements.txt pyproject.toml -

setup: $(STAMP)

$(STAMP): requirements.txt pyproject.toml
	@$(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(VERSION)")' 2>/dev/null \
		|| $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.stamp-* && touch $@

engines:
	@$(BIN)/netlab engine install

tools:
	@sh .ci/system tshark

test-tools:
	@sh .ci/system tshark clickhouse-client clickhouse-server

clean: ## Remove what building and testing made; engines stay in the cache (netlab engine remove)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find reports -mindepth 1 -maxdepth 1 ! -name example -exec rm -rf {} +
