# Begin with `make quickstart`; `make help` lists all targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build python wheel cuda gpu-bundle gpu micro quickstart test test-build test-cpp test-python test-sanitize fuzz results reproduce figures check-results site format lint clean

PYTHON := .venv/bin/python
QUICKSTART := results/quickstart/this-machine
SOURCES = $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
# Runs the tests of a build folder. If any fails, the last lines name them and the lines of source that found it.
ctest = ctest --test-dir $(1) -j$$(nproc) --output-on-failure || { echo "Failed:"; \
  grep -hE '^\[  FAILED  \]|: Failure$$' $(1)/Testing/Temporary/LastTest.log | sort -u | head -30; exit 1; }

build_python_module = if [ -s build/python-methods ]; then echo "methods in Python cannot run, because $$(cat build/python-methods)"; \
  false; else cmake --build build --target attnbench-python; fi

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install everything that the builds, figures and tests need: system packages (with apt) and .venv
	@./setup.sh

# Configures the build folder with the kernels of all instruction sets. `make quickstart` configures it with those of this machine
# alone; what is compiled already stays.
configure = @grep -qs '^ATTNBENCH_KERNELS:STRING=all$$' build/CMakeCache.txt || cmake --preset release -DATTNBENCH_KERNELS=all

build: ## build the programs for the CPU, with the kernels of all instruction sets, into build/
	@./setup.sh build
	$(configure)
	@cmake --build build --target programs

# Builds no more than what measures, with the fastest kernels of this machine.
measuring_programs = @[ -f build/build.ninja ] || cmake --preset release -DATTNBENCH_KERNELS=native || exit 1; \
  cmake --build build --target attnbench

python: ## build the module with which attnbench runs methods in Python (a minute; downloads nothing more)
	@./setup.sh build
	$(measuring_programs)
	@$(build_python_module)

wheel: setup ## build a wheel of the Python package into dist/, from the programs of build/
	$(configure)
	@cmake --build build --target wheel
	@$(PYTHON) -m pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation \
	  --config-settings cmake.define.ATTNBENCH_PREBUILT=$(CURDIR)/build --wheel-dir dist .
	@ls dist/*.whl

# For example: make cuda CUDA_ARCHITECTURES="80;90". Each is compiled as machine code and as PTX.
cuda: setup ## build the programs with the CUDA kernels (needs nvcc, but no GPU) into build-cuda/
	cmake --preset release -B build-cuda -DATTNBENCH_KERNELS=all -DATTNBENCH_CUDA=ON -DATTNBENCH_TESTS=OFF $(if $(CUDA_ARCHITECTURES),"-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)")
	@cmake --build build-cuda --target programs cuda $$([ -s build-cuda/python-methods ] || echo attnbench-python)

# For example: make gpu-bundle WHEELS="fla_core-0.6.0-py3-none-any.whl"
gpu-bundle: cuda ## pack what a GPU node needs to verify and measure everything into build-cuda/attnbench-gpu/
	@$(PYTHON) tools/gpu_bundle.py --build build-cuda $(addprefix --wheel ,$(WHEELS))

# For example: make gpu GPU_OPTIONS="--minutes 10"
gpu: gpu-bundle ## on a machine with a GPU: verify and measure everything within 25 minutes; the same command continues
	@$(PYTHON) build-cuda/attnbench-gpu/gpu.py $(GPU_OPTIONS)

micro: build ## build the micro-benchmarks of the kernels: build/attnbench_micro
	@cmake --build build --target attnbench_micro

quickstart: ## measure softmax against linear attention on this machine and draw the figure
	@./setup.sh build
	$(measuring_programs)
	@build/attnbench sweep quickstart --out $(QUICKSTART) --resume stale >/dev/null
	@build/attnbench table $(QUICKSTART)
	@[ $(QUICKSTART)/quickstart.png -nt $(QUICKSTART)/records.jsonl ] || $(PYTHON) plots/run.py quickstart $(QUICKSTART) >/dev/null
	@echo; echo "Every case was measured in three rounds. The interval is the range of the three processes."
	@echo "figure:   $(QUICKSTART)/quickstart.png (also .svg and .pdf)"
	@echo "try next: build/attnbench measure linear --query-len 4096 --causal"
	@echo; echo "Methods in Python (docs/tutorial.md) need a module, which is built now unless it is there:"
	@$(build_python_module) || echo "make quickstart: everything else works"

test: test-cpp test-python ## install what is missing, build, and run all tests: C++, emulated CUDA kernels, Python

test-build: setup ## build the programs, the tests and the examples
	$(configure)
	@echo "build of the tests:"; time cmake --build build

test-cpp: test-build ## build and run the C++ tests and the CUDA kernels under emulation
	@$(call ctest,build)

# Tests wait for a quarter of their time, for deadlines and for processes to end, so one more of them runs than there are processors.
test-python: test-build ## build and run the tests of the command line, the operators, the plots and the documents
	$(PYTHON) -m pytest -q -n $$(($$(nproc) + 1)) --dist worksteal tests/python

test-sanitize: setup ## build and run the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@[ -f build-sanitize/build.ninja ] || cmake --preset sanitize
	@echo "build of the tests with sanitizers:"; time cmake --build --preset sanitize
	@$(call ctest,build-sanitize)

# For example: make fuzz && build-fuzz/tests/fuzz/fuzz_sweep -max_total_time=600 /tmp/corpus tests/fuzz/corpus/sweep
fuzz: setup ## build the fuzzers (clang 16) into build-fuzz/
	@[ -f build-fuzz/build.ninja ] || cmake --preset fuzz
	@cmake --build --preset fuzz

results: build ## measure what is published in results/: all sweeps (two and a half hours); MINUTES=60 begins what fits into an hour
	@experiments/reproduce sweeps $(if $(MINUTES),--minutes $(MINUTES))

reproduce: build ## run the paper's experiments with whole models in sizes for two cores (two hours); MINUTES as for results
	@experiments/reproduce trainings $(if $(MINUTES),--minutes $(MINUTES))

figures: build ## draw all figures again from the records in results/, and write the numbers that pages quote
	@$(PYTHON) plots/run.py renew-pages

check-results: build ## check that the folders of results/ hold together, and say how to renew one that does not
	@$(PYTHON) plots/run.py check-results

site: setup ## build the documents as a site: build/site/index.html
	$(configure)
	@cmake --build build --target programs
	@$(PYTHON) tools/site.py

format: setup ## format the C++ sources
	.venv/bin/clang-format -i $(wildcard $(SOURCES))

lint: ## check the format of the C++ sources, and run clang-tidy on those changed since LINT_BASE (a revision, or "all")
	@./setup.sh lint
	@.venv/bin/clang-format --dry-run --Werror $(SOURCES)
	@.ci/lint $(LINT_BASE)

clean: ## remove all build folders, but not the results and .venv
	rm -rf build build-*
