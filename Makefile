# The environment, the checks, the tests, the benchmarks and the demo. Needs Python 3.10 or newer with venv, and PyPI.

PYTHON ?= python3
TESTARGS ?=
DEMOARGS ?=
BENCHARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
INSTALLED := $(VENV)/.installed

.PHONY: help environment demo test check bench clean
.DELETE_ON_ERROR:

help:
	@echo "make test    the test suite; TESTARGS='-k wire' chooses, TESTARGS='-m slow' runs the slow ones"
	@echo "make check   format, lint, types, import directions"
	@echo "make demo    IMPALA learns CartPole with actors on this machine; DEMOARGS='--total-steps 50000'"
	@echo "make bench   the benchmarks, under ten minutes, into docs/performance.md; BENCHARGS='--quick', '--peer ray', '--only calls'"
	@echo "make clean   removes $(VENV), caches and builds"
	@echo "The first of them makes the environment $(VENV) with $(PYTHON); PYTHON=python3.12 chooses another interpreter."

environment: $(INSTALLED)

# torch comes first and by its exact version, so that a machine whose pip knows an index of CPU builds does not get the
# newer build with CUDA, which is three times as large. MinAtar needs none of the packages for plots that it asks for.
$(INSTALLED): setup.py constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" || \
	    { echo "parl_lite needs Python 3.10 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1); try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" || \
	    { echo "$(PYTHON) lacks the module venv; install it (Debian, Ubuntu: apt install python3-venv) or try another PYTHON=..." >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version); the packages take about 1.5 GB and some minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -c constraints.txt "torch==2.13.0"
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@$(PIP) install -c constraints.txt --no-deps MinAtar || echo "without MinAtar, tests of its games are skipped" >&2
	@touch $@

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p parl_lite
	$(BIN)/pytest -q tests/unit/test_layers.py

test: $(INSTALLED)
	$(BIN)/pytest $(TESTARGS)

demo: $(INSTALLED)
	$(BIN)/python examples/cartpole_impala.py $(DEMOARGS)

bench: $(INSTALLED)
	$(BIN)/python tests/benchmarks $(BENCHARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
