#!/usr/bin/env bash
# fuzz.sh [TIME]: runs every fuzz test of the module for TIME (10s). What it finds is left in testdata/fuzz, as a test from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
found=0
while read -r package; do
  for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
    found=$((found + 1))
    echo "== $package $target, $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
  done
done < <(grep -rl --include '*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
echo "fuzz tests run: $found"
[ "$found" -gt 0 ]
