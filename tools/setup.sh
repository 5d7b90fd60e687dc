#!/bin/sh
# Makes a Debian 12 or 13 machine ready. Installs only what is missing.
#   tools/setup.sh          what building brim and its C++ tests needs
#   tools/setup.sh lint     what `make lint` needs
#   tools/setup.sh python   a Python environment in .venv with PyTorch and what the Python tests need
set -eu

build="g++ cmake ninja-build ccache pkg-config libgtest-dev libhwy-dev libcli11-dev nlohmann-json3-dev libfmt-dev python3"
lint="clang-format-14 cppcheck shellcheck"
python="torch==2.11.0 transformers==5.24.0 pytest numpy scikit-build-core"

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# debian <package>...: installs those that are missing; where that cannot be done, names them and goes on.
debian() {
  missing=""
  if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; needed are the equivalents of: $*"
    return
  fi
  for package in "$@"; do installed "$package" || missing="$missing $package"; done
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "setup: missing and not installed, since this is not root:$missing"
    return
  fi
  echo "setup: installing$missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  for package in $missing; do
    apt-cache show "$package" >/dev/null 2>&1 || { echo "setup: this Debian has no $package"; continue; }
    available="${available:-} $package"
  done
  # shellcheck disable=SC2086  # the list is words
  apt-get install -y -qq --no-install-recommends ${available:-} >/dev/null
}

cmake_is_new_enough() {
  command -v cmake >/dev/null && cmake --version | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || v[2] >= 25) }'
}

case "${1:-build}" in
  build)
    # shellcheck disable=SC2086
    debian $build
    cmake_is_new_enough || { echo "setup: CMake 3.25 or newer is needed"; exit 1; }
    ;;
  lint)
    # shellcheck disable=SC2086
    debian $lint
    ;;
  python)
    interpreter=${PYTHON:-python3}
    # Debian keeps apart what makes environments, and the headers that torch.compile needs for the CPU.
    "$interpreter" -c "import venv, ensurepip" 2>/dev/null || debian python3 python3-venv
    "$interpreter" -c "import os, sysconfig; os.stat(sysconfig.get_path('include') + '/Python.h')" 2>/dev/null ||
      debian python3-dev
    "$interpreter" -c "import sys; sys.exit(sys.version_info < (3, 10))" || { echo "setup: Python 3.10 or newer is needed"; exit 1; }
    [ -x .venv/bin/python ] || "$interpreter" -m venv .venv
    echo "setup: installing PyTorch and the Python tools into .venv (about 4.6 GB)"
    # shellcheck disable=SC2086
    .venv/bin/python -m pip install -q --disable-pip-version-check --progress-bar off $python
    ;;
  *)
    echo "usage: tools/setup.sh [build|lint|python]"
    exit 2
    ;;
esac
