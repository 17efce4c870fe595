# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
# modules are kept compiled even where the environment says not to: else every start of a command
# compiles all that it imports, which takes two seconds
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/.light
INSTALLED := $(VENV)/.installed
# modules are compiled when they are first imported: few of those that come along are
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
PEERS := torch fedjax

.PHONY: install browser demo test test-fast torture lint types docs bench clean

install: $(INSTALLED)

# what the package itself needs
$(LIGHT): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	$(BIN)/python -c 'import scafflix.cli.work'
	touch $@

# and on top of it everything for development
$(INSTALLED): $(LIGHT)
	$(PIP) --editable '.[dev]'
	$(BIN)/python -c 'import scafflix_flower.superlink, scafflix_flower.job, scafflix_flower.supernode'
	touch $@

# for the tests of the report page, which are skipped without one
browser:
	@command -v chromium >/dev/null || { \
	  test "$$(id -u)" = 0 && apt-get -qq update && apt-get -qq install --yes chromium >/dev/null; \
	} || echo "no Chromium, and no way to install it here"

demo: $(LIGHT)
	$(BIN)/scafflix demo --out demo --force

PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder \
  --max-worker-restart 0
# what everyday work does not wait for: other processes, browsers, pages, figures, large networks
SLOW := tests/docs tests/federate tests/trust tests/test_wheel.py tests/test_guest.py \
  tests/cli/test_commands.py tests/cli/test_network_commands.py tests/cli/test_own_method.py \
  tests/models/test_networks.py tests/report/test_page_in_browser.py tests/runs \
  tests/simulate/test_many_processes.py tests/simulate/test_cohorts.py \
  tests/simulate/test_torch_networks.py tests/estimators/test_checks.py

test: lint types browser
	$(PYTEST)

test-fast: lint types
	$(PYTEST) $(SLOW:%=--ignore=%)

torture: install
	$(BIN)/python -m pytest tests/trust tests/federate/test_living_federation.py tests/federate/test_secure_aggregation.py tests/federate/test_secure_view.py --torture

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# peers that do not install with this Python are left out: FedJAX needs 3.9 to 3.12
bench: install
	-$(MAKE) --keep-going $(PEERS:%=.bench/%/.installed)
	$(BIN)/python benchmarks/run.py $(BENCH)

.bench/%/.installed: benchmarks/requirements-%.txt
	$(PYTHON) -m venv --clear .bench/$*
	.bench/$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

clean:
	rm -rf $(VENV) .bench demo build .pytest_cache .mypy_cache .ruff_cache
