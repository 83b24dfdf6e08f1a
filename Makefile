# The two commands of the project are `make run` and `make test`; both install what they need into $(VENV) first.
#
#   make run  ARGS="--scale smoke"      the experiment, with flags
#   make test PYTEST="-k storage -x"    the tests, with flags of pytest
#   make test SLOW=1                    the slow ones too, as CI does: campaigns, emulators, several nodes
#   make lint                           ruff, mypy and the layers contract
#   make format                         let ruff rewrite what it can
#   make constraints                    resolve pyproject.toml anew into constraints.txt
#   make clean                          remove the environment and the caches; artifacts stay

VENV ?= .venv
BIN := $(VENV)/bin
# 3.11 first: it is the version that the project is developed and tested on.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
ARGS ?=
PYTEST ?=
SLOW ?=
QUICK := $(if $(SLOW),, and not slow)

.PHONY: run test lint format install install-test install-dev constraints clean
.DEFAULT_GOAL := run

run: install
	@$(BIN)/python experiments/exp_535b.py $(ARGS)

# First what needs no Ray, a process for each core; then what shares one Ray. Exit code 5 is "no such test in this half".
test: install-test
	$(BIN)/python -m pytest -m "not ray$(QUICK)" -n auto --maxprocesses 8 --dist loadfile $(PYTEST) || [ $$? = 5 ]
	$(BIN)/python -m pytest -m "ray$(QUICK)" $(PYTEST) || [ $$? = 5 ]

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(VENV)/.installed
install-test: $(VENV)/.installed-test
install-dev: $(VENV)/.installed-dev

# A stamp says "these extras are in, as pyproject.toml and constraints.txt want them"; dev includes test includes none.
$(VENV)/.installed: pyproject.toml constraints.txt infra/install.sh | $(BIN)/python
	@sh infra/install.sh $(BIN)/python .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt infra/install.sh | $(BIN)/python
	@sh infra/install.sh $(BIN)/python '.[test]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt infra/install.sh | $(BIN)/python
	@sh infra/install.sh $(BIN)/python '.[test,dev]'
	@touch $(VENV)/.installed $(VENV)/.installed-test $@

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "marin needs Python 3.11 or later, and none of python3.11, python3.12, python3.13, python3 is one;" \
			"name yours: make PYTHON=/path/to/python" >&2; exit 1; fi
	@"$(PYTHON)" -m venv "$(VENV)" || { \
		echo "$(PYTHON) could not make a virtual environment (on Debian: apt-get install python3-venv)" >&2; exit 1; }

# The local part of a version (torch's +cpu) is cut off, so that the file fits every index.
constraints: $(BIN)/python
	@$(BIN)/python -m pip install -qq uv
	@set --; for place in $$PIP_FIND_LINKS; do set -- "$$@" --find-links "$$place"; done; \
	$(BIN)/uv pip compile "$$@" --quiet --upgrade --no-header --no-annotate --extra test --extra dev --extra wandb \
		--python-version 3.11 pyproject.toml >constraints.new
	@{ sed '/^[^#]/,$$d' constraints.txt; \
		sed -n 's/^\([A-Za-z0-9._-]*==[^+ ;]*\).*/\1/p' constraints.new; } >constraints.next
	@mv constraints.next constraints.txt; rm constraints.new

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build
	find . -name __pycache__ -not -path './artifacts/*' -prune -exec rm -rf {} +
