#!/bin/bash
# lint.sh <C, C++ and CUDA files>: formatting, a static analysis, shell scripts, and house rules that a compiler cannot check.
set -u
failed=0
step() { echo "lint: $*"; }

if command -v clang-format-14 >/dev/null; then
  step "formatting (make format mends it)"
  clang-format-14 --dry-run -Werror "$@" 2>&1 | grep -E 'error:' | cut -d: -f1 | sort | uniq -c
  [ "${PIPESTATUS[0]}" = 0 ] || failed=1
else
  step "formatting is not checked: clang-format-14 is not here, and other versions format otherwise"
fi

if command -v cppcheck >/dev/null; then
  step "cppcheck"
  # Not torch/, whose registrations are macros of PyTorch's. The suppressed ones do not hold here: `Args{}` initialises
  # every member, and the slots' tables hold pointers.
  printf '%s\n' "$@" | grep -E '^(src|cli)/.*\.cpp$' |
    cppcheck --file-list=- --std=c++20 --language=c++ --enable=warning,performance --inline-suppr -q --error-exitcode=1 \
      -Iinclude -Isrc --suppress=missingInclude --suppress=unknownMacro --suppress=preprocessorErrorDirective \
      --suppress=uninitDerivedMemberVar --suppress=uninitMemberVar || failed=1
fi

if command -v shellcheck >/dev/null; then
  step "shellcheck"
  git ls-files -z '*.sh' .ci/run | xargs -0 -r shellcheck || failed=1
fi

step "house rules"
rule() {  # rule <what is wrong> <pattern> <path>...
  local what=$1 pattern=$2
  shift 2
  if git grep -nE "$pattern" -- "$@"; then
    echo "lint: $what"
    failed=1
  fi
}
rule "includes go by box, not by folder" '#include "\.\./' '*.h' '*.hpp' '*.c' '*.cpp' '*.cu' '*.cuh'
rule "a library never prints or aborts" '\b(printf|puts|fputs|abort|exit|std::cerr|std::cout)\b *[(<]' 'src/core' 'src/ops' 'src/entry' 'src/reference' 'src/cpu' 'src/cuda' 'torch/*.cpp'
rule "work is finished or left out" '(TODO|FIXME|XXX)' ':!tools/lint.sh'
[ $failed = 0 ] && echo "lint: clean"
exit $failed
