#!/bin/sh
# exports_test.sh <nm> <libbrim.so> <include folder>: the library exports what the headers declare, and nothing else.
set -eu
exported=$("$1" -D --defined-only "$2" | awk '{print $3}' | LC_ALL=C sort -u)
# Written in the headers as "BRIM_API <type> brim_<name>(" or, for the ops, as a line of ops.inc.
declared=$({
  grep -rhoE 'BRIM_API [a-z_ *]+[ *]brim_[a-z_]+\(' "$3/brim" | grep -oE 'brim_[a-z_]+\(' | tr -d '('
  sed -nE 's/^BRIM_OP\(([a-z_]+), ([a-z_]+),.*/brim_\1_\2/p' "$3/brim/ops.inc"
} | LC_ALL=C sort -u)
if [ "$exported" != "$declared" ]; then
  echo "exported by the library:"; echo "$exported"
  echo "declared in the headers:"; echo "$declared"
  exit 1
fi
echo "$(echo "$exported" | wc -l) functions exported, all declared"
