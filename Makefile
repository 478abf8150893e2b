# Two commands: `make demo` shows it, `make test` proves it.
# Each makes its own .venv when pyproject.toml or the pins are newer than it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
PINS   := constraints/cpu.txt

# Debian splits ensurepip off into python3-venv; without it, the system's pip fills the new venv
BARE_VENV = { $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	$(PYTHON) -m pip --quiet --python $(BIN)/python install --disable-pip-version-check pip; }

.DEFAULT_GOAL := help
.PHONY: help demo test check pages clean

help:
	@echo "make demo    the main job on a small example, into out/demo"
	@echo "make test    every test, in two workers"
	@echo "make check   lint, format, types"
	@echo "make pages   docs/claims.md and docs/gallery.md, of the results in docs/results"
	@echo "make clean   remove what the others made"

$(STAMP): pyproject.toml $(PINS)
	@echo "making $(VENV) with the pins of $(PINS)"
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || $(BARE_VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) -e '.[test,check,plots]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/chiaro demo --out out/demo

# one torch thread per worker: two workers already fill two cores
test: $(STAMP)
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

check: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@echo "check: lint, format and types are clean"

pages: $(STAMP)
	@$(BIN)/python -m chiaroscuro.labs.pages docs

clean:
	@rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
