# The front door. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build quickstart test test-cpp test-python test-sanitize fuzz figures format lint clean

PYTHON := .venv/bin/python
QUICKSTART := results/quickstart/this-machine
SOURCES = $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: system packages (apt), .venv (requirements.txt)
	@./setup.sh

build: setup ## configure and build into build/ (ATTNBENCH_CUDA=AUTO|ON|OFF chooses the CUDA sources)
	@[ -f build/build.ninja ] || cmake --preset release $(if $(ATTNBENCH_CUDA),-DATTNBENCH_CUDA=$(ATTNBENCH_CUDA))
	@cmake --build build

# Records of an older build are measured again; those of this build are kept.
quickstart: build ## measure softmax against linear attention on this machine and draw the figure
	@resume=missing; [ build/attnbench-worker -nt $(QUICKSTART)/environment.json ] && resume=all; \
	  build/attnbench sweep sweeps/quickstart.toml --out $(QUICKSTART) --resume $$resume
	@build/attnbench table $(QUICKSTART)
	@[ $(QUICKSTART)/quickstart.png -nt $(QUICKSTART)/records.jsonl ] || $(PYTHON) plots/quickstart.py $(QUICKSTART) >/dev/null
	@echo; echo "figure: $(QUICKSTART)/quickstart.png (also .svg and .pdf)"

test: test-cpp test-python test-sanitize ## set up, build, and run every test

test-cpp: build
	ctest --test-dir build -j$$(nproc) --output-on-failure

test-python: build
	$(PYTHON) -m pytest -q tests/python

test-sanitize: setup
	@[ -f build-sanitize/build.ninja ] || cmake --preset sanitize
	@cmake --build build-sanitize
	ctest --test-dir build-sanitize -j$$(nproc) --output-on-failure

# For example: make fuzz && build-fuzz/tests/fuzz/fuzz_sweep -max_total_time=600 /tmp/corpus tests/fuzz/corpus/sweep
fuzz: setup ## build the fuzzers (clang 16) into build-fuzz/
	@[ -f build-fuzz/build.ninja ] || cmake --preset fuzz
	@cmake --build --preset fuzz

figures: setup ## draw every figure again from results/
	@set -e; for script in plots/*.py; do \
	  stem=$$(basename $$script .py); \
	  if compgen -G "results/$$stem/*/records.jsonl" >/dev/null; then $(PYTHON) $$script; fi; \
	done

format: setup ## format the C++ sources
	.venv/bin/clang-format -i $(SOURCES)

# clang cannot read the precompiled headers of g++, hence a configuration of its own.
lint: setup ## clang-format and clang-tidy (clang-tidy 16) over the C++ sources
	.venv/bin/clang-format --dry-run --Werror $(SOURCES)
	@cmake -S . -B build-lint -G Ninja -DATTNBENCH_CUDA=OFF -DATTNBENCH_TESTS=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
	@cmake --build build-lint --target build_info
	run-clang-tidy-16 -quiet -extra-arg=-fno-openmp -extra-arg=-Wno-unknown-warning-option -p build-lint '$(CURDIR)/(attn|baselines|harness)/.*\.cpp$$'

clean: ## remove the builds (results and .venv stay)
	rm -rf build build-debug build-sanitize build-lint
