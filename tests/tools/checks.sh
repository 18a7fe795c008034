# SPDX-License-Identifier: BSD-3-Clause
#
# What the tests in this folder share; they source it once they have looked at their arguments. Makes
# $tmp, gone at the end, and $here. run(), this one or a test's own, leaves $code, $tmp/out and
# $tmp/err; check() and skip() count; total() closes like the C tests: "name: N passed, N failed, N
# skipped", exit 0, 1 or 77.
test=$(basename "$0")
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0 skipped=0 code=
export LC_ALL=C

# run PROGRAM ARGUMENT...; MESON_EXE_WRAPPER is an emulator, where one is needed.
run()
{
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

# check NAME COMMAND...: the command says whether it passed
check() { judge "$@"; }

judge() # what check() does, for a test that does more then
{
	name=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf '%s: %s: FAILED (exit %s)\n' "$test" "$name" "$code"
		shown
	fi
}

# What a failed check shows; a test may have a better one.
shown()
{
	sed 's/^/    out: /' "$tmp/out" | head -60
	sed 's/^/    err: /' "$tmp/err" | head -20
}

skip() # NAME REASON
{
	skipped=$((skipped + 1))
	printf '%s: %s: skipped: %s\n' "$test" "$1" "$2"
}

total()
{
	printf '%s: %s passed, %s failed, %s skipped\n' "$test" "$passed" "$failed" "$skipped"
	[ "$failed" = 0 ] || exit 1
	[ "$passed" != 0 ] || exit 77
	exit 0
}

has() { grep -qF -- "$2" "$tmp/$1"; }
quiet() { [ ! -s "$tmp/$1" ]; }
lines() { [ "$(wc -l <"$tmp/$1")" -eq "$2" ]; }
plain() { ! grep -q '[^ -~]' "$tmp/out"; }
narrow() { [ -z "$(awk -v w="$1" 'length($0) > w' "$tmp/out")" ]; }

# What ran printed a help text, that of the snapshot NAME. UPDATE=1 writes it anew.
helped() # NAME
{
	[ "$code" = 0 ] && quiet err && plain && narrow 80 || return 1
	if [ -n "$UPDATE" ]; then cp "$tmp/out" "$here/snapshots/$1.txt"; fi
	diff -u "$here/snapshots/$1.txt" "$tmp/out"
}

# The help text that "$tool" ARGUMENT... prints is that of the snapshot NAME.
snapshot() # NAME ARGUMENT...
{
	file=$1
	shift
	run "$tool" "$@"
	helped "$file"
}

# What ran said no: one line, nothing on stdout.
said_no() # CODE MESSAGE
{
	[ "$code" = "$1" ] && quiet out && lines err 1 && has err "$2"
}
