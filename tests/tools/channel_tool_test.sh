#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# channel_tool_test.sh BARWAY LOG_AND_READ WORK_QUEUE: barway pplat, barway bench channel and the
# examples on the soft GPU. UPDATE=1 writes the snapshots of the help texts anew. Closes like the C
# tests: "name: N passed, N failed, N skipped", exit 0, 1 or 77.
[ $# = 3 ] || { echo "usage: $0 BARWAY LOG_AND_READ WORK_QUEUE" >&2; exit 1; }
. "$(dirname "$0")/checks.sh"
tool=$1 log_and_read=$2 work_queue=$3
unset BARWAY_LOG BARWAY_FAULT BARWAY_PROVIDERS BARWAY_FALLBACK BARWAY_CACHE_BYTES BARWAY_LIBCUDA
export BARWAY_DEVICES=soft

# ---- help, bad input ----------------------------------------------------------------------

check 'help of pplat' snapshot pplat-help pplat --help
check 'help of pplat, short' snapshot pplat-help pplat -s 64 -h
check 'help of bench' snapshot bench-help bench --help
check 'help of bench, short' snapshot bench-help bench -h
check 'help of bench channel' snapshot bench-channel-help bench channel --help

refused() # MESSAGE ARGUMENT...: code 2, one line, nothing on stdout
{
	want=$1
	shift
	run "$tool" "$@"
	said_no 2 "$want"
}

# message | arguments, separated by spaces
while IFS='|' read -r message arguments; do
	# shellcheck disable=SC2086
	check "bad input: $arguments" refused "$message" $arguments
done <<'TABLE'
barway pplat: unknown option '--frob'; see 'barway pplat --help'|pplat --frob
barway pplat: unexpected argument 'extra'; see 'barway pplat --help'|pplat extra
barway pplat: -d: |pplat -d 99
barway pplat: -s: 'x' is not a size: give bytes with an optional K, M or G|pplat -s x
barway pplat: -s: '7' is too small: give at least 8|pplat -s 7
barway pplat: -s: '12' is not a multiple of 8 of at most 1M|pplat -s 12
barway pplat: -s: '2M' is not a multiple of 8 of at most 1M|pplat -s 2M
barway pplat: -t: '0' is not a number from 1 to 1000000|pplat -t 0
barway pplat: -u: '601' is not a number from 0 to 600|pplat -u 601
barway pplat: -a: the soft GPU has no cuMemAlloc|pplat -a cuMemAlloc
barway pplat: -a: 'malloc' is not one of cuMemAlloc, cuMemCreate|pplat -a malloc
barway bench: say what: channel; see 'barway bench --help'|bench
barway bench: unknown 'tunnel'; see 'barway bench --help'|bench tunnel
barway bench: unknown option '--json'; see 'barway bench --help'|bench --json
barway bench channel: unknown option '-x'; see 'barway bench channel --help'|bench channel -x
barway bench channel: unexpected argument 'y'; see 'barway bench channel --help'|bench channel y
barway bench channel: -s: '8' is too small: give at least 16|bench channel -s 8
barway bench channel: -s: '100' is not a multiple of 8|bench channel -s 100
barway bench channel: -s: '2K' is too large: a message has at most 1024 bytes|bench channel -s 2K
barway bench channel: -n: '99' is not a number from 100 to 100000000|bench channel -n 99
barway bench channel: -b: '129' is not a number from 1 to 128|bench channel -b 129
barway bench channel: -t: 'many' is not a number from 1 to 1000000|bench channel -t many
TABLE

# ---- what they print ----------------------------------------------------------------------

pplat_soft()
{
	run "$tool" pplat -s 100 -t 5
	[ "$code" = 2 ] && run "$tool" pplat -s 104 -t 5
	[ "$code" = 0 ] && quiet err && plain && narrow 100 &&
		head -n 1 "$tmp/out" | grep -q '^Soft GPU: ' &&
		grep -q '^barway .* pplat: .*; provider soft ' "$tmp/out" &&
		[ "$(grep -cE '^ +[0-9]+( +[0-9.]+){8}$' "$tmp/out")" = 5 ] &&
		grep -qE '^ +8 ' "$tmp/out" && grep -qE '^ +64 ' "$tmp/out" &&
		grep -qE '^ +104 ' "$tmp/out"
}
check 'pplat on the soft GPU' pplat_soft

pplat_flag()
{
	run "$tool" pplat -s 8 -t 5 -u 0
	[ "$code" = 0 ] && [ "$(grep -cE '^ +[0-9]+( +[0-9.]+){8}$' "$tmp/out")" = 1 ]
}
check 'pplat, the flag alone' pplat_flag

pplat_no_memory()
{
	BARWAY_FAULT=device-alloc@1
	export BARWAY_FAULT
	run "$tool" pplat -t 5
	unset BARWAY_FAULT
	[ "$code" = 1 ] && quiet out && lines err 1 && grep -q '^barway pplat: .' "$tmp/err"
}
check 'pplat: no memory on the device' pplat_no_memory

bench_soft()
{
	run "$tool" bench channel -t 3 -n 500 -s 64
	[ "$code" = 0 ] && quiet err && plain && narrow 115 &&
		head -n 1 "$tmp/out" | grep -q '^Soft GPU: ' &&
		grep -qE '^thread, with fences, 16 bytes( +[0-9.]+){4}$' "$tmp/out" &&
		grep -qE '^warp, no fences, 64 bytes( +[0-9.]+){4}$' "$tmp/out" &&
		grep -qE '^block, with fences, 64 bytes( +[0-9.]+){4}$' "$tmp/out" &&
		grep -qE '^flag in GPU memory, 8 bytes( +[0-9.]+){4}$' "$tmp/out" &&
		grep -qE '^flag in pinned memory, 64 bytes( +[0-9.]+){4}$' "$tmp/out" &&
		grep -qE '^launch and wait( +[0-9.]+){4}$' "$tmp/out" &&
		grep -qE '^null command( +[0-9.]+){4}$' "$tmp/out" &&
		grep -qE '^to the GPU, warp, 64 bytes( +[0-9.]+){3}$' "$tmp/out" &&
		grep -qE '^to the CPU, each, 64 x 32, 64 bytes( +[0-9.]+){3}$' "$tmp/out" &&
		grep -q '^the channel: to the GPU: ' "$tmp/out"
}
check 'bench channel on the soft GPU' bench_soft

# Sizes end with the one that was given, those of bursts too.
bench_sizes()
{
	run "$tool" bench channel -t 2 -n 300 -s 104 -b 2
	[ "$code" = 0 ] && quiet err && grep -qE '^warp, with fences, 104 bytes ' "$tmp/out" &&
		grep -qE '^block, no fences, 64 bytes ' "$tmp/out" &&
		grep -qE '^flag in pinned memory, 104 bytes ' "$tmp/out" &&
		grep -qE '^to the GPU, warp, 104 bytes ' "$tmp/out" &&
		grep -qE '^to the CPU, warps, 2 x 1024, 104 bytes ' "$tmp/out" &&
		! grep -qE '(256|1024) bytes ' "$tmp/out" &&
		grep -q '^barway .* bench channel: .*; provider soft ' "$tmp/out"
}
check 'bench channel, sizes up to one' bench_sizes

# ---- JSON, and what is made of it ---------------------------------------------------------

members() # NAME: of the JSON that was printed
{
	cp "$tmp/out" "$tmp/json"
	python3 "$here/doctor_test_schema.py" "$here/snapshots/$1-schema.txt" "$tmp/json" >"$tmp/out"
}

json() # SCHEMA ROWS ARGUMENT...: that many rows or more, each measured and named by what it is
{
	schema=$1 rows=$2
	shift 2
	run "$tool" "$@"
	[ "$code" = 0 ] && quiet err && python3 - "$tmp/out" "$schema" "$rows" <<'PYTHON'
import json
import sys

top = json.load(open(sys.argv[1]))
rows = top['results']
assert top['schema'] == sys.argv[2], top['schema']
assert top['soft'] is True and top['device']['kind'] == 'soft'
assert len(rows) >= int(sys.argv[3]), len(rows)
names = set()
for r in rows:
    assert r['verified'] is True, r
    times = [v for v in r.values() if isinstance(v, dict) and 'median_us' in v]
    assert times, r
    for t in times:
        assert t['samples'] > 0 and 0 <= t['min_us'] <= t['median_us'] <= t['max_us'], r
    names.add(tuple(v for v in r.values() if isinstance(v, str)) + (r.get('size_bytes'),))
assert len(names) == len(rows), 'two rows have one name'
PYTHON
}

saved()
{
	run "$tool" pplat -s 16 -t 20 --save "$tmp/old.json"
	[ "$code" = 0 ] && python3 -m json.tool "$tmp/old.json" >/dev/null &&
		run "$tool" pplat -s 16 -t 20 --compare "$tmp/old.json" && [ "$code" = 0 ] &&
		has out 'gpu' && has out 'pinned'
}

if command -v python3 >/dev/null 2>&1; then
	check 'JSON of pplat' json barway-pplat-1 4 pplat --json -s 16 -t 5
	check 'JSON of pplat: its members' members pplat
	check 'JSON of bench channel' json barway-bench-channel-1 20 \
		bench channel --json -t 3 -n 500 -s 16
	check 'JSON of bench channel: its members' members bench-channel
	check 'pplat saved and compared' saved
else
	skip 'JSON' 'python3 is not there'
fi

plots() # ARGUMENT...
{
	run "$tool" "$@" --plot "$tmp/plot.svg"
	[ "$code" = 0 ] && grep -q '<svg' "$tmp/plot.svg"
}

if command -v gnuplot >/dev/null 2>&1; then
	check 'plot of pplat' plots pplat -s 64 -t 5
	check 'plot of bench channel' plots bench channel -t 3 -n 500 -s 16
else
	skip 'plots' 'gnuplot is not there'
fi

# ---- examples -----------------------------------------------------------------------------

reads_file()
{
	head -c 200003 "$tool" >"$tmp/file"
	run "$log_and_read" "$tmp/file"
	[ "$code" = 0 ] && quiet err && has out 'kernel: its words add up to ' &&
		has out ': the same' && has out '4 requests in '
}
check 'example log_and_read' reads_file

reads_empty()
{
	: >"$tmp/file"
	run "$log_and_read" "$tmp/file"
	[ "$code" = 0 ] && has out 'kernel: its words add up to 0' && has out '1 requests in '
}
check 'example log_and_read: an empty file' reads_empty

reads_nothing()
{
	run "$log_and_read" "$tmp/not-there"
	[ "$code" = 2 ] && has err 'usage: '
}
check 'example log_and_read: no such file' reads_nothing

queue()
{
	run "$work_queue" 100 50
	[ "$code" = 0 ] && quiet err && has out '200 commands fill and copy 64 KiB: the data is right' &&
		has out '50 commands that do nothing' && has out '20 more, each after a pause: ' &&
		has out ' 20 launches: the kernel leaves after 100 us' && has out 'launch of an empty kernel'
}
check 'example work_queue' queue

queue_usage()
{
	run "$work_queue" 0
	[ "$code" = 2 ] && has err 'usage: '
}
check 'example work_queue: bad input' queue_usage

total
