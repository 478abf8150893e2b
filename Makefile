# Two commands: `make demo` shows it, `make test` proves it.
# Each makes its own .venv when pyproject.toml or the pins are newer than it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
PINS   := constraints/cpu.txt
DOCS   := $(VENV)/.docs

# a second environment, with every optional package
XVENV  := .venv-extras
XBIN   := $(XVENV)/bin
XSTAMP := $(XVENV)/.stamp
XPINS  := constraints/extras.txt
EXTRAS := datasets faiss jpeg maps mlflow notebook onnx parquet polars ray tensorboard timm torchvision \
	transformers umap wandb webdataset word2vec

# Debian splits ensurepip off into python3-venv; without it, the system's pip fills the new venv
MAKE_VENV = $(PYTHON) -m venv --clear $(1) >/dev/null 2>&1 || \
	{ $(PYTHON) -m venv --clear --without-pip $(1) && \
	$(PYTHON) -m pip --quiet --python $(1)/bin/python install --disable-pip-version-check pip; }

# the pins with their sha256 first, then the package itself and whatever it still lacks: nothing,
# but for the CUDA libraries of a torch from PyPI
PIP     = -m pip install --quiet --disable-pip-version-check
PINNED  = $(PIP) --no-deps --require-hashes
# torch without CUDA if pip finds it, else that of PyPI; either is checked
TORCH   = $(PINNED) -r constraints/torch-cpu.txt 2>/dev/null || \
	$(1)/python $(PINNED) -r constraints/torch.txt
OWN     = $(PIP) --no-build-isolation -e

.DEFAULT_GOAL := help
.PHONY: help demo test test-extras check pages docs pins clean

help:
	@echo "make demo    the main job on a small example, into out/demo"
	@echo "make test    every test but those of optional packages, in two workers"
	@echo "make test-extras   the tests of optional packages, in an environment that has them all"
	@echo "make check   lint, format, types"
	@echo "make pages   claims.md, gallery.md and verdicts.md in docs, of the results in docs/results"
	@echo "make docs    the documentation, as static files, into site"
	@echo "make pins    the sha256 of every pinned file, from PyPI"
	@echo "make clean   remove what the others made"

$(STAMP): pyproject.toml $(wildcard constraints/*.txt)
	@echo "making $(VENV) with the pins of $(PINS)"
	@$(call MAKE_VENV,$(VENV))
	@$(BIN)/python $(call TORCH,$(BIN))
	@$(BIN)/python $(PINNED) -r $(PINS)
	@$(BIN)/python $(OWN) '.[test,check,plots]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/chiaro demo --out out/demo

# one torch thread per worker: two workers already fill two cores; each begins with half of the
# files, so that what a file prepares is prepared once
test: $(STAMP)
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

# all extras at once; if that fails, one by one, and those that fail alone are listed by name
$(XSTAMP): pyproject.toml $(wildcard constraints/*.txt)
	@echo "making $(XVENV) with the pins of $(PINS) and $(XPINS)"
	@$(call MAKE_VENV,$(XVENV))
	@$(XBIN)/python $(call TORCH,$(XBIN))
	@$(XBIN)/python $(PINNED) -r $(PINS)
	@$(XBIN)/python $(PINNED) -r $(XPINS) && $(XBIN)/python $(OWN) '.[test,plots,all]' || { \
		sed -e '/--hash/d' -e 's/ .$$//' constraints/torch.txt $(PINS) $(XPINS) \
			> $(XVENV)/versions.txt; \
		$(XBIN)/python $(OWN) '.[test,plots]' && for extra in $(EXTRAS); do \
			$(XBIN)/python $(OWN) ".[$$extra]" -c $(XVENV)/versions.txt || \
				echo $$extra >> $(XVENV)/missing-extras.txt; \
		done; }
	@touch $@

test-extras: $(XSTAMP)
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 WANDB_MODE=offline HF_HUB_OFFLINE=1 \
		$(XBIN)/python -m pytest -q -n 2 --dist worksteal --extras tests

check: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@echo "check: lint, format and types are clean"

pages: $(STAMP)
	@$(BIN)/python -m chiaroscuro.labs.pages docs

$(DOCS): $(STAMP) constraints/docs.txt
	@$(BIN)/python $(PINNED) -r constraints/docs.txt
	@$(BIN)/python $(OWN) '.[docs]'
	@touch $@

docs: $(DOCS)
	@$(BIN)/mkdocs --quiet build --strict
	@echo "docs: site/index.html"

pins:
	@$(PYTHON) .ci/pin $(PINS) $(XPINS) constraints/docs.txt constraints/torch.txt

clean:
	@rm -rf $(VENV) $(XVENV) site out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
