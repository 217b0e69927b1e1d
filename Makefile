# make setup | demo | test (quick) | test-all | check | bench | docs | image-test        The environment is .venv, made on first use.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test test-all check check-page bench docs image-test clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[video,text,train,export,figures,ray,remote,serve,dev,docs]"
	touch $(READY)

demo: setup
	$(BIN)/python -m examples.demo out/demo $(VIDEO)

# Bytecode is kept even if the environment forbids it, because the tests start many processes.
test: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

test-all: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist loadfile

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) check-page
	$(BIN)/python -m tools.structure --check
	$(BIN)/python -m tools.check_docs

# The types of the page: Node.js comes from PyPI, TypeScript from the lock file, if npm's registry can be reached.
# The page itself needs neither.
NPM := PATH="$(abspath $(BIN)):$$PATH" npm --prefix tests/browser
check-page: setup
	@if $(NPM) ci --silent --no-audit --no-fund; then $(NPM) run --silent check; \
	else echo "TypeScript cannot be downloaded: the types of the page are not checked"; fi

bench: setup
	$(BIN)/python -m benchmarks.spectral
	$(BIN)/python -m benchmarks.step

docs: setup
	$(BIN)/mkdocs build --strict

# Needs root, buildah and podman. IMAGE_OPTIONS go to buildah, such as --build-arg=TORCH_INDEX=ADDRESS.
image-test: setup
	$(BIN)/python deploy/image_test.py -- $(IMAGE_OPTIONS)

clean:
	rm -rf $(VENV) site out
