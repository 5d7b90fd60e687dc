#!/bin/sh
# run.sh <cmake> <brim's build folder> <work folder>: installs brim and builds the consumer against the install tree.
set -eu
cmake=$1 build=$2 work=$3 source=$(dirname "$0")
rm -rf "$work"
"$cmake" --install "$build" --prefix "$work/prefix" >"$work.log" 2>&1 || { cat "$work.log"; exit 1; }
"$cmake" -G Ninja -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release
"$cmake" --build "$work/build"
"$work/build/from_c"
"$work/build/from_cpp"

if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name brim.pc)")
  export PKG_CONFIG_PATH
  # shellcheck disable=SC2046  # the flags are words
  ${CC:-cc} -std=c11 "$source/main.c" -o "$work/from_pkg_config" $(pkg-config --cflags --libs brim) \
    -Wl,-rpath,"$(pkg-config --variable=libdir brim)"
  "$work/from_pkg_config"
fi
