#!/bin/sh
# Says, in a line each, what this machine cannot build or run.
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo "left out: the CUDA backend (no nvcc on this machine)"
elif ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "left out: running the CUDA backend (compiled, but there is no GPU on this machine)"
fi
[ -x .venv/bin/python ] || echo "left out: the Python package (\`make python\` builds it)"
