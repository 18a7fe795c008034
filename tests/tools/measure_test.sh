#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# measure_test.sh BARWAY GDRAPI-FOLDER [LIBSPOIL LIBFAKENV LIBCUDA]: copylat, copybw, apiperf and plot
# on the soft GPU, and over a driver that is not there where that can be preloaded. UPDATE=1 writes
# the snapshots of help texts and JSON anew. Closes like the C tests: "name: N passed, N failed,
# N skipped", exit 0, 1 or 77.
[ $# = 2 ] || [ $# = 5 ] ||
	{ echo "usage: $0 BARWAY GDRAPI-FOLDER [LIBSPOIL LIBFAKENV LIBCUDA]" >&2; exit 1; }
. "$(dirname "$0")/checks.sh"
absolute() { case $1 in '' | /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }
tool=$(absolute "$1") gdrapi=$2 spoil=$(absolute "$3") fakenv=$(absolute "$4") libcuda=$5
unset BARWAY_LOG BARWAY_FAULT BARWAY_PROVIDERS BARWAY_FALLBACK BARWAY_CACHE_BYTES BARWAY_LIBCUDA
unset GDRCOPY_ENABLE_LOGGING LD_PRELOAD
# The program knows where its library is; a libcuda that is not there must not be found by chance.
[ -n "$MESON_EXE_WRAPPER" ] || unset LD_LIBRARY_PATH
export BARWAY_DEVICES=soft

# run ARGUMENT...: code, $tmp/out, $tmp/err. MESON_EXE_WRAPPER: an emulator where that is needed.
run()
{
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

# with NAME=VALUE ARGUMENT...: run() with that in the environment
with()
{
	setting=$1
	shift
	# shellcheck disable=SC2086
	env "$setting" $MESON_EXE_WRAPPER "$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

soft_first() { head -1 "$tmp/out" | grep -q '^Soft GPU: '; }
rows() { grep -cE '^ +[0-9]+ ' "$tmp/out"; }
# Locks that the library makes anew in a child are held for ever in that sanitizer's eyes.
forks() { [ "$SANITIZER" != thread ]; }

# ---- help, usage ------------------------------------------------------------------------

snapshot() # VERB ARGUMENT...
{
	file=$1-help
	run "$@"
	helped "$file"
}
for verb in copylat copybw apiperf plot; do
	check "help of $verb" snapshot $verb --help
	check "help of $verb, short" snapshot $verb -h
done
check 'help before other options' snapshot copylat -s 1K --help

# A link named like GDRCopy's program.
linked()
{
	ln -s "$tool" "$tmp/gdrcopy_copylat" && ln -s "$tool" "$tmp/gdrcopy_frob" || return 1
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$tmp/gdrcopy_copylat" -h >"$tmp/out" 2>"$tmp/err"
	code=$?
	[ "$code" = 0 ] && diff "$here/snapshots/copylat-help.txt" "$tmp/out" || return 1
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$tmp/gdrcopy_copylat" -x >"$tmp/out" 2>"$tmp/err"
	code=$?
	[ "$code" = 2 ] && has err "barway copylat: unknown option '-x'" || return 1
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$tmp/gdrcopy_frob" -h >"$tmp/out" 2>"$tmp/err"
	code=$?
	[ "$code" = 2 ] && lines err 1 && has err "there is no verb 'frob'"
}
check "links by GDRCopy's names" linked

refused() # MESSAGE ARGUMENT...: code 2, one line, nothing on stdout
{
	want=$1
	shift
	run "$@"
	said_no 2 "$want"
}

mkdir "$tmp/dir.svg"
# message | arguments, separated by spaces
while IFS='|' read -r message arguments; do
	# shellcheck disable=SC2086
	check "bad input: $arguments" refused "$message" $arguments
done <<TABLE
barway copylat: -d: |copylat -d 99 -s 1
barway copylat: -d: |copylat -d 0000:ff:1f.7 -s 1
barway copylat: -s: 'abc' is not a size: give bytes with an optional K, M or G|copylat -s abc
barway copylat: -s: '-1' is not a size: give bytes with an optional K, M or G|copylat -s -1
barway copylat: -s: '1T' is not a size: give bytes with an optional K, M or G|copylat -s 1T
barway copylat: -s: '1.5M' is not a size: give bytes|copylat -s 1.5M
barway copylat: -s: '99999999999G' is not a size: give bytes|copylat -s 99999999999G
barway copylat: -s: '0' is too small: give at least 1|copylat -s 0
barway copylat: --copy-size: '0' is too small: give at least 1|copylat --copy-size 0
barway copylat: -o: 'x' is not a size: give bytes|copylat -o x
barway copylat: -r: '0' is not a number from 1 to 1000000|copylat -r 0
barway copylat: -r: '1000001' is not a number from 1 to 1000000|copylat -r 1000001
barway copylat: -w: 'many' is not a number from 1 to 1000000|copylat -w many
barway copylat: --warmup: '-1' is not a number from 0 to 1000000|copylat --warmup -1
barway copylat: --direction: 'up' is not one of to, from, both|copylat --direction up
barway copylat: --methods: 'barway,x' is neither 'all' nor a list of: barway, |copylat --methods barway,x
barway copylat: --methods: '' is neither 'all' nor a list|copylat --methods=
barway copylat: --methods: cumemcpy is not there on this device: there is no CUDA|copylat --methods cumemcpy
barway copylat: --methods: barway_threads is not there on this device: give --helpers N|copylat --methods barway_threads
barway copylat: --methods: barway_resident is not there on this device: give --resident|copylat --methods barway_resident
barway copylat: --helpers: '0' is not a number from 1 to 64|copylat --helpers 0
barway copylat: -a: 'malloc' is not one of cuMemAlloc, cuMemCreate|copylat -a malloc
barway copylat: -a: the soft GPU has no cuMemAlloc|copylat -a cuMemAlloc
barway copylat: -M: 'uc' is not one of default, wc, cache, device|copylat -M uc
barway copylat: -t: '0' is not a number from 1 to 64|copylat -t 0
barway copylat: -p: '65' is not a number from 1 to 64|copylat -p 65
barway copylat: -p, -t: 128 callers are too many: give at most 64|copylat -p 16 -t 8
barway copylat: --numa: 'up' is not one of near, far, node:N|copylat --numa up
barway copylat: --numa: 'node:' is not one of near, far, node:N|copylat --numa node:
barway copylat: '$tmp/x.pdf' ends in neither .svg nor .png|copylat --plot $tmp/x.pdf
barway copylat: '/none/x.svg' cannot be written: |copylat --plot /none/x.svg
barway copylat: --save: '/none/x.json' cannot be written: No such file|copylat --save /none/x.json
barway copybw: --save: '$tmp' cannot be written: Is a directory|copybw --save $tmp
barway copybw: --plot: '$tmp/dir.svg' cannot be written: Is a directory|copybw --plot $tmp/dir.svg
barway paths: --save: '/none/x.json' cannot be written: No such file|paths --save /none/x.json
barway copylat: size and offset: 99999999999 bytes are more than the |copylat --copy-size 99999999999
barway copylat: size and offset: 100000000000 bytes are more than the |copylat --copy-size 1 -o 99999999999
barway copylat: size and offset: 18446744073709551615 bytes are more|copylat -o 18446744073709551615
barway copybw: size and offset: 1099511627776 bytes are more than the |copybw -c 1024G
barway copylat: size and offset of 2 callers: 2199023255552 bytes are more than the |copylat -t 2 -s 1024G
barway copybw: size and offset of 5 callers: 335544320 bytes are more than the 268435456 of|copybw -t 5 -s 64M
barway copybw: -w, -r, --warmup: callers measure over one interval|copybw -p 2 -w 5
barway copylat: -w, -r, --warmup: callers measure over one interval|copylat -t 2 -r 5
barway copylat: -w, -r, --warmup: callers measure over one interval|copylat -t 2 --warmup 0
barway apiperf: -s: 1099511627776 bytes are more than the |apiperf -s 1024G
barway copylat: --compare: '$tmp/none.json': No such file|copylat --compare $tmp/none.json
barway copylat: --compare prints a table: not together with --json|copylat --json --compare x
barway copylat: unknown option '--frob'; see 'barway copylat --help'|copylat --frob
barway copylat: -s needs a value; see 'barway copylat --help'|copylat -s
barway copylat: unexpected argument 'extra'; see 'barway copylat --help'|copylat extra
barway copylat: -s and --copy-size: sizes up to one, or one: leave one away|copylat -s 32 --copy-size 64
barway copybw: -c: '0' is too small|copybw -c 0
barway copybw: -d: |copybw -d 99
barway copybw: -t: 'x' is not a number from 1 to 64|copybw -t x
barway apiperf: -s: '7' is too small: give at least 8|apiperf -s 7
barway apiperf: --histograms are not in the JSON|apiperf --json --histograms
barway apiperf: -n: '0' is not a number from 1 to 1000000|apiperf -n 0
barway apiperf: -a: the soft GPU has no cuMemAlloc|apiperf -a cuMemAlloc
barway apiperf: -d: |apiperf -d 99
barway plot: no output: give -o FILE.svg or -o FILE.png|plot x.json
barway plot: no result to draw: give a file|plot -o $tmp/x.svg
barway plot: '$tmp/none.json': No such file|plot -o $tmp/x.svg $tmp/none.json
barway plot: 9 results are too many for one picture|plot -o $tmp/x.svg 1 2 3 4 5 6 7 8 9
TABLE
check 'bad input: empty size' refused "-s: '' is not a size" copylat -s ''
check 'bad input: a line end makes no second line' refused "-s: '1?2' is not a size" copylat -s '1
2'

other_mapping()
{
	run copylat -M wc -s 1 -w 1 -r 1
	[ "$code" = 0 ] || { [ "$code" = 2 ] && lines err 1 && has err 'are cache, not wc'; } || return 1
	run copylat -M device -s 1
	[ "$code" = 2 ] && lines err 1 && has err ', not device: leave'
}
check 'a mapping of another kind is refused' other_mapping

far_of_one_node()
{
	[ ! -e /sys/devices/system/node/node1 ] || return 0
	refused 'this machine has one NUMA node: there is no far one' copybw --numa far -s 4K
}
check 'no far node on a machine with one' far_of_one_node

node_by_number()
{
	run copylat -s 1 -w 2 -r 2 --numa node:0 --json
	if [ "$code" = 2 ]; then
		lines err 1 && has err 'built without libnuma: '
	else
		[ "$code" = 0 ] && has out '"numa": "node:0"' && has out '"numa_node": 0' &&
			refused 'there is no node 1023 with CPUs' copylat -s 1 --numa node:1023
	fi
}
[ ! -r /sys/devices/system/node/node0/cpulist ] || check 'a NUMA node by its number' node_by_number

# ---- sizes that can never be: code 2, one line --------------------------------------------

larger_than_memory() { refused "barway $1: size and offset" "$@" -o 64G -s 1K; }
check 'more memory than there is' larger_than_memory copylat
! forks || check 'more memory than there is, two callers' larger_than_memory copybw -t 2

larger_than_aperture() # ARGUMENT...
{
	with BARWAY_SOFT_BAR1=1M "$@"
	[ "$code" = 2 ] && lines err 1 && grep -q "^barway $1: .*aperture" "$tmp/err"
}
check 'more than the aperture holds' larger_than_aperture copylat -s 16M -r 1 -w 1
! forks || check 'more than the aperture holds, in a caller' larger_than_aperture copylat -p 2 -s 16M
largest_that_fits()
{
	with BARWAY_SOFT_BAR1=1M copybw -t 2 --methods reference --direction to
	[ "$code" = 0 ] && quiet err && [ "$(rows)" = 3 ] && grep -qE '^ +524288 ' "$tmp/out" ||
		return 1
	with BARWAY_SOFT_BAR1=1M copylat --methods reference --direction to -w 2 -o 600K
	[ "$code" = 0 ] && quiet err && [ "$(rows)" = 19 ]
}
! forks || check 'by default sizes that fit' largest_that_fits
check 'more than the aperture holds, apiperf' larger_than_aperture apiperf -s 16M

# ---- copylat ------------------------------------------------------------------------------

copylat_soft()
{
	run copylat -s 4K -r 5 -w 5 --warmup 2 -c -P
	[ "$code" = 0 ] && quiet err && plain && soft_first &&
		sed -n 2p "$tmp/out" |
		grep -q '^barway .* copylat: .*; provider soft.*; kernels .*/' &&
		sed -n 3p "$tmp/out" | grep -q '; kernel .*; 20..-..-..T' &&
		has out 'map 64 KiB: first time ' && has out 'barway_flush(): ' &&
		! has out cuMemcpy && ! has out 'slower than' && has out 'in a row' &&
		[ -z "$(awk 'NR > 3 && length($0) > 130' "$tmp/out")" ] && [ "$(rows)" = 26 ]
}
check 'copylat on the soft GPU' copylat_soft

copylat_pinned()
{
	command -v taskset >/dev/null 2>&1 || return 0
	cpu=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')
	MESON_EXE_WRAPPER="taskset -c $cpu $MESON_EXE_WRAPPER"
	run copylat -s 1 -r 2 -w 2
	MESON_EXE_WRAPPER=${MESON_EXE_WRAPPER#taskset -c "$cpu" }
	[ "$code" = 0 ] && has out ", pinned to CPU $cpu; "
}
check 'copylat pinned to one CPU' copylat_pinned

threads_of_environment()
{
	with BARWAY_COPY_THREADS=2 copylat --copy-size 64 -r 2 -w 2 --methods barway_threads --json
	[ "$code" = 0 ] && has out '"helpers": 2' && has out '"barway_threads": {'
}
check 'helper threads that the environment asks for' threads_of_environment

copylat_one_way() # DIRECTION TITLE OTHER-TITLE
{
	run copylat -s 100 -r 2 -w 2 --warmup 0 --direction "$1" -o 13
	[ "$code" = 0 ] && grep -q "^$2, " "$tmp/out" && ! grep -q "^$3, " "$tmp/out" &&
		[ "$(rows)" = 8 ] && grep -qE '^ +100 ' "$tmp/out"
}
check 'copylat to the GPU only' copylat_one_way to 'host to GPU' 'GPU to host'
check 'copylat from the GPU only' copylat_one_way from 'GPU to host' 'host to GPU'

copylat_uncached()
{
	with BARWAY_CACHE_BYTES=0 copylat -s 1 -r 2 -w 2
	[ "$code" = 0 ] && has out 'from the cache never'
}
check 'copylat without a cache' copylat_uncached

one_size() # VERB OPTION
{
	run "$1" "$2" 12345 -r 2 -w 2
	[ "$code" = 0 ] && [ "$(rows)" = 2 ] && [ "$(grep -cE '^ +12345 ' "$tmp/out")" = 2 ]
}
check 'copylat of one size' one_size copylat --copy-size
check 'copybw of one size' one_size copybw -c

methods()
{
	run copylat --methods barway_ce,reference -s 64 -r 2 -w 2
	[ "$code" = 0 ] && has out ' CE ' && has out reference && ! has out VISIBLE
}
check 'methods are chosen' methods

helpers()
{
	run copylat --methods barway_threads -s 64 -r 2 -w 2 --helpers 2
	[ "$code" = 0 ] && has out ' threads' && ! has out 'not measured' &&
		run copybw -s 4K -r 2 -w 2 && [ "$code" = 0 ] &&
		has out 'not measured: barway_threads: give --helpers N'
}
check 'helper threads' helpers

resident()
{
	run "$@" --methods barway_resident,reference --resident
	[ "$code" = 0 ] && quiet err && has out resident && ! has out 'not measured' &&
		run copybw -s 4K -r 2 -w 2 && [ "$code" = 0 ] &&
		has out 'barway_resident: give --resident'
}
check 'the resident copier, copylat' resident copylat -s 64 -r 2 -w 2
check 'the resident copier, copybw' resident copybw -s 4K -r 2 -w 2
! forks || check 'the resident copier, callers' resident copylat --copy-size 64 -p 2

no_terminal()
{
	run copylat -s 1 -r 2000 -w 2000
	[ "$code" = 0 ] && quiet err
}
check 'no progress where nobody watches' no_terminal

on_a_terminal()
{
	command -v script >/dev/null 2>&1 || return 0
	command="$MESON_EXE_WRAPPER $tool copylat --copy-size 32M -w 1500 --direction to --json \
		--methods reference,barway"
	script -qec "$command" /dev/null </dev/null >"$tmp/out" 2>"$tmp/err"
	code=$?
	[ "$code" = 0 ] && has out ' GPU, 32 MiB ...'
}
[ -n "$MESON_EXE_WRAPPER" ] || check 'progress on a terminal' on_a_terminal

# ---- copybw, callers, apiperf -------------------------------------------------------------

copybw_soft()
{
	run copybw -s 64K -r 5 -w 5
	[ "$code" = 0 ] && quiet err && plain && soft_first && has out 'copybw: ' && has out 'GB/s' &&
		has out 'CPU' && has out ' CE ' && has out 'auto pinned' && ! has out cuMemcpy && [ "$(rows)" = 6 ]
}
check 'copybw on the soft GPU' copybw_soft

callers() # VERB ARGUMENT...
{
	run "$@" --methods barway,reference
	[ "$code" = 0 ] && quiet err && plain && soft_first && has out 'one caller, and 4 at once' &&
		has out 'all together' && [ "$(rows)" = 4 ] || return 1
	if [ "$(nproc)" -lt 4 ]; then has out 'warning: 4 callers take turns on '
	else ! has out 'warning: '; fi
}

# What all move together takes no more CPUs than there are, and nobody's times are nothing.
callers_possible()
{
	run copybw -c 1M --direction to --methods barway -t 32 --json
	[ "$code" = 0 ] && quiet err && python3 - "$tmp/out" <<-END
	import json, sys
	result = json.load(open(sys.argv[1]))
	row = result["results"][0]
	x = row["together"]["barway"]
	busy = x["all_gbs"] * 1e9 / 2**30 * x["all_cpu_seconds_per_gib"]
	most = row["size_bytes"] / row["all"]["barway"]["min_us"] / 1e3 * result["cpus"]
	print(busy, "CPUs of", result["cpus"], "at most", most, "GB/s", x)
	assert busy < 1.1 * result["cpus"] and x["all_gbs"] < 1.1 * most
	assert x["fastest_us"] > 0 and 0 < x["least_gbs"] <= x["most_gbs"]
	END
}

# They take no CPU time, which would be that of the one in its process.
idle_callers_sleep()
{
	run copylat --copy-size 1M --direction to --methods reference -t 48 --json
	[ "$code" = 0 ] && quiet err && python3 - "$tmp/out" <<-END
	import json, sys
	row = json.load(open(sys.argv[1]))["results"][0]
	cpu = row["together"]["reference"]["one_cpu_seconds_per_gib"] / 1024 * 1e6
	print("microseconds of CPU time", cpu, row["one"]["reference"])
	assert cpu < 1.6 * row["one"]["reference"]["min_us"]
	END
}
if forks; then
	check 'four threads' callers copylat -t 4 --copy-size 4K
	check 'two processes of two threads' callers copybw -p 2 -t 2 -c 64K
	if [ -z "$MESON_EXE_WRAPPER" ] && command -v python3 >/dev/null 2>&1; then
		check 'callers move what the CPUs can' callers_possible
		check 'idle callers sleep' idle_callers_sleep
	fi
else
	skip 'callers' 'the thread sanitizer loses sight of locks in a forked child'
fi

# A process that dies does not leave the others waiting for it.
a_caller_dies()
{
	[ -d "/proc/$$" ] || return 0
	"$tool" copylat -p 2 -s 16M >"$tmp/out" 2>"$tmp/err" </dev/null &
	parent=$!
	child=
	for i in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.2
		child=$(cut -d ' ' -f 1 "/proc/$parent/task/$parent/children" 2>/dev/null)
		[ -z "$child" ] || [ "$i" -lt 5 ] || break
	done
	[ -n "$child" ] && kill -9 "$child"
	wait "$parent"
	code=$?
	[ "$code" = 1 ] && lines err 1 && has err 'process 1 of 2 was ended by signal 9'
}
if forks && [ -z "$MESON_EXE_WRAPPER" ] && [ -e "/proc/$$/task/$$/children" ]; then
	check 'a process that dies' a_caller_dies
fi

apiperf_soft()
{
	with LD_LIBRARY_PATH="$gdrapi" apiperf -s 256K -n 10 -w 2 --histograms
	[ "$code" = 0 ] && quiet err && plain && soft_first && has out 'libgdrapi.so.2: /' &&
		grep -qE '^barway_map, 256 KiB, cold +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ ' "$tmp/out" &&
		grep -q '^gdr_pin_buffer, 64 KiB, cached ' "$tmp/out" &&
		grep -q '^barway_flush: 10 calls$' "$tmp/out" && grep -q ' us  *[0-9]*  ##' "$tmp/out"
}
if [ -n "$MESON_EXE_WRAPPER" ]; then
	skip 'apiperf with libgdrapi.so.2' 'the emulator has its own way to find libraries'
else
	check 'apiperf with libgdrapi.so.2' apiperf_soft
fi

apiperf_alone()
{
	with LD_LIBRARY_PATH=/nonexistent apiperf -s 1K -n 5 --save "$tmp/api.json"
	[ "$code" = 0 ] && quiet err && { has out 'no calls of libgdrapi.so.2: ' ||
		has out 'libgdrapi.so.2: /'; } && grep -q '^barway_map, 1 KiB, cold ' "$tmp/out"
}
check 'apiperf without' apiperf_alone

# ---- wrong data, failing copies -------------------------------------------------------------

spoiled() # LINES ARGUMENT...: code 1, and so many lines that say which copies were wrong
{
	want=$1
	shift
	with "LD_PRELOAD=$spoil" "$@"
	[ "$code" = 1 ] && lines err "$want" && ! grep -v "^barway $1: .*wrong data" "$tmp/err"
}
spoiled_lat()
{
	spoiled 8 copylat -s 2 -w 2 -r 2 &&
		has err 'wrong data: 2 bytes to GPU, barway_auto: 1 bytes differ, the first at 1 is 0x'
}
spoiled_json()
{
	spoiled 2 copylat --copy-size 9 --direction from -w 2 -r 2 --json &&
		has out '"verified": false' && has out '"mismatches": 2'
}
failing_copy() # FAULT ARGUMENT...
{
	fault=$1
	shift
	with "BARWAY_FAULT=$fault" "$@"
	[ "$code" = 1 ] && lines err 1 && grep -q "^barway $1: ." "$tmp/err"
}
check 'a copy that fails' failing_copy copy@9 copylat -s 8 -w 2 -r 2
check 'a copy that fails, copybw' failing_copy copy@9 copybw -s 4K -w 2 -r 2
! forks || check 'a copy that fails, in a caller' failing_copy copy@3 copylat -p 2 -s 8
check 'memory that fails, apiperf' failing_copy device-alloc@4 apiperf -s 1K -n 5
if [ -n "$spoil" ]; then
	check 'wrong data, copylat' spoiled_lat
	check 'wrong data, JSON' spoiled_json
	check 'wrong data, copybw' spoiled 2 copybw -s 4K -w 2 -r 2 --methods barway_auto,reference
	check 'wrong data, callers' spoiled 4 copylat -t 2 --copy-size 8 --methods barway_auto
	check 'wrong data, apiperf' spoiled 1 apiperf -s 1K -n 5
else
	skip 'wrong data' 'nothing can be preloaded here'
fi

# ---- CUDA, over a driver that is not there ----------------------------------------------------

on_cuda() # ARGUMENT...
{
	env -u BARWAY_DEVICES LD_PRELOAD="$fakenv" BARWAY_LIBCUDA="$libcuda" \
		LD_LIBRARY_PATH="$gdrapi" "$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}
cuda_lat()
{
	on_cuda copylat -s 1K -w 3 -r 3 --plot "$tmp/cuda.svg"
	[ "$code" = 0 ] && quiet err && ! has out 'Soft GPU' && has out ' cuMemcpy/barway' &&
		has out 'Async+sync' && has out '; driver ' && has out 'slower than the reference' &&
		[ "$(rows)" = 22 ] || return 1
	command -v gnuplot >/dev/null 2>&1 || return 0
	! grep -q 'SOFT GPU' "$tmp/cuda.svg" && grep -q 'cudaMemcpy, pageable' "$tmp/cuda.svg"
}
cuda_bw()
{
	on_cuda copybw -s 4K -w 3 -r 3 -a cuMemAlloc -d 0
	[ "$code" = 0 ] && quiet err && has out cuMemcpy && has out 'NVIDIA' && [ "$(rows)" = 2 ]
}
cuda_callers()
{
	on_cuda copylat -p 2 -t 2 --copy-size 64 --methods barway,cumemcpy,cumemcpy_async_pinned \
		--json
	[ "$code" = 0 ] && quiet err && has out '"kind": "cuda"' && has out '"callers": 4' &&
		has out '"cumemcpy_async_pinned": {'
}
cuda_calls()
{
	on_cuda apiperf -s 64K -n 5 -a cuMemAlloc
	[ "$code" = 0 ] && quiet err && grep -q '^gdr_pin_buffer, 64 KiB, cold ' "$tmp/out"
}
cuda_not_soft()
{
	on_cuda copylat -s 1 --compare "$tmp/lat.json"
	[ "$code" = 2 ] && lines err 1 && has err 'is of a device of kind soft, this one is cuda'
}
no_node()
{
	on_cuda copylat -s 1 --numa near -w 1 -r 1
	if [ ! -e /sys/devices/system/node/node1 ]; then
		[ "$code" = 0 ] && quiet err
		return
	fi
	[ "$code" = 2 ] && lines err 1 && has err 'the system does not say which NUMA node'
}
if [ -n "$fakenv" ]; then
	check 'copylat on CUDA' cuda_lat
	check 'copybw on CUDA, of cuMemAlloc' cuda_bw
	check 'callers on CUDA' cuda_callers
	check 'apiperf on CUDA' cuda_calls
	check 'no node of the device' no_node
else
	skip 'CUDA' 'nothing can be preloaded here'
fi

# ---- saved, compared ----------------------------------------------------------------------

saved()
{
	run copylat -s 64 -r 20 -w 20 --save "$tmp/lat.json"
	[ "$code" = 0 ] && has out 'host to GPU' && run copylat -s 64 -r 20 -w 20 --json \
		--save "$tmp/lat2.json" && [ "$code" = 0 ] && cmp "$tmp/out" "$tmp/lat2.json"
}
check 'a result is saved' saved

# A file where there was one, a link, a pipe, a device: what was there stays what it is.
saved_over()
{
	rm -f "$tmp/link" "$tmp/dangling" "$tmp/pipe"
	echo old >"$tmp/file" && chmod 640 "$tmp/file" && ln -s file "$tmp/link" &&
		ln -s new "$tmp/dangling" && mkfifo "$tmp/pipe" || return 1
	run copylat -s 1 -r 2 -w 2 --save "$tmp/link"
	[ "$code" = 0 ] && [ -h "$tmp/link" ] && grep -q '"schema"' "$tmp/file" &&
		[ "$(stat -c %a "$tmp/file")" = 640 ] || return 1
	run copylat -s 1 -r 2 -w 2 --save "$tmp/dangling"
	[ "$code" = 0 ] && [ -h "$tmp/dangling" ] && grep -q '"schema"' "$tmp/new" || return 1
	cat "$tmp/pipe" >"$tmp/piped" &
	run copylat -s 1 -r 2 -w 2 --save "$tmp/pipe"
	wait $!
	[ "$code" = 0 ] && [ -p "$tmp/pipe" ] && grep -q '"schema"' "$tmp/piped"
}
check 'saved over what is there' saved_over

compared()
{
	run copylat -s 64 -r 20 -w 20 --compare "$tmp/lat.json"
	[ "$code" = 0 ] && quiet err && grep -q '^moved beyond noise: [0-9]* of [0-9]* ' "$tmp/out" &&
		has out 'columns: 1 barway.alone, 2 barway.row,' && grep -qE '^to, 64 B ' "$tmp/out" &&
		has out 'the old run: 20'
}
check 'compared with itself' compared

# Everything was ten times as fast in the older run: nearly everything is worse now.
moved()
{
	sed 's/\("[a-z0-9]*_us": \)\([0-9.e-]*\)/\1\2e-1/' "$tmp/lat.json" >"$tmp/fast.json"
	sed -i 's/\(e-[0-9]*\)e-1/\1/; s/"cpu": ".*"/"cpu": "Another CPU"/' "$tmp/fast.json"
	run copylat -s 64 -r 20 -w 20 --compare "$tmp/fast.json"
	[ "$code" = 0 ] && lines err 1 && has err "cpu was 'Another CPU', is '" &&
		grep -qE '^moved beyond noise: [1-9][0-9]* of [0-9]+ \(0 better' "$tmp/out" &&
		grep -q '^  ! from, 1 B: reference.alone: .*, was .* us$' "$tmp/out"
}
check 'compared with another' moved

compared_in_vain()
{
	run copylat --copy-size 100 -r 2 -w 2 --offset 7 --compare "$tmp/lat.json"
	[ "$code" = 2 ] && lines err 2 && has err '; offset_bytes was 0, is 7' &&
		has err 'the two have no row in common' &&
		has out 'not in the older result: 2 of 2 rows: to, 100 B; from, 100 B' || return 1
	echo '{"schema": "barway-copylat-1", "results": []}' >"$tmp/none.json"
	refused 'has no list "results" with a row' copylat --compare "$tmp/none.json"
}
check 'compared with nothing that is the same' compared_in_vain

of_another_kind()
{
	refused 'not barway-copybw-1: give a result' copybw -s 4K --compare "$tmp/lat.json" || return 1
	sed 's/"kind": "soft"/"kind": "cuda"/' "$tmp/lat.json" >"$tmp/cuda.json"
	refused 'the older result is of a device of kind cuda, this one is soft' \
		copylat -s 1 --compare "$tmp/cuda.json" || return 1
	echo '{"schema": "barway-copylat-1"' >"$tmp/broken.json"
	refused 'line 2: not JSON: ' copylat -s 1 --compare "$tmp/broken.json"
}
check 'not compared with what is something else' of_another_kind
[ -z "$fakenv" ] || check 'not compared with the soft GPU' cuda_not_soft

# ---- pictures -----------------------------------------------------------------------------

without_gnuplot() # ARGUMENT...: said before anything is measured
{
	mkdir -p "$tmp/empty"
	echo old >"$tmp/no.svg"
	PATH=$tmp/empty "$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
	said_no 1 'apt-get install gnuplot-nox' && [ "$(cat "$tmp/no.svg")" = old ]
}
if [ -z "$MESON_EXE_WRAPPER" ]; then
	check 'no gnuplot' without_gnuplot copylat -s 1 -r 2 -w 2 --plot "$tmp/no.svg"
	check 'no gnuplot, plot' without_gnuplot plot -o "$tmp/no.svg" "$tmp/lat.json"
fi

# A gnuplot that does what $1 says, and a picture that there is, behind a link.
spoiled_gnuplot() # SCRIPT MESSAGE
{
	mkdir -p "$tmp/bin" && printf '#!/bin/sh\n%s\n' "$1" >"$tmp/bin/gnuplot" &&
		chmod +x "$tmp/bin/gnuplot" && echo old >"$tmp/old.svg" &&
		ln -sf old.svg "$tmp/keep.svg" || return 1
	with "PATH=$tmp/bin:$PATH" plot -o "$tmp/keep.svg" "$tmp/lat.json"
	[ "$code" = 1 ] && quiet out && lines err 1 && has err "barway plot: no picture: $2" &&
		[ -L "$tmp/keep.svg" ] && [ "$(cat "$tmp/old.svg")" = old ]
}
if [ -z "$MESON_EXE_WRAPPER" ]; then
	check 'gnuplot fails' spoiled_gnuplot 'echo "line 3: oops" >&2; exit 3' 'gnuplot failed: line 3: oops'
	check 'gnuplot fails and says nothing' spoiled_gnuplot 'exit 3' 'gnuplot failed, exit status 3'
	check 'gnuplot is ended' spoiled_gnuplot 'kill -9 $$' 'gnuplot was ended by signal 9'
	check 'gnuplot draws half' spoiled_gnuplot 'echo "<svg>"' 'what gnuplot drew is not whole'
fi

full_disk()
{
	run plot -o "$tmp/full.png" "$tmp/lat.json"
	[ "$code" = 1 ] && quiet out && lines err 1 && has err 'full.png'"' cannot be written: No space" &&
		[ -c "$tmp/full.png" ]
}

# The old picture is behind a link, which stays.
drawn_anew()
{
	echo old >"$tmp/old.svg" && chmod 600 "$tmp/old.svg" && ln -sf old.svg "$tmp/keep.svg" || return 1
	run plot -o "$tmp/keep.svg" "$tmp/lat.json"
	[ "$code" = 0 ] && quiet err && [ -L "$tmp/keep.svg" ] &&
		[ -n "$(find "$tmp/old.svg" -perm 600)" ] && tail -c 8 "$tmp/old.svg" | grep -q '</svg>' &&
		[ -z "$(find "$tmp" -name 'old.svg.*')" ]
}

drawn()
{
	run copylat -s 4K -r 5 -w 5 --plot "$tmp/lat.svg"
	[ "$code" = 0 ] && quiet err && has out "picture: $tmp/lat.svg" &&
		grep -q 'SOFT GPU: SAYS NOTHING ABOUT A GPU' "$tmp/lat.svg" &&
		grep -q 'Barway, one CPU thread' "$tmp/lat.svg" && grep -q 'Barway soft GPU' "$tmp/lat.svg" &&
		grep -q 'microseconds' "$tmp/lat.svg" && grep -q '4 KiB' "$tmp/lat.svg"
}

drawn_later() # FILE...
{
	rm -f "$tmp/later.png"
	run plot -o "$tmp/later.png" "$@"
	[ "$code" = 0 ] && quiet err && quiet out &&
		[ "$(head -c 4 "$tmp/later.png" | tail -c 3)" = PNG ]
}

drawn_together()
{
	sed 's/"kind": "soft"/"kind": "cuda"/; s/"name": ".*"/"name": "GPU `id` \\" '"'"'x"/' \
		"$tmp/lat.json" >"$tmp/gpu.json"
	run plot -o "$tmp/two.svg" "$tmp/gpu.json" "$tmp/lat2.json"
	[ "$code" = 0 ] && quiet err && grep -q 'lat2: Barway, one CPU thread' "$tmp/two.svg" &&
		grep -q 'SOFT GPU' "$tmp/two.svg" && run plot -o "$tmp/one.svg" "$tmp/gpu.json" &&
		[ "$code" = 0 ] && ! grep -q 'SOFT GPU' "$tmp/one.svg" && grep -q 'GPU ?id?' "$tmp/one.svg"
}

callers_drawn()
{
	run copybw -t 2 -c 4K --save "$tmp/callers.json" --plot "$tmp/callers.svg"
	[ "$code" = 0 ] && quiet err && grep -q 'each of all callers' "$tmp/callers.svg"
}

not_drawn()
{
	refused "draw them one by one" plot -o "$tmp/x.svg" "$tmp/lat.json" "$tmp/api.json" || return 1
	echo '{"schema": "barway-info-1"}' >"$tmp/info.json"
	refused "its schema is 'barway-info-1'" plot -o "$tmp/x.svg" "$tmp/info.json" || return 1
	echo '{"schema": "barway-copylat-1", "results": []}' >"$tmp/none.json"
	refused 'has nothing to draw' plot -o "$tmp/x.svg" "$tmp/none.json" && [ ! -e "$tmp/x.svg" ]
}
check 'what cannot be drawn' not_drawn
if command -v gnuplot >/dev/null 2>&1; then
	check 'copylat draws' drawn
	check 'a saved result is drawn' drawn_later "$tmp/lat.json"
	check 'a picture is drawn anew' drawn_anew
	if mknod "$tmp/full.png" c 1 7 2>/dev/null; then
		check 'no room for a picture' full_disk
	else
		skip 'no room for a picture' 'mknod is not allowed'
	fi
	check 'calls are drawn' drawn_later "$tmp/api.json"
	check 'two results in one picture' drawn_together
	! forks || check 'callers are drawn' callers_drawn
else
	skip 'pictures' 'gnuplot is not installed'
fi

# ---- JSON ---------------------------------------------------------------------------------

schema() # NAME ARGUMENT...
{
	name=$1
	shift
	with LD_LIBRARY_PATH="$gdrapi" "$@" --json
	[ "$code" = 0 ] && quiet err && plain &&
		python3 "$here/doctor_test_schema.py" "$here/snapshots/$name-schema.txt" "$tmp/out"
}
if command -v python3 >/dev/null 2>&1; then
	check 'JSON of copylat' schema copylat copylat -s 1K -o 3 -r 3 -w 3
	check 'JSON of copybw' schema copybw copybw -s 16K -r 3 -w 3
	! forks || check 'JSON of callers' schema callers copylat -t 2 --copy-size 64
	check 'JSON of apiperf' schema apiperf apiperf -s 64K -n 5
else
	skip 'JSON' 'python3 is not there'
fi

total
