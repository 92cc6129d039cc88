# One line of intent each; the work stands in scripts/. VENV=path uses a Python environment of your own.

VENV ?= .venv
PYTHON ?= python3
export VENV PYTHON

.PHONY: demo test test-gpu test-compat ptx lint bench fuzz miri checked

# Make a small data set of generated photos, load it, and print images a second and the bottleneck.
demo:
	@scripts/demo.sh $(ARGS)

# Run every test: Rust, documentation, Python.
test:
	@scripts/test.sh

# Run the tests that need an NVIDIA GPU; where there is none they say so and are skipped.
test-gpu:
	@scripts/test-gpu.sh

# Run the tests of webdataset and torch against brimful: WEBDATASET_SUITE=checkout TORCH_SUITE=checkout, whichever is there.
test-compat:
	@scripts/test-compat.sh

# Compile the GPU kernels to the PTX that is committed beside them.
ptx:
	@scripts/ptx.sh

# Check formatting, lints, documentation, licences and the Python sources.
lint:
	@scripts/lint.sh

# Measure: each stage alone, then the same job on brimful and its peers. PHOTOS=folder uses photos of your own.
bench:
	@scripts/bench.sh

# Fuzz every parser and decoder for FUZZ_SECONDS each (60); TARGETS="npy braces" picks some, FUZZ_SEEDS=folder feeds them.
fuzz:
	@scripts/fuzz.sh

# Run the tests of unsafe code that is all Rust, and of the tar parser, under Miri.
miri:
	@scripts/miri.sh

# Run the decoders' tests optimised and with all bounds checked, on BRIMFUL_MUTANTS damaged files (100,000).
checked:
	@scripts/checked.sh
