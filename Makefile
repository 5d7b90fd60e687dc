# Each target does all it needs, set-up included. Repeated calls do only what has changed.
#   make demo     build, then RoPE at a real model's shapes: checked, and timed beside a plain copy
#   make test     every test: C++ (ctest) and Python (pytest)
#   make build    the command, build/bin/brim
#   make python   .venv with PyTorch and the Python package brim
#   make bench    the whole benchmark list of this machine, into build/bench.json
#   make results  the tables of measured rows in the README, from bench/results
#   make format   format the sources      make lint   check formatting and the sources
#   make clean    remove what was built (make distclean: .venv too)
# Variables: JOBS (parallel compilations), CUDA_ARCH (e.g. "80;90"), CMAKE_FLAGS (more of them).
SHELL := /bin/bash
JOBS ?= $(shell nproc)
# The architectures of the GPUs that are here, or the H100's and H200's.
CUDA_ARCH ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | paste -sd ';'),90)
CMAKE_FLAGS += -DCMAKE_CUDA_ARCHITECTURES='$(CUDA_ARCH)' -DBRIM_WERROR=$(if $(CI),ON,OFF)
PYTHON_SOURCES = $(shell find CMakeLists.txt pyproject.toml cmake include python src torch -type f -not -name '*.pyc')
FORMATTED = $(shell find cli examples include src tests torch -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')

.PHONY: help demo build test test-cpp test-python python bench results format lint clean distclean FORCE
help:
	@sed -n 's/^#   //p' Makefile

demo: build
	build/bin/brim bench --model examples/llama-3-8b.config.json
	@tools/left_out.sh

build: build/.configured
	@cmake --build build -j$(JOBS) --target brim_cli brim

test: test-cpp test-python
	@tools/left_out.sh

test-cpp: build/.configured
	cmake --build build -j$(JOBS)
	ctest --preset dev -j$(JOBS)

test-python: python
	.venv/bin/python -m pytest tests/python -q -rs

python: .venv/.brim

bench: build
	build/bin/brim bench --json build/bench.json

results:
	tools/results_table.py README.md

format: build/.lint
	@clang-format-14 -i $(FORMATTED)

lint: build/.lint
	@tools/lint.sh $(FORMATTED)

clean:
	rm -rf build build-python dist .gpu .venv/.brim

distclean: clean
	rm -rf .venv

build/.setup: tools/setup.sh
	@tools/setup.sh build
	@mkdir -p build && touch $@

# Changes only when the flags do.
build/.flags: FORCE
	@mkdir -p build && echo '$(subst ','\'',$(CMAKE_FLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(CMAKE_FLAGS))' > $@

build/.configured: build/.setup build/.flags CMakePresets.json
	cmake --preset dev $(CMAKE_FLAGS)
	@touch $@

.venv/.torch: tools/setup.sh
	@tools/setup.sh python
	@touch $@

# The folder stands beside build/ so that paths relative to it are the same, and ccache finds what build/ compiled.
.venv/.brim: .venv/.torch build/.setup build/.flags $(PYTHON_SOURCES)
	CC=$${CC:-cc} CXX=$${CXX:-c++} CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  .venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation \
	  --no-deps . --config-settings=build-dir=build-python $(patsubst -D%,--config-settings=cmake.define.%,$(CMAKE_FLAGS))
	@touch $@

build/.lint: tools/setup.sh
	@tools/setup.sh lint
	@mkdir -p build && touch $@
