#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# net_tool_test.sh BARWAY TWO_SERVERS [SPOIL FAKENV LIBCUDA KERNELS]: barway netlat, netbw and paths, the
# example and its demo, on the soft GPU and over a driver that is not there. SPOIL: what makes data
# wrong; the rest: that driver, its libcuda, and the example's kernels for it. UPDATE=1 writes the
# snapshots anew. Closes like the C tests: "name: N passed, N failed, N skipped", exit 0, 1 or 77.
[ $# = 2 ] || [ $# = 6 ] ||
	{ echo "usage: $0 BARWAY TWO_SERVERS [SPOIL FAKENV LIBCUDA KERNELS]" >&2; exit 1; }
. "$(dirname "$0")/checks.sh"
tool=$1 two_servers=$2 spoil=${3:-} fakenv=${4:-} libcuda=${5:-} kernels=${6:-}
demo=$here/../../scripts/demo-two-servers
server=
stop() {
	[ -z "$server" ] || kill "$server" 2>/dev/null
	rm -rf "$tmp"
}
trap stop EXIT
unset BARWAY_LOG BARWAY_FAULT BARWAY_PROVIDERS BARWAY_FALLBACK BARWAY_LIBCUDA BARWAY_NET_LISTEN
unset LD_LIBRARY_PATH BARWAY_NET_NETWORK BARWAY_NET_SECRET_FILE BARWAY_NET_THREADS BARWAY_NET_RAILS DEMO_ROLE
export BARWAY_DEVICES=soft XDG_CACHE_HOME="$tmp"
# For the leak sanitizer: libfabric keeps what it has found until the process ends.
echo 'leak:libfabric.so' >"$tmp/suppressions"
export LSAN_OPTIONS="suppressions=$tmp/suppressions:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}"

# ---- help, bad input ----------------------------------------------------------------------

for verb in netlat netbw paths; do
	check "help of $verb" snapshot $verb-help $verb --help
	check "help of $verb, short" snapshot $verb-help $verb --local -h
done

refused() # CODE MESSAGE ARGUMENT...: one line, nothing on stdout
{
	want_code=$1 want=$2
	shift 2
	run "$tool" "$@"
	said_no "$want_code" "$want"
}

# message | arguments, separated by spaces
while IFS='|' read -r message arguments; do
	# shellcheck disable=SC2086
	check "bad input: $arguments" refused 2 "$message" $arguments
done <<'TABLE'
barway netlat: say where the other end is: the name that its --server printed, or --local|netlat
barway netbw: say where the other end is: the name that its --server printed, or --local|netbw -t 3
barway netlat: unknown option '--frob'; see 'barway netlat --help'|netlat --frob
barway netlat: unexpected argument 'b'; see 'barway netlat --help'|netlat a b
barway netlat: --local starts the other end itself: not together with the name of another|netlat --local a
barway netlat: --local starts the other end itself: not together with --server|netlat --local --server
barway netlat: --local has a secret of its own: leave --secret-file away|netlat --local --secret-file x
barway netlat: --once is for --server|netlat --local --once
barway netlat: --peer-device is for --local|netlat a --peer-device 1
barway netlat: --server has no result|netlat --server --json
barway netlat: --server a and --listen b: give the address once|netlat --server a --listen b
barway netlat: -s: '7' is too small: give at least 8|netlat --local -s 7
barway netlat: -s: 'x' is not a size: give bytes with an optional K, M or G|netlat --local -s x
barway netlat: -s: more than 256 MiB are not measured|netlat --local -s 1G
barway netlat: -s and -c: sizes up to one, or one: leave one away|netlat --local -s 64 -c 8
barway netlat: -c: '0' is too small: give at least 1|netlat --local -c 0
barway netlat: -t: '0' is not a number from 1 to 1000000|netlat --local -t 0
barway netlat: --operations: 'put,take' is not a list of put, get, send|netlat --local --operations put,take
barway netlat: --operations: 'put,' is not a list of put, get, send|netlat --local --operations put,
barway netlat: --path: 'best' is not a list of auto, staged, direct|netlat --local --path best
barway netlat: --rails: '17' is not a number from 1 to 16|netlat --local --rails 17
barway netlat: --threads: '-1' is not a number from 0 to 16|netlat --local --threads -1
barway netlat: --window is for netbw|netlat --local --window 4
barway netbw: --window: '65' is not a number from 1 to 64|netbw --local --window 65
barway netlat: -d: |netlat --local -d 99
barway paths: unknown option '--once'; see 'barway paths --help'|paths --once
barway paths: unexpected argument 'b'; see 'barway paths --help'|paths a b
barway paths: --local starts the other end itself: not together with the name of another|paths --local a
barway paths: --secret-file is for the name of another end|paths --secret-file x
barway netlat: --network quantum: there is no such network: give auto, tcp|netlat --local --network quantum
barway paths: --network quantum: there is no such network|paths --network quantum
barway netlat: --listen 'foo': not an IPv4 or IPv6 address in numbers|netlat --local --listen foo
barway netlat: --listen '127.0.0.1:x': its port is not a number up to 65535|netlat --local --listen 127.0.0.1:x
barway netlat: --listen '192.0.2.77': no interface of this machine has the address|netlat --local --listen 192.0.2.77
barway paths: --listen '192.0.2.77': no interface of this machine has the address|paths --listen 192.0.2.77
barway netlat: --server 'x:y': not an IPv4 or IPv6 address|netlat --server x:y
barway netlat: --server '192.0.2.77': no interface of this machine|netlat --server 192.0.2.77
barway netlat: 'nosuch': not an IPv4 or IPv6 address in numbers: give the name|netlat nosuch
barway netlat: '127.0.0.1': it has no port: give the name|netlat 127.0.0.1
barway netlat: '127.0.0.1:99999': its port is not a number up to 65535|netlat 127.0.0.1:99999
barway netlat: '[::1]x': its port is not a number|netlat [::1]x
barway paths: 'nosuch:1': not an IPv4 or IPv6 address|paths nosuch:1
barway netlat: --interfaces ',': there is no address in it|netlat --local --interfaces ,
TABLE
check 'bad input: an empty name' refused 2 "barway netlat: '': not an IPv4 or IPv6" netlat ''

usage()
{
	run "$two_servers" "$@"
	[ "$code" = 2 ] && quiet out && has err 'usage: two_servers'
}
check 'two_servers: no such role' usage waiter
check 'two_servers: no name' usage client
check 'two_servers: too much' usage server a b

# ---- without libfabric --------------------------------------------------------------------

run "$tool" netlat --local -c 8 -t 1
if grep -qE 'has no network|libfabric cannot be opened' "$tmp/err"; then
	check 'no libfabric: one line says what to install' lines err 1
	skip 'all that moves data' "$(sed 's/.*libfabric/libfabric/' "$tmp/err" | head -n 1)"
	echo "net_tool_test.sh: $passed passed, $failed failed, $skipped skipped"
	[ $failed = 0 ] || exit 1
	exit 0
fi

# A folder in which the library's name is a link to nothing that the loader could open.
no_libfabric()
{
	mkdir -p "$tmp/empty" && echo 'no library' >"$tmp/empty/libfabric.so.1"
	LD_LIBRARY_PATH=$tmp/empty
	export LD_LIBRARY_PATH
	run "$tool" "$@"
	unset LD_LIBRARY_PATH
	[ "$code" = 1 ] && lines err 1 && has err 'libfabric cannot be opened' && has err 'libfabric1'
}
check 'netlat without libfabric' no_libfabric netlat --local -c 8 -t 1
check 'paths without libfabric' no_libfabric paths

# ---- failures: one line ---------------------------------------------------------------------

head -c 32 /dev/urandom >"$tmp/secret"
head -c 32 /dev/urandom >"$tmp/other"
head -c 15 /dev/urandom >"$tmp/short"
head -c 32 /dev/urandom >"$tmp/open"
chmod 600 "$tmp/secret" "$tmp/other" "$tmp/short"
chmod 644 "$tmp/open"
with="--secret-file $tmp/secret"

# shellcheck disable=SC2086
{
	check 'nobody listens' refused 1 '127.0.0.1:1: nobody listens there' netlat 127.0.0.1:1 $with
	check 'nobody listens, netbw' refused 1 'nobody listens there' netbw 127.0.0.1:1 $with
	check 'no secret' refused 1 'no secret: give the same 16 to 1024 random bytes' netlat 127.0.0.1:1
	check 'no such secret' refused 1 "$tmp/none: No such file" netlat 127.0.0.1:1 \
		--secret-file "$tmp/none"
	check 'a short secret' refused 1 'it has 15 bytes' netlat 127.0.0.1:1 --secret-file "$tmp/short"
	check 'an open secret' refused 1 'chmod 600' netlat 127.0.0.1:1 --secret-file "$tmp/open"
}

no_direct()
{
	run "$tool" netlat --local -c 64 -t 2 --path direct --network tcp
	[ "$code" = 1 ] && lines err 1 && has err 'path direct' && has err 'the direct path is required' &&
		has err 'no card reaches GPU memory'
}
check 'direct over tcp says why not' no_direct

paths_fail()
{
	run "$tool" paths --network cxi
	[ "$code" = 1 ] && lines err 1 && has err 'barway paths: no network can be used: '
}
check 'paths: no network at all' paths_fail

# ---- what they print ------------------------------------------------------------------------

rows() { grep -cE "^ +[0-9]+( +[0-9.]+){$1}\$" "$tmp/out"; }

lat()
{
	run "$tool" netlat --local -t 5 -s 100 --path auto,staged
	[ "$code" = 0 ] && quiet err && plain && narrow 100 &&
		head -n 1 "$tmp/out" | grep -q '^Soft GPU: ' && [ "$(rows 9)" = 6 ] &&
		grep -qE '^to 127\.0\.0\.1:[0-9]+ of .*, process [0-9]+: ' "$tmp/out" &&
		has out 'GPU memory to GPU memory; network ' && has out 'path staged, microseconds' &&
		grep -qE '^ +100 ' "$tmp/out" && grep -q '^put, path auto, from 8 B on: staged: ' "$tmp/out"
}
check 'netlat on the soft GPU' lat

lat_host()
{
	run "$tool" netlat --local -t 5 -c 12345 --host --operations get --network tcp --rails 2 --threads 1
	[ "$code" = 0 ] && quiet err && [ "$(rows 3)" = 1 ] && has out 'host memory to host memory' &&
		has out '2 rails' && ! has out ' put '
}
check 'netlat of host memory, rails, threads' lat_host

bw()
{
	run "$tool" netbw --local -t 2 -s 100000 --window 3
	[ "$code" = 0 ] && quiet err && plain && narrow 100 && [ "$(rows 9)" = 4 ] &&
		has out 'path auto, GB/s' && grep -qE '^ +100000 ' "$tmp/out"
}
check 'netbw on the soft GPU' bw

bw_shm()
{
	run "$tool" netbw --local -t 2 -c 1M --network shm --operations send,put
	[ "$code" = 0 ] && quiet err && [ "$(rows 6)" = 1 ] && has out 'network shm'
}
check 'netbw over shm' bw_shm

# Rows whose lengths follow from time: both ends go on counting from one to the next.
bw_timed()
{
	run "$tool" netbw --local -c 4K --window 7 --operations send
	[ "$code" = 0 ] && quiet err && [ "$(rows 3)" = 1 ]
}
check 'netbw, rows as long as they come' bw_timed

all_paths()
{
	run "$tool" paths
	[ "$code" = 0 ] && quiet err && plain && narrow 80 && has out 'GPU 0: ' &&
		grep -qE '^  tcp, 127\.0\.0\.1 +staged$' "$tmp/out" && has out 'why not direct: ' &&
		grep -qE '^  cxi +not to be had$' "$tmp/out" && ! has out 'GB/s'
}
check 'paths without another end' all_paths
# Over an imitation of a card, which reaches the soft GPU's memory.
direct_paths()
{
	run "$tool" paths --network imitation-rdma --listen 127.0.0.1
	[ "$code" = 0 ] && has out '  imitation-rdma, 127.0.0.1 direct' &&
		has out 'why: the network card reaches it: dmabuf' &&
		run "$tool" paths --network imitation-rdma --listen 127.0.0.1 --json &&
		[ "$code" = 0 ] && has out '"rung": "dmabuf"'
}
check 'paths by a network card' direct_paths

local_paths()
{
	BARWAY_SOFT_DEVICES=2
	export BARWAY_SOFT_DEVICES
	run "$tool" paths --local --network tcp --listen 127.0.0.1
	unset BARWAY_SOFT_DEVICES
	[ "$code" = 0 ] && quiet err && plain && narrow 80 && has out 'GPU 0: ' && has out 'GPU 1: ' &&
		[ "$(grep -cE '^  tcp, 127\.0\.0\.1 +staged: 8 bytes in [0-9.]+ us, 4 MiB at [0-9.]+ GB/s$' \
			"$tmp/out")" = 2 ]
}
check 'paths between two GPUs' local_paths

wrong_data() # VERB OPERATION
{
	LD_PRELOAD=$spoil
	export LD_PRELOAD
	run "$tool" "$1" --local -c 24 -t 3 --operations "$2"
	unset LD_PRELOAD
	[ "$code" = 1 ] && lines err 1 && has err 'wrong data: '
}
if [ -n "$spoil" ]; then
	check 'wrong data: netlat, put' wrong_data netlat put
	check 'wrong data: netlat, send' wrong_data netlat send
	check 'wrong data: netbw, put' wrong_data netbw put
	check 'wrong data: netbw, send' wrong_data netbw send
else
	skip 'wrong data' 'nothing can be preloaded here'
fi

# ---- a server -------------------------------------------------------------------------------

# start_server ARGUMENT...: $name is its name
start_server()
{
	rm -f "$tmp/server"
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$tool" netlat --server $with "$@" >"$tmp/server" 2>&1 </dev/null &
	server=$!
	tries=200
	until name=$(sed -n 's/^listening: barway netlat //p' "$tmp/server" 2>/dev/null) && [ -n "$name" ]
	do
		tries=$((tries - 1))
		if [ $tries = 0 ] || ! kill -0 $server 2>/dev/null; then return 1; fi
		sleep 0.05
	done
}

# After a client without the secret it serves others, of each verb, one after the other.
serves()
{
	start_server || return 1
	refused 1 "its secret is not this end's" netlat "$name" --secret-file "$tmp/other" || return 1
	# shellcheck disable=SC2086
	{
		run "$tool" netlat "$name" $with -t 3 -c 100 && [ "$code" = 0 ] && [ "$(rows 9)" = 1 ] &&
			run "$tool" netbw "$name" $with -t 2 -c 5000 && [ "$code" = 0 ] &&
			[ "$(rows 9)" = 1 ] && run "$tool" paths "$name" $with --network tcp &&
			[ "$code" = 0 ] && has out 'GB/s'
	} || return 1
	kill -0 $server 2>/dev/null || return 1
	kill $server
	wait $server 2>/dev/null
	server=
	[ "$(grep -c '^client 127' "$tmp/server")" = 3 ]
}
check 'a server serves one client after the other' serves

serves_once()
{
	start_server --once 127.0.0.1:0 || return 1
	# shellcheck disable=SC2086
	run "$tool" netlat "$name" $with -t 3 -c 8 --operations put
	[ "$code" = 0 ] || return 1
	wait $server
	code=$?
	server=
	[ "$code" = 0 ]
}
check 'a server that serves once' serves_once

# ---- JSON, and what is made of it -------------------------------------------------------------

schema() # NAME ARGUMENT...
{
	name=$1
	shift
	run "$tool" "$@" --json
	[ "$code" = 0 ] && quiet err &&
		python3 "$here/doctor_test_schema.py" "$here/snapshots/$name-schema.txt" "$tmp/out"
}

figures()
{
	run "$tool" netlat --local --json -t 7 -s 32 --path auto,staged
	[ "$code" = 0 ] && python3 - "$tmp/out" <<'PYTHON'
import json
import sys

top = json.load(open(sys.argv[1]))
assert top['schema'] == 'barway-netlat-1' and top['soft'] is True and top['peer']['soft'] is True
assert [r['size_bytes'] for r in top['results']] == [8, 32]
for r in top['results']:
    for path in ('auto', 'staged'):
        for op in ('put', 'get', 'send'):
            f = r[path][op]
            assert f['samples'] == 7 and f['verified'] is True and f['direct'] is False
            assert 0 < f['min_us'] <= f['median_us'] <= f['p99_us'] <= f['max_us'], f
            assert f['path'].startswith('staged: ')
PYTHON
}

saved()
{
	run "$tool" netlat --local -t 20 -c 64 --save "$tmp/old.json"
	[ "$code" = 0 ] && run "$tool" netlat --local -t 20 -c 64 --compare "$tmp/old.json" &&
		[ "$code" = 0 ] && has out 'auto.put' && has out 'gpu, 64 B'
}

if command -v python3 >/dev/null 2>&1; then
	check 'JSON of netlat' schema netlat netlat --local -t 2 -c 8
	check 'JSON of netbw' schema netbw netbw --local -t 2 -c 4K
	check 'JSON of paths' schema paths paths --local --listen 127.0.0.1
	check 'figures of netlat' figures
	check 'netlat saved and compared' saved
else
	skip 'JSON' 'python3 is not there'
fi

plots() # ARGUMENT...
{
	run "$tool" "$@" --plot "$tmp/plot.svg"
	[ "$code" = 0 ] && grep -q '<svg' "$tmp/plot.svg"
}
if command -v gnuplot >/dev/null 2>&1; then
	check 'plot of netlat' plots netlat --local -t 3 -s 128 --path auto,staged
	check 'plot of netbw' plots netbw --local -t 2 -s 16K
else
	skip 'plots' 'gnuplot is not there'
fi

# ---- the example ------------------------------------------------------------------------------

# What it says of the moments is in order, for the send and for the receive.
in_order()
{
	sed -n 's/.* us after posting: RETURNED //p' "$tmp/$1" | tr -c '0-9.\n' ' ' |
		awk 'NF != 5 || $2 > $3 || $3 > $4 || $4 > $5 { wrong++ }
		     END { exit wrong || NR != 2 }'
}

example_alone()
{
	run "$two_servers"
	[ "$code" = 0 ] && quiet err && has out 'doubled: [2, 4, 6, 8]' && in_order out &&
		grep -q '^server 0, send: 32 bytes, staged: ' "$tmp/out" &&
		grep -q '^server 1, receive: 32 bytes, staged: ' "$tmp/out"
}
check 'two_servers alone' example_alone

example_devices()
{
	BARWAY_SOFT_DEVICES=2 BARWAY_NET_NETWORK=shm
	export BARWAY_SOFT_DEVICES BARWAY_NET_NETWORK
	run "$two_servers"
	unset BARWAY_SOFT_DEVICES BARWAY_NET_NETWORK
	[ "$code" = 0 ] && has out 'doubled: [2, 4, 6, 8]' && has out 'network shm'
}
check 'two_servers: two GPUs, over shm' example_devices

# Again and again: what is not in order does not always come out.
example_often()
{
	for i in 1 2 3 4 5 6 7 8 9 10; do
		run "$two_servers"
		[ "$code" = 0 ] && has out 'doubled: [2, 4, 6, 8]' && in_order out || return 1
	done
}
check 'two_servers, ten times' example_often

# It gives up at once, which a leak sanitizer need not see.
example_direct()
{
	BARWAY_NET_NETWORK=tcp ASAN_OPTIONS=detect_leaks=0
	export BARWAY_NET_NETWORK ASAN_OPTIONS
	run "$two_servers" --direct
	unset BARWAY_NET_NETWORK ASAN_OPTIONS
	[ "$code" = 1 ] && lines err 1 && has err 'the endpoint requires the direct path' && ! has out doubled
}
check 'two_servers --direct over tcp says why not' example_direct

example_roles()
{
	BARWAY_NET_SECRET_FILE=$tmp/secret
	export BARWAY_NET_SECRET_FILE
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$two_servers" server 127.0.0.1 >"$tmp/server" 2>&1 </dev/null &
	server=$!
	tries=200
	until name=$(sed -n 's/^server 1: its name is //p' "$tmp/server") && [ -n "$name" ]; do
		tries=$((tries - 1))
		[ $tries != 0 ] || break
		sleep 0.05
	done
	run "$two_servers" client "$name"
	wait $server
	served=$?
	server=
	unset BARWAY_NET_SECRET_FILE
	[ "$code" = 0 ] && [ "$served" = 0 ] && has server 'doubled: [2, 4, 6, 8]' && has out 'server 0, send'
}
check 'two_servers: server and client' example_roles

# ---- on CUDA, over a driver that is not there ---------------------------------------------------

on_cuda() # PROGRAM ARGUMENT...
{
	env -u BARWAY_DEVICES LD_PRELOAD="$fakenv $kernels" BARWAY_LIBCUDA="$libcuda" "$@" \
		>"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}
cuda_lat()
{
	on_cuda "$tool" netlat --local -t 5 -s 64K --json
	[ "$code" = 0 ] && quiet err && has out '"kind": "cuda"' && has out '"soft": false'
}
cuda_bw()
{
	on_cuda "$tool" netbw --local -t 2 -c 300000 --path staged
	[ "$code" = 0 ] && quiet err && ! has out 'Soft GPU' && [ "$(rows 9)" = 1 ]
}
cuda_example()
{
	on_cuda "$two_servers"
	[ "$code" = 0 ] && quiet err && has out 'on NVIDIA' && has out 'doubled: [2, 4, 6, 8]' && in_order out
}
if [ -n "$fakenv" ]; then
	check 'netlat on CUDA' cuda_lat
	check 'netbw on CUDA' cuda_bw
	check 'two_servers on CUDA' cuda_example
else
	skip 'CUDA' 'nothing can be preloaded here'
fi

# ---- the demo -------------------------------------------------------------------------------------

demo_runs()
{
	code=0
	sh "$demo" "$two_servers" >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
	[ "$code" = 0 ] && has out 'doubled: [2, 4, 6, 8]' && head -n 1 "$tmp/out" | grep -q '^two servers: '
}
demo_direct()
{
	code=0
	BARWAY_NET_NETWORK=tcp ASAN_OPTIONS=detect_leaks=0 \
		sh "$demo" "$two_servers" --direct >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
	[ "$code" = 1 ] && has out 'the endpoint requires the direct path'
}
demo_absent()
{
	code=0
	sh "$demo" "$tmp/none" >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
	[ "$code" = 1 ] && lines err 1 && has err 'is not there: build it first'
}
if [ -n "$MESON_EXE_WRAPPER" ]; then
	skip 'the demo' 'it is not for emulators'
else
	check 'demo-two-servers' demo_runs
	if head -n 1 "$tmp/out" | grep -q 'two processes'; then
		skip 'demo-two-servers between namespaces' "$(head -n 1 "$tmp/out")"
	fi
	check 'demo-two-servers --direct' demo_direct
	check 'demo-two-servers without its program' demo_absent
fi

total
