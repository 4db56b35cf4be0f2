# The front door. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup build run test lint clean
help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --upgrade pip setuptools
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

setup: $(VENV)/.stamp ## the Python environment in .venv

build: setup ## compile the library, the simulated driver and the load generator
	$(BIN)/python -m libhook.build

test: build ## all tests that need neither a GPU nor a control plane
	$(BIN)/python -m pytest -q

clean: ## remove what was built
	rm -rf $(VENV) build libhook/lib libhook/_core_api* libhook/_core_abi*
