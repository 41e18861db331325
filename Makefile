# Two commands set everything up on a machine with Python 3.11 or newer:  make run  and  make test
.DEFAULT_GOAL := help
.PHONY: help cpu run check test test-ci test-all lint docs records licenses wheel-check bench clean

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
BIN := .venv/bin
# Tests start hundreds of processes of ablate: each would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer was found; install one, or: make PYTHON=/path/to/python3.11 run"; exit 2; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing ablate and torch into .venv: minutes, and gigabytes unless 'make cpu' ran before (README.md, Install)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gpt]'
	@touch $@

.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing ablate, torch and what tests need into .venv: minutes, and gigabytes unless 'make cpu' ran before"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[gpt,dev]'
	@touch .venv/.installed $@

cpu: .venv/bin/python ## First, on Linux without a GPU: install torch without its 3 GB of CUDA libraries
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --torch-backend cpu -c constraints.txt torch \
		|| echo "PyTorch's CPU builds could not be installed; what follows takes the build that pip takes by itself"

run: .venv/.installed ## Set up, run the quickstart study from declaration to verdict, say where the report is
	$(BIN)/ablate run studies/quickstart.yaml
	@$(BIN)/ablate decide studies/quickstart.yaml || test $$? -eq 3

check: lint test ## Before each commit: style, types and the fast tests

test: .venv/.installed-dev ## Run the fast tests (under two minutes on two cores)
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

# Tests of faults and clusters wait for processes most of their time: two workers a core, each bound to one core.
test-ci: .venv/.installed-dev ## Run the slow ones too: faults, clusters, browser, LaTeX, wheel; no simulation
	@echo "left out: tests marked simulation or long; 'make test-all' runs them; last result: reports/bench/simulations.md"
	$(BIN)/python -m pytest -n $$(( 2 * $$(nproc) )) --dist loadfile -m "not simulation and not long"

test-all: .venv/.installed-dev ## Run every test, as before a release, and write reports/bench/simulations.md
	RECORD_SIMULATIONS=reports/bench/simulations.md RECORD_COMMIT="$$(git log -1 --format='%h of %cs')" \
		$(BIN)/python -m pytest -n auto --dist loadfile

lint: .venv/.installed-dev ## Style and types
	$(BIN)/ruff check prereg ablate benchmarks docs tests
	$(BIN)/ruff format --check --quiet prereg ablate benchmarks docs tests
	$(BIN)/mypy

docs: .venv/.installed-dev ## Build the documentation into build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . build/docs
	@echo "build/docs/index.html"

records: .venv/.installed ## Judge public records again: writes examples/records/README.md
	$(BIN)/python -m examples.records.judge_again

licenses: .venv/.installed-dev ## Write docs/licenses.md from what is installed
	$(BIN)/python tests/licenses.py

wheel-check: .venv/.installed ## Build the wheel and try it in an empty environment; PYTHONS="python3.11 python3.12" EXTRA=gpt
	$(BIN)/python tests/wheel_check.py $(if $(EXTRA),--extra $(EXTRA)) $(or $(PYTHONS),$(PYTHON))

bench: .venv/.installed-dev ## Measure the promises of performance; NANOGPT=path/to/clone adds the peer
	$(BIN)/python -m benchmarks

clean: ## Remove the environment and caches; never records, locks or the ledger
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
