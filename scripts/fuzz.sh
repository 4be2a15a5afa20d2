#!/usr/bin/env bash
# fuzz.sh [TIME]: runs every fuzz test of the module for TIME (10s). What it finds is left in testdata/fuzz, as a test from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-10s}
found=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while read -r package; do
  go test -c -fuzz . -o "$work/fuzz.test" "$package" # once for all its fuzz tests: linking takes longer than a short run
  for target in $("$work/fuzz.test" -test.list '^Fuzz' | grep '^Fuzz' || true); do
    found=$((found + 1))
    echo "== $package $target, $time"
    (cd "$package" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" -test.fuzzminimizetime 5s \
      -test.fuzzcachedir "$(go env GOCACHE)/fuzz/idemstore/$package")
  done
done < <(grep -rl --include '*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
echo "fuzz tests run: $found"
[ "$found" -gt 0 ]
