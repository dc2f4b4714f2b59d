# A thin front: everything is done by CMake presets (build/<preset>) and the scripts in tools/.
SHELL := /bin/sh
PREFIX ?= /usr/local
PROMPT ?= Once upon a time
MODEL ?= models/story.gguf
RUN_ARGS ?= --echo
BENCH_ARGS ?=
T ?=
FUZZ_SECONDS ?= 300
export FUZZ_SECONDS
# make CUDA_ARCH=sm_80: kernels for these chips only; default: for all
CUDA_ARCH ?=
# make GPU=0: no backend for GPUs; 1: there must be one; auto (at first): where nvcc is found
GPU ?=
export CUDA_ARCH GPU

.PHONY: all build run test test-all test-gpu mutate mutate-rows crossval bench lint install clean help
.DEFAULT_GOAL := all

all: build ## build the command into build/release
	@echo "built build/release/bitnet (try: make run)"

# tools/build does nothing, quickly, when no source is newer than the last build.
build:
	@tools/setup run
	@tools/build

run: build ## tell a story: make run PROMPT="The little fox"
	@build/release/bitnet run --model "$(MODEL)" $(RUN_ARGS) "$$BITNET_PROMPT"
run: export BITNET_PROMPT = $(value PROMPT)

test: ## set up, run every suite but the long ones; T=name runs the tests whose name matches
	@tools/setup test
	@tools/run_tests $(if $(T),--match "$(T)")

test-all: ## test, then all of clang, ThreadSanitizer, fuzzing (FUZZ_SECONDS=300 each), memory limits
	@tools/setup all
	@tools/run_tests --all $(if $(T),--match "$(T)")

test-gpu: ## on a machine with an NVIDIA GPU: kernels, models, receipts, failures, memory checker, speeds in one table
	@tools/setup gpu
	@tools/gpu_check.sh $(or $(PHASE),all) build/none

mutate: ## do the tests notice one wrong line? T=path: of matching files; MINUTES=30; goes on where it stopped
	@tools/setup test
	@tools/build
	@tools/mutate $(if $(T),--file "$(T)") $(if $(MINUTES),--minutes $(MINUTES))

mutate-rows: ## break what each requirement promises: does the test its row names fail? T=id: these; goes on where it stopped
	@tools/setup test
	@tools/build
	@tools/mutate --rows $(if $(T),--match "$(T)") $(if $(MINUTES),--minutes $(MINUTES))

crossval: build ## against transformers and llama.cpp of PyPI (1 GB, below build/): tokens, logits, perplexity; T="nano story"
	@tools/setup crossval
	@build/crossval-venv/bin/python tools/crossval $(T)

bench: build ## how fast, on a machine that does nothing else: make bench BENCH_ARGS="--threads 1,2"
	@build/release/bitnet bench --synthetic 2b-4t $(BENCH_ARGS)

lint: ## the rules of docs/ARCHITECTURE.md: include direction, banned calls, lengths
	@tools/lint

install: build ## install below PREFIX (/usr/local); DESTDIR is honoured
	@tools/build --everything
	@cmake --install build/release --prefix "$(PREFIX)"

clean: ## remove what was built (build/ as a whole)
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16
