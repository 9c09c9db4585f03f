# The two commands that matter are `make demo` and `make test`. Both set up what they need.

PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
TWO    := -n 2 --dist worksteal
PIP    := $(BIN)/python -m pip --disable-pip-version-check
EXTRAS := test,log,weather,mesh,table,export,hub,serve,browser

# Bytecode is kept: two sessions of tests and some hundred processes import the same modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check tests browser pictures minute campaign slow docs clean help

help:            ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: $(VENV)/.core   ## generate, train, evaluate: a table and demo/demo.png in about three minutes
	$(BIN)/ipot demo --out demo

# One install; then the checks beside the campaign, which takes one core for a minute and has limits of
# time on what it tries; then the tests, on two.
test: $(VENV)/.all    ## the checks, a minute of the campaign and the tests
	$(MAKE) --no-print-directory -j 2 minute check
	$(MAKE) --no-print-directory tests

check: $(VENV)/.dev docs   ## format, lint, types, import layers, documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

# Two sessions, and no test is in both (tests/conftest.py says which is where). The first has every function that
# names shapes check them. The second has what that check hides or hinders: torch.compile cannot trace through it, it raises
# before errors of ours, it would wrap Triton's kernels, and it triples the time of runs by files and commands.
# Half of the tests goes to each process, which takes from the other's when it is done: dealt out one by one, tests of
# one file would come to both, and servers, pages and trained models that they share would be made twice.
tests: $(VENV)/.dev
	$(BIN)/python -m pytest $(TWO) -m "not (compile or plain or slow)" --jaxtyping-packages=ipot,beartype.beartype
	$(BIN)/python -m pytest $(TWO) -m "(compile or plain) and not slow"

browser: $(VENV)/.dev   ## the tests of the page in Chromium (apt-get install chromium); `make test` has them too where it is there
	$(BIN)/python -m pytest -rs tests/browser

pictures: $(VENV)/.dev   ## the pictures of the page in README and docs, taken by its tests
	IPOT_PICTURES=docs/images/page $(BIN)/python -m pytest tests/browser/test_shipped.py

minute: $(VENV)/.dev
	$(BIN)/python -m campaign --minutes 1 --seed 0 --cases 120 --no-ledger

# Minutes unless HOURS says otherwise; SEED goes on where that seed stopped.
campaign: $(VENV)/.dev   ## kill, starve and mislead the package for MINUTES (default 5) or HOURS, and count what came of it
	$(BIN)/python -m campaign $(if $(HOURS),--hours $(HOURS),--minutes $(or $(MINUTES),5)) $(if $(SEED),--seed $(SEED))

slow: $(VENV)/.dev    ## the slow tests: published statistics and larger sizes, about a quarter of an hour
	$(BIN)/python -m pytest $(TWO) -m slow

docs: $(VENV)/.docs   ## the documentation as pages, in docs/_build
	$(BIN)/python tools/draw_house.py docs/house
	$(BIN)/python tools/accuracy_tables.py --check
	$(BIN)/python tools/reproduction_page.py --check
	$(BIN)/sphinx-build -W -q docs docs/_build
	@echo "open docs/_build/index.html"

clean:           ## remove what was made, the environment included
	rm -rf $(VENV) demo docs/_build .pytest_cache .ruff_cache

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[docs]'
	touch $@

# All at once, which takes half the time of one after the other; pip would compile on one core.
$(VENV)/.all: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -q --no-compile -c constraints.txt -e '.[docs,$(EXTRAS)]'
	$(BIN)/python -m compileall -qq -j 0 -x '/(tests?|testing|benchmarks)/' $(VENV)/lib || true
	touch $(VENV)/.core $(VENV)/.dev $(VENV)/.docs $@
