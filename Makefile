# Targets create .venv from $(PYTHON) once and install the package with its development tools.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
READY := $(VENV)/.ready-$(VERSION)
PROMPT ?= What is 17 + 25?
# test files run side by side; a file stays with one worker, so what it compiles is compiled once
WORKERS ?= 2
PYTEST := $(PY) -m pytest -q -n $(WORKERS) --dist loadfile
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test slow bench lint types layers notebooks browser format clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(READY) ## the embedded model answers a question
	$(PY) -m ds_jax.run --mesh=ep1 --chat --thinking --prompt="$(PROMPT)" --max_tokens=96 --temperature=0

test: $(READY) ## fast tests
	$(PYTEST) $(PYTEST_ARGS)

slow: $(READY) ## tests of minutes
	$(PYTEST) -m slow $(PYTEST_ARGS)

bench: $(READY) ## speed on this machine
	$(PY) -m ds_jax.benchmark

lint: $(READY) ## style, types and import layers
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	@$(MAKE) --no-print-directory types layers

types: $(READY) ## type checks
	$(VENV)/bin/pyright --pythonpath $(PY)

layers: $(READY) ## an import may only point down
	$(VENV)/bin/lint-imports

notebooks: $(READY) ## execute the notebooks
	$(PY) -m pytest -q -n $(WORKERS) -m notebook $(PYTEST_ARGS)

browser: $(READY) ## the playground in Chromium
	$(PY) -m pytest -q -m browser tests/serving $(PYTEST_ARGS)

format: $(READY) ## format the code
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

clean: ## remove what the targets made
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .import_linter_cache

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is Python $(VERSION); 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	@test -e $@ || rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
