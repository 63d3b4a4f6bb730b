# autoq: each target installs what it needs into .venv, so each works as the first command in a clone.
PYTHON ?= python3
FLOAT  ?= float32
DEVICE := cpu# of train: cpu, cuda, cuda:1
CUDA   := 13# 12 or 13: the packages for a GPU
VENV   := .venv
RUN    := $(VENV)/bin/python
stamp   = $(VENV)/.installed-$(1)# a set of extras: a second run installs nothing until setup.cfg changes
gpu     = $(call stamp,cuda$(CUDA))
ifeq ($(filter 12 13,$(CUDA)),)
$(error CUDA=$(CUDA) has no packages here. Allowed: CUDA=12, CUDA=13. Pass the one that nvidia-smi shows)
endif
.NOTPARALLEL:
.PHONY: help train test test-ptx test-gpu check lint types bench bench-gpu mutation coverage docs tutorials clean
# Small products: more BLAS threads than one only wait for each other.
train test mutation coverage docs tutorials: export OPENBLAS_NUM_THREADS ?= 1

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

# The extras test, bench, cuda12 and cuda13 bring packages of one CUDA or the other, and the last install is the one that holds.
$(VENV)/.installed-%: setup.cfg pyproject.toml
	test -x $(RUN) || $(PYTHON) -c 'import sys, venv; assert sys.version_info >= (3, 11), "autoq needs Python 3.11: make PYTHON=python3.11"; venv.create("$(VENV)", with_pip=True)'
	$(if $(filter cuda%,$*),$(RUN) -m pip uninstall -qq --yes $(filter-out cupy-$*x,cupy-cuda12x cupy-cuda13x))
	$(RUN) -m pip install -qq --editable '.[$*]'
	@rm -f $(if $(filter test bench cuda%,$*),$(VENV)/.installed-cuda*)
	@touch $@

train: $(call stamp,train) $(if $(filter cuda%,$(DEVICE) $(patsubst --device=%,%,$(ARGS))),$(gpu))  ## train the four networks on handwritten digits: DEVICE=cuda, ARGS="--signal mxfp4 --epochs 5"
	$(RUN) -m autoq train digits --device $(DEVICE) $(ARGS)
test: $(call stamp,test)  ## run every test and doctest: FLOAT=float16 or bfloat16, ARGS="-k name"
	AUTOQ_TEST_FLOAT=$(FLOAT) $(RUN) -m pytest -n auto $(ARGS)
test-ptx: $(call stamp,test)  ## compile every kernel for every CUDA architecture, all combinations; needs no GPU
	AUTOQ_TEST_PTX=all $(RUN) -m pytest -n auto tests/cuda/test_ptx.py $(ARGS)
test-gpu: $(call stamp,test) $(gpu)  ## run every test on the GPU, and those that need one: CUDA=12
	AUTOQ_TEST_DEVICE=cuda AUTOQ_TEST_FLOAT=$(FLOAT) $(RUN) -m pytest -n 4 $(ARGS)
check: test lint types  ## test, lint and types
lint: $(call stamp,dev)  ## check style, layout and the direction of imports
	$(RUN) -m ruff check . && $(RUN) -m ruff format --check autoq kernels tests benchmarks && $(VENV)/bin/lint-imports
types: $(call stamp,dev)  ## check types
	$(RUN) -m mypy
bench: $(call stamp,bench)  ## time autoq beside NumPy, torch and torchao; writes benchmarks/RESULTS.md
	$(RUN) benchmarks/cpu.py $(ARGS)
bench-gpu: $(call stamp,bench) $(gpu)  ## the same on a GPU; CUDA=12, sections by ARGS="quantize matmul"
	$(RUN) benchmarks/gpu.py $(ARGS)
mutation: $(call stamp,test)  ## break every rule in turn and see that a test fails
	$(RUN) -m tests.mutation $(ARGS)
coverage: $(call stamp,test)  ## branch coverage, kernels interpreted: half an hour
	NUMBA_DISABLE_JIT=1 AUTOQ_TEST_PROFILE=coverage $(RUN) -m coverage run -m pytest -p no:xdist -m "not slow and not exhaustive and not compiled and not gpu" $(ARGS) && $(RUN) -m coverage report
docs: $(call stamp,docs)  ## build the documentation into docs/_build/html
	$(RUN) -m sphinx -W --keep-going -q -b html docs docs/_build/html
tutorials: $(call stamp,test)  ## run the tutorials
	for script in tutorials/*.py; do echo "$$script" && MPLBACKEND=agg $(RUN) "$$script" || exit 1; done
clean:  ## remove .venv, caches and everything built
	rm -rf $(VENV) build dist *.egg-info docs/_build docs/generated docs/tutorials runs .*_cache .hypothesis .coverage; find . -name __pycache__ -prune -exec rm -rf {} +
