# The front door. `make help` lists the targets. Needs python3 (3.11 or later, with venv), gcc and make; PyPI for the rest.
PYTHON ?= python3
IMAGE ?= gemini
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -q --disable-pip-version-check --no-input
PINNED := install -c constraints.txt
C_FILES = $(shell find libhook $(wildcard tests bench) -name '*.[ch]' | sort)
# Most tests wait most of the time: JOBS=3 runs three files of them at once, and what judges shares or figures of time
# (marked alone or flaky) after that. Their folder has a short name, for sockets lie in there.
JOBS ?= 1
HERE = not e2e and not frameworks
PY_DIRS = gemini scheduler_backend libhook $(wildcard bench)

.DEFAULT_GOAL := help
.PHONY: help setup build run test test-together test-alone quick e2e e2e-setup frameworks pictures lint format docs cuda-check sanitize bench gpu-check gpu-bundle wheel image version clean
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.stamp: pyproject.toml constraints.txt setup.py
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "gemini: $(PYTHON) is older than 3.11 or has no venv; install python3-venv, or say PYTHON=python3.12" >&2; exit 1; }
	@echo "  VENV $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "  PIP  setuptools, cffi"
	@$(PIP) $(PINNED) 'setuptools>=80,<85' cffi
	@echo "  PIP  gemini-gpu[dev] and what it needs"
	@GEMINI_SKIP_C=1 $(PIP) $(PINNED) --no-build-isolation -e '.[dev]'
	@touch $@

$(VENV)/.stamp-clients: $(VENV)/.stamp
	@echo "  PIP  NVIDIA's own clients of the driver, for the tests"
	@$(PIP) $(PINNED) setuptools-scm  # gpustat is published as source only, and is built with it
	@GEMINI_SKIP_C=1 $(PIP) $(PINNED) --no-build-isolation -e '.[clients]'
	@touch $@

$(VENV)/.stamp-headers: $(VENV)/.stamp tests/headers/fetch.py
	@echo "  GET  CUDA's headers, for the tests"
	@$(BIN)/python -m tests.headers.fetch
	@touch $@

$(VENV)/.stamp-prometheus: $(VENV)/.stamp tests/e2e/build.py
	@$(BIN)/python -m tests.e2e.build prometheus && touch $@ || echo "gemini: the tests with Prometheus are left out" >&2

setup: $(VENV)/.stamp ## the Python environment in .venv

$(VENV)/.stamp-docs: $(VENV)/.stamp
	@echo "  PIP  the generator of the documentation"
	@GEMINI_SKIP_C=1 $(PIP) $(PINNED) --no-build-isolation -e '.[docs]'
	@touch $@

build: setup ## compile the library, the simulated driver and the load generator
	@$(BIN)/python -m libhook.build

run: build ## three tenants share the GPU (a simulated one where there is none); ARGS="--seconds 10 --tenants a:0.7,b:0.3"
	@$(BIN)/gemini demo --plot out/demo.png --json out/demo.json $(ARGS)

TEST_NEEDS = build $(VENV)/.stamp-clients $(VENV)/.stamp-headers $(VENV)/.stamp-docs $(VENV)/.stamp-prometheus
test: $(TEST_NEEDS) ## all tests that need neither a GPU nor a control plane; ARGS="tests/gemini/cli -x" for some
ifeq ($(JOBS),1)
	@$(BIN)/python -m pytest -q $(ARGS)
else
	@status=0; $(MAKE) --no-print-directory test-together || status=$$?; \
	  $(MAKE) --no-print-directory test-alone || status=$$?; exit $$status
endif

test-together: $(TEST_NEEDS) # of `make test` what judges no figure of time; others may work meanwhile
ifeq ($(JOBS),1)
	@$(BIN)/python -m pytest -q -m "not alone and not flaky and $(HERE)" $(ARGS)
else
	@folder=$$(mktemp -d /tmp/t.XXXX); \
	  $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --basetemp=$$folder/t -m "not alone and not flaky and $(HERE)" $(ARGS) \
	  && rm -rf $$folder
endif

test-alone: $(TEST_NEEDS) # the rest of it
	@$(BIN)/python -m pytest -q -m "(alone or flaky) and $(HERE)" $(ARGS)

quick: setup ## some tests of Python without compiling it first; ARGS="tests/scheduler_backend/core/test_quota.py"
	@$(BIN)/python -m libhook.compiled --remove
	@$(BIN)/python -m pytest -q $(ARGS)

e2e-setup: setup # compiles Kubernetes once, into the user's cache
	@$(BIN)/python -m tests.e2e.build

e2e: build e2e-setup ## the tests with a real Kubernetes (builds it first: needs Go); JOBS=2 runs two files at once
ifeq ($(JOBS),1)
	@$(BIN)/python -m pytest -q -m e2e $(ARGS)
else
	@folder=$$(mktemp -d /tmp/t.XXXX); \
	  $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --basetemp=$$folder/t -m "e2e and not alone" $(ARGS) \
	  && rm -rf $$folder
	@$(BIN)/python -m pytest -q -m "e2e and alone" $(ARGS); status=$$?; [ $$status -eq 5 ] || exit $$status  # 5: none
endif

frameworks: build ## published frameworks with and without Gemini on a simulated card (fetches them once: 36 GB in the user's cache)
	@$(BIN)/python -m tests.frameworks.environment
	@$(BIN)/python -m pytest -q -m frameworks $(ARGS)

pictures: build e2e-setup ## docs/pictures anew: every panel of the dashboards, from a run under a real Prometheus
	@GEMINI_PICTURES=docs/pictures $(BIN)/python -m pytest -q -m e2e tests/e2e/test_observability.py

lint: build ## ruff, mypy, import rules, circles, clang-format, how long sentences are
	@echo "  LINT ruff"; $(BIN)/ruff check -q . && $(BIN)/ruff format -q --check --diff .
	@echo "  LINT mypy"; $(BIN)/mypy --no-error-summary $(PY_DIRS)
	@mkdir -p build; echo "  LINT import rules"; $(BIN)/lint-imports --no-cache > build/imports.log || { cat build/imports.log; exit 1; }
	@echo "  LINT circles"; $(BIN)/python -m pytest -q tests/libhook/test_circles.py tests/test_bench_and_tests.py > build/circles.log || { cat build/circles.log; exit 1; }
	@echo "  LINT clang-format"; $(BIN)/clang-format --dry-run -Werror $(C_FILES)
	@echo "  LINT prose"; $(BIN)/python -m tests.docs.readable

format: setup ## rewrite Python and C in the house style
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
	@$(BIN)/clang-format -i $(C_FILES)

docs: $(VENV)/.stamp-docs ## the documentation as a site, in out/site; a dead link ends it
	@echo "  DOCS out/site"; $(BIN)/python -m sphinx -q -W --keep-going -c docs/site -d build/docs docs out/site
	@$(BIN)/python -m tests.docs.links out/site

cuda-check: setup ## the table of driver functions against CUDA's headers of each release, and the newest there is
	@$(BIN)/python -m tests.headers.compare

sanitize: build ## the library's tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, 40 minutes
	@$(BIN)/python -m tests.sanitize.run

bench: build ## every benchmark, one JSON object each; ARGS="fairness handover" for some
	@$(BIN)/python -m bench $(ARGS)

gpu-check: ## on a machine with an NVIDIA GPU, with or without network, at most 8 minutes; ARGS=--sim tries the script
	@$(PYTHON) -m bench.gpu_check $(ARGS)

gpu-bundle: build ## out/gpu-bundle: what gpu-check needs where there is no network; ARGS="--python 3.12"
	@$(BIN)/python -m bench.gpu_check.bundle $(ARGS)

wheel: setup ## a wheel with the built C parts, in out/wheel: for any Python from 3.11 and any glibc from 2.28 on
	@rm -rf build/lib* build/bdist* out/wheel
	@$(PIP) wheel --no-deps --no-build-isolation -w out/wheel .

image: ## the image of all parts, by buildah, podman or docker; IMAGE=registry.example.com/gemini ARGS="--build-arg BASE=..."
	@PYTHON=$(PYTHON) deploy/images/build.sh $(IMAGE) $(ARGS)

version: ## VERSION=0.2.0: raise the version everywhere it stands
	@$(PYTHON) deploy/version.py $(VERSION)

clean: ## remove what was built
	rm -rf $(VENV) build out libhook/lib libhook/_core_api* libhook/_core_abi* *.egg-info
