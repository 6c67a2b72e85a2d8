# Everything a reader, author or teacher does goes through here. `make help` lists it.
# The environment lives in .venv and is set up by itself on the first command that needs it.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := lessons,data,convex-reference,book,assignments,test
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Kernels start from .venv, whatever else is installed for the user.
export JUPYTER_PREFER_ENV_PATH = 1
export PYTHONUTF8 = 1

.DEFAULT_GOAL := help
.PHONY: help book lesson lab serve pdf zip instructor assignment test test-browser newest bench lint \
	release clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | \
		while IFS="$$(printf '\t')" read -r name what; do printf '  make %-14s %s\n' "$$name" "$$what"; done

book: $(READY)  ## build the book: _build/html/index.html
	@$(BIN)/python tools/build_book.py

lesson: $(READY)  ## build one lesson: LESSON=convex_02_mlp
	@test -n "$(LESSON)" || { echo "Say which: make lesson LESSON=convex_02_mlp"; exit 2; }
	@$(BIN)/python tools/build_book.py --lesson "$(LESSON)"

lab: $(READY)  ## run a lab in a larger size and keep its table: LESSON=… [PRESET=reduced]
	@test -n "$(LESSON)" || { echo "Say which: make lab LESSON=unrolled_04_sentiment_lab [PRESET=full]"; exit 2; }
	@$(BIN)/python tools/run_lab.py "$(LESSON)" --preset "$(or $(PRESET),reduced)"

serve: $(READY)  ## show the built book at a local address
	@test -f _build/html/index.html || { echo "There is no book yet: run make book first."; exit 2; }
	@$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory _build/html

pdf: $(READY)  ## set the whole book on paper: _build/four-views-of-attention.pdf (needs LaTeX)
	@$(BIN)/python tools/make_pdf.py

zip: $(READY)  ## pack the built book for reading without a network: _build/four-views-of-attention-….zip
	@$(BIN)/python tools/make_zip.py

instructor: $(READY)  ## build the instructor edition: _build/instructor/html/index.html
	@$(BIN)/python tools/build_book.py --edition instructor

assignment: $(READY)  ## write an assignment: LESSON=convex_02_mlp [SEED=20270301]
	@test -n "$(LESSON)" || { echo "Say which: make assignment LESSON=convex_02_mlp [SEED=20270301]"; exit 2; }
	@$(BIN)/python tools/write_assignment.py "$(LESSON)" $(if $(SEED),--seed="$(SEED)")

test: $(READY)  ## run all tests that need no browser
	@$(BIN)/python -m pytest -q -m "not browser and not site" $(PYTEST)

test-browser: $(READY)  ## open the built book in Chromium and look at it
	@$(BIN)/python tools/find_chromium.py
	@test -f _build/html/index.html || $(BIN)/python tools/build_book.py
	@$(BIN)/python -m pytest -q -m "browser or site" tests/book $(PYTEST)

newest: $(READY)  ## test the library with the oldest and newest torch, NumPy and CVXPY [ONLY=oldest]
	@$(BIN)/python tools/newest.py $(ONLY)

bench: $(VENV)/.bench  ## compare speed with other packages: the book's page of benchmarks
	@$(BIN)/python benchmarks/run.py $(BENCH)

lint: $(READY)  ## check style, lessons, register and notebooks without running anything
	@$(BIN)/ruff check .
	@$(BIN)/python tools/ledger.py check
	@$(BIN)/python tools/corrections.py
	@$(BIN)/python tools/write_notebooks.py check

release: $(READY)  ## make a release: VERSION=0.2.0 [DRY_RUN=1], from a commit without open changes
	@test -n "$(VERSION)" || { echo "Say which: make release VERSION=0.2.0 [DRY_RUN=1]"; exit 2; }
	@$(BIN)/python tools/release.py "$(VERSION)" $(if $(DRY_RUN),--dry-run)

clean:  ## remove what was built (not the environment)
	rm -rf _build dist .pytest_cache .ruff_cache

$(VENV)/.bench: $(READY)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[$(EXTRAS),bench]'
	@$(BIN)/python -m pip install -qq -c constraints.txt --no-deps pyscnn
	@touch $@

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found; set PYTHON=/path/to/python3."; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is older than Python 3.11; set PYTHON=/path/to/a/newer/python3."; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module. On Debian and Ubuntu: apt-get install python3-venv"; exit 2; }
	@echo "Setting up $(VENV): two to three minutes, 2.3 GB."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
