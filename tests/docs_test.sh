#!/bin/bash
# docs_test.sh <repository> <folder of the command>: the code in README.md and docs/ is what the repository holds. A comment on the
# line before a code block says how it is held to that:
#   <!-- is: path -->     the block is that file, word for word
#   <!-- from: path -->   its lines stand in that file, in this order ("..." leaves lines out)
#   <!-- run -->          its lines run without an error
# Links to files lead somewhere, tests that are named exist, and tables of measured rows are what the rows say.
set -u
cd "$1" || exit 1
export PATH=$2:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
checked=0
fail() { echo "$*"; failed=1; }

# Splits a page into blocks: <n>.how and <n>.code.
split() {
  rm -f "$work"/*.how "$work"/*.code
  awk -v work="$work" '
    /^<!-- (is: |from: |run)/ { how = $0; gsub(/^<!-- | -->$/, "", how); next }
    /^```/ && inside { inside = 0; close(code); next }
    /^```/ { inside = 1; n++; code = work "/" n ".code"; printf "" > code
             if (how != "") print how > (work "/" n ".how"); how = ""; next }
    inside { print > code }
    { if (!inside) how = "" }' "$1"
}

in_order() {  # in_order <block> <file>
  awk 'NR == FNR { line[++n] = $0; next }
       { while (want <= n && line[want] ~ /^[ \t]*\.\.\.$/) want++ }
       want <= n && $0 == line[want] { want++ }
       END { while (want <= n && line[want] ~ /^[ \t]*\.\.\.$/) want++; if (want <= n) { print "not there: " line[want]; exit 1 } }' want=1 "$1" "$2"
}

for page in README.md docs/*.md; do
  split "$page"
  for how in "$work"/*.how; do
    [ -e "$how" ] || continue
    code=${how%.how}.code
    checked=$((checked + 1))
    case $(cat "$how") in
      "is: "*) diff "$code" "$(sed 's/^is: //' "$how")" || fail "$page: a block differs from its file" ;;
      "from: "*) in_order "$code" "$(sed 's/^from: //' "$how")" || fail "$page: a block is not from its file" ;;
      run) bash -eu "$code" >"$work/log" 2>&1 || { cat "$work/log"; fail "$page: a block does not run"; } ;;
    esac
  done
  while read -r link; do
    [ -e "$(dirname "$page")/$link" ] || fail "$page: the link $link leads nowhere"
  done < <(grep -oE '\]\([^)#:]+\)' "$page" | tr -d ']()')
  # shellcheck disable=SC2016  # the backticks are Markdown's
  while read -r name; do
    grep -rqw "$name" tests || fail "$page: there is no test $name"
  done < <(grep -E '^\| [0-9, ]+ \|' "$page" | grep -oE '`[A-Za-z]+[A-Za-z0-9_]*`' | tr -d '`')
done
python3 tools/results_table.py --check README.md || failed=1
[ $checked -gt 0 ] || fail "no block was checked"
[ $failed = 0 ] && echo "$checked code blocks are as they say"
exit $failed
