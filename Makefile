# Each target sets up what it needs: Python 3.11 or newer is all that must be there. uv is used where it is found.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
TRL := .venv-trl
FRAMEWORKS := .venv-frameworks
REPRODUCE := .venv-reproduce
SAMPLE ?= sample_logs/tool_tail_growth

# Byte code is kept, where git ignores it: else every process that a test starts compiles the package, and every worker
# all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all golden test-bytes test-ray test-s3 test-trl test-recorders test-exports test-writers reproduce reproduce-small reproduce-gallery reproduce-gpu reproduce-start ledger-truth check format bench bench-traces bench-mismatch bench-one-set watch-calibration docs fuzz fuzz-coverage sync-samples clean

demo: $(STAMP)  ## judge the sample run whose post-tool tails grow
	$(BIN)/ptt diagnose $(SAMPLE)

test: $(STAMP)  ## what every change is held to, two at a time: under four minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile -q -m "not slow and not writers"

test-all: $(STAMP)  ## all tests, and that every rule has its three cases
	$(BIN)/python -m pytest -n 2 --dist loadfile -q --every-rule

golden: $(STAMP)  ## record the golden outputs anew; review the diff
	PTT_RECORD_GOLDEN=1 $(BIN)/python -m pytest -n 2 --dist loadfile -q tests/reports/test_terminal.py tests/gate_outputs \
		tests/report_command/test_postmortem.py tests/comparing/test_outputs.py tests/baseline

WRITERS := .venv-writers/bin/python

test-writers: $(STAMP)  ## the trackers' own libraries write, and what they read back is compared (installs them; slow)
	@if command -v uv >/dev/null 2>&1; then \
		UV_PROJECT_ENVIRONMENT=.venv-writers uv sync --quiet --locked --group writers; \
	else \
		$(PYTHON) -m venv .venv-writers && \
		$(WRITERS) -m pip install --quiet --upgrade "pip>=25.1" && \
		$(WRITERS) -m pip install --quiet --editable . --group dev --group writers; \
	fi
	$(WRITERS) -m pytest -q -m writers

RAY := .venv-ray

test-ray: $(RAY)/.ready  ## the same findings from a Ray cluster, though nodes and workers die (installs Ray into an environment of its own)
	$(RAY)/bin/python -m pytest -q -m ray tests/test_ray.py

OBJECTS := .venv-s3

test-s3: $(OBJECTS)/.ready  ## runs and output in an object store, on a server of the S3 interface, and from a Ray cluster (installs moto and Ray)
	$(OBJECTS)/bin/python -m pytest -q -m s3 tests/object_stores

test-trl: $(TRL)/.ready  ## the recorder inside a real TRL run with tools (installs TRL and torch into an environment of its own)
	$(TRL)/bin/python -m pytest -q tests/recorders tests/test_reproduction_gpu.py tests/test_reproduction_truth.py

test-recorders: $(FRAMEWORKS)/.ready  ## the recorders on the classes of veRL, OpenRLHF and AReaL, on a CPU (Python 3.11; installs them)
	$(FRAMEWORKS)/bin/python -m pytest -q -m frameworks tests/recorders

test-exports: $(TRL)/.ready  ## exported training data in TRL's DPO, KTO, SFT and GRPO, a step each (environment as above)
	$(TRL)/bin/python -m pytest -q -m trl tests/exports

reproduce: $(REPRODUCE)/.ready  ## real tool-using RL on the CPU: five arms, three seeds, compared (installs TRL and torch; an hour)
	$(REPRODUCE)/bin/python -m examples.reproduction.run

reproduce-small: $(REPRODUCE)/.ready  ## the same with fewer steps: ten minutes on two cores
	$(REPRODUCE)/bin/python -m examples.reproduction.run --small

reproduce-gallery: $(REPRODUCE)/.ready  ## the failure gallery: sixteen switches, two seeds each, what ptt says beside what was planted
	$(REPRODUCE)/bin/python -m examples.reproduction.run --gallery

reproduce-gpu:  ## the arms with a model of 0.5 billion parameters and vLLM; untried; skipped where there is no GPU
	@if nvidia-smi > /dev/null 2>&1; then \
		$(MAKE) $(REPRODUCE)-gpu/.ready && $(REPRODUCE)-gpu/bin/python -m examples.reproduction.run --gpu; \
	else \
		echo "Skipped: nvidia-smi finds no GPU. make reproduce-small runs the experiment on a CPU."; \
	fi

reproduce-start: $(REPRODUCE)/.ready  ## make the weights anew that all these runs start from
	$(REPRODUCE)/bin/python -m examples.reproduction.sft

LEDGER_ARMS := baseline schema-constrained kl-penalty

ledger-truth: $(STAMP) $(REPRODUCE)/.ready  ## the gradient ledger beside gradients by autograd, in three arms (ten minutes)
	for arm in $(LEDGER_ARMS); do \
		$(REPRODUCE)/bin/python -m examples.reproduction.gradient_truth $$arm --steps 120 --out ptt-report/ledger-truth/$$arm || exit 1; \
	done
	$(BIN)/python -m benchmarks.ledger_truth ptt-report/ledger-truth

test-bytes: $(STAMP)  ## every sample of every format cut at every byte (some ten minutes)
	PTT_EVERY_BYTE=1 $(BIN)/python -m pytest -n 2 -q tests/parsers/test_damaged_samples.py

check: $(STAMP)  ## format, lint, types, and pages that are made from code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/make_pages.py --check

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)  ## make the pages that are made from code
	$(BIN)/python docs/make_pages.py

FUZZ ?= --cases 20000 --judged 2000

fuzz: $(STAMP)  ## damaged files of every format, read and judged; prints the seed (an hour; FUZZ="--seed 7 --cases 500" for less)
	$(BIN)/python -m benchmarks.fuzz --keep benchmarks/data/fuzz $(FUZZ)

FUZZER := .venv-fuzz
COVERAGE ?= --seconds 120

fuzz-coverage: $(FUZZER)/.tried  ## inputs grown towards unreached code of the binary readers (installs atheris; 25 minutes)
	@if $(FUZZER)/bin/python -c "import atheris" 2>/dev/null; then \
		$(FUZZER)/bin/python -m benchmarks.fuzz_coverage $(COVERAGE); \
	else \
		echo "skipped: atheris does not install here (it has wheels for Linux on x86-64)"; \
	fi

$(FUZZER)/.tried: pyproject.toml benchmarks/fuzz-requirements.txt
	$(PYTHON) -m venv $(FUZZER)
	$(FUZZER)/bin/python -m pip install --quiet --editable .
	-$(FUZZER)/bin/python -m pip install --quiet --only-binary atheris --requirement benchmarks/fuzz-requirements.txt
	@touch $@

BENCHES := .venv-bench
BENCH ?= small

bench: $(BENCHES)/.ready  ## what ptt costs beside a bare scan, DuckDB, Polars and pandas (minutes; BENCH=full for all, PAGE=1 for the pages)
	$(BENCHES)/bin/python -m benchmarks.suite --scale $(BENCH) $(if $(PAGE),--page)
	$(BENCHES)/bin/python -m benchmarks.cost_model $(if $(PAGE),--write)

bench-traces: $(BENCHES)/.ready  ## what judging 100,000 episodes costs beside a pandas script
	$(BENCHES)/bin/python -m benchmarks.traces

watch-calibration: $(STAMP)  ## how often a watch stops healthy runs, and how late those that go wrong: writes docs/watch.md (five minutes; RUNS="DIR..." adds real healthy runs)
	$(BIN)/python -m benchmarks.watch_calibration --seed-block held-out --write $(if $(RUNS),--runs $(RUNS))

bench-mismatch: $(STAMP)  ## how often the cause of a mismatch is named right; CASES=folder of dumps with known causes (an hour)
	$(BIN)/python -m benchmarks.mismatch_causes $(CASES) --page

bench-one-set: $(STAMP)  ## how often a change within one set of traces is found, and one without any accused (an hour)
	$(BIN)/python -m benchmarks.one_set

$(BENCHES)/.ready: pyproject.toml uv.lock
	@if command -v uv >/dev/null 2>&1; then \
		UV_PROJECT_ENVIRONMENT=$(BENCHES) uv sync --quiet --locked --group bench; \
	else \
		$(PYTHON) -m venv $(BENCHES) && \
		$(BENCHES)/bin/python -m pip install --quiet --upgrade "pip>=25.1" && \
		$(BENCHES)/bin/python -m pip install --quiet --editable . --group bench; \
	fi
	@touch $@

$(STAMP): pyproject.toml uv.lock
	@if command -v uv >/dev/null 2>&1; then \
		uv sync --quiet --locked; \
	else \
		$(PYTHON) -m venv .venv && \
		$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" && \
		$(BIN)/python -m pip install --quiet --editable . --group dev; \
	fi
	@touch $(STAMP)

$(TRL)/.ready: pyproject.toml tests/recorders/requirements.txt
	$(PYTHON) -m venv $(TRL)
	$(TRL)/bin/python -m pip install --quiet --editable . --requirement tests/recorders/requirements.txt
	@touch $@

$(RAY)/.ready: pyproject.toml
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(RAY)/bin/python -m pip install --quiet --editable ".[ray]" --group dev
	@touch $@

$(OBJECTS)/.ready: pyproject.toml uv.lock
	@if command -v uv >/dev/null 2>&1; then \
		UV_PROJECT_ENVIRONMENT=$(OBJECTS) uv sync --quiet --locked --extra ray --group s3; \
	else \
		$(PYTHON) -m venv $(OBJECTS) && \
		$(OBJECTS)/bin/python -m pip install --quiet --upgrade "pip>=25.1" && \
		$(OBJECTS)/bin/python -m pip install --quiet --editable ".[ray]" --group dev --group s3; \
	fi
	@touch $@

TORCH_CPU := https://download.pytorch.org/whl/cpu

$(FRAMEWORKS)/.ready: pyproject.toml tests/recorders/requirements.txt tests/recorders/frameworks.txt
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --index-url $(TORCH_CPU) "torch>=2.7" || \
		echo "no torch without CUDA for this machine: taking the usual one"
	$(FRAMEWORKS)/bin/python -m pip install --quiet --editable . --requirement tests/recorders/requirements.txt
	$(FRAMEWORKS)/bin/python -m pip install --quiet --no-deps --requirement tests/recorders/frameworks.txt
	@touch $@

$(REPRODUCE)/.ready: pyproject.toml examples/reproduction/requirements.txt
	$(PYTHON) -m venv $(REPRODUCE)
	$(REPRODUCE)/bin/python -m pip install --quiet --index-url $(TORCH_CPU) "torch>=2.7" || \
		echo "no torch without CUDA for this machine: taking the usual one"
	$(REPRODUCE)/bin/python -m pip install --quiet --editable . --requirement examples/reproduction/requirements.txt
	@touch $@

$(REPRODUCE)-gpu/.ready: pyproject.toml examples/reproduction/requirements-gpu.txt
	$(PYTHON) -m venv $(REPRODUCE)-gpu
	$(REPRODUCE)-gpu/bin/python -m pip install --quiet --editable . --requirement examples/reproduction/requirements-gpu.txt
	@touch $@

clean:
	rm -rf .venv .venv-writers .venv-ray .venv-s3 .venv-trl .venv-frameworks .venv-reproduce .venv-reproduce-gpu .venv-fuzz .venv-bench dist build ptt-report .mypy_cache .pytest_cache .ruff_cache .hypothesis
