#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# instructions.sh PROGRAM BOUNDS COMPILER [WHY]: small copies take no more instructions than BOUNDS
# says for this compiler ("gcc-12"). Counted by valgrind, on the soft GPU, from the caller's loop to
# the end of the store or load kernel for AVX2: valgrind knows no AVX-512. WHY: not in this build.
set -u

program=$1 bounds=$2 compiler=$3 why=${4-}
export LC_ALL=C

skip() {
	echo "instructions: skipped: $1"
	echo "instructions: 0 passed, 0 failed, 1 skipped"
	exit 77
}

[ -z "$why" ] || skip "$why"
[ "$(uname -m)" = x86_64 ] || skip "the numbers are for x86_64"
grep -qw avx2 /proc/cpuinfo || skip "this CPU has no AVX2"
command -v valgrind >/dev/null && command -v callgrind_annotate >/dev/null ||
	skip "valgrind is not there (scripts/setup.sh ci)"
grep -q "^$compiler " "$bounds" || skip "$bounds has no numbers for $compiler"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
if ! LD_BIND_NOW=1 BARWAY_CPU_MASK=avx2 BARWAY_LOG=none valgrind --tool=callgrind \
	--callgrind-out-file="$tmp/out" "$program" >"$tmp/said" 2>&1; then
	cat "$tmp/said"
	echo "instructions: 0 passed, 1 failed, 0 skipped"
	exit 1
fi
# Of each case's function, with all that it called: instructions of 100 copies.
callgrind_annotate --inclusive=yes --threshold=100 "$tmp/out" | tr -d , |
	sed -n 's/^ *\([0-9]*\) .*:count_\([a-z]*\)_\([0-9]*\) .*/\2 \3 \1/p' >"$tmp/counts"

passed=0 failed=0
while read -r who direction bytes bound; do
	[ "$who" = "$compiler" ] || continue
	count=$(sed -n "s/^$direction $bytes //p" "$tmp/counts" | head -n 1)
	count=$((${count:-999999} / 100))
	if [ "$count" -le "$bound" ]; then
		passed=$((passed + 1))
	else
		echo "instructions: $direction the GPU, $bytes bytes: $count instructions, at most $bound"
		failed=$((failed + 1))
	fi
	echo "$direction $bytes: $count (at most $bound)" >>"$tmp/table"
done <"$bounds"
cat "$tmp/table"
echo "instructions: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" -ge 12 ]
