#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What needs a real GPU, in one call: builds, checks, measures, prints a short table last and writes
# JSON. Needs a compiler, make, meson and ninja. It never changes a setting of the GPU.
#
#   scripts/hw.sh [all|quick|channel|copies|net|soak|memcheck]
#   channel: channels alone, their figures and the examples; copies: every method to copy, its figures,
#   and whether the choice between them is right; soak: SOAK messages through one (default
#   1000000000); memcheck: channels under compute-sanitizer, where that is there
#   net: transfers between two processes, one GPU each where there are two, and NCCL beside them
#   LIBFABRIC_INCLUDE=folder   libfabric's headers, where the system has none; default .deps/include
#   OUT=folder   where logs and JSON go (default build-hw/results)
set -u
cd "$(dirname "$0")/.." || exit 1
what=${1:-all}
build=$PWD/build-hw
out=${OUT:-$build/results}
mkdir -p "$out"
log=$out/hw.log
: > "$log"
rows=()
failed=0

say() { printf '%s\n' "$*" | tee -a "$log"; }

fabric=${LIBFABRIC_INCLUDE:-}
[ -z "$fabric" ] && [ -f .deps/include/rdma/fabric.h ] && fabric=$PWD/.deps/include
setup="setup -Dman=false"
[ -f "$build/build.ninja" ] && setup=configure
# shellcheck disable=SC2086
meson $setup "$build" -Dlibfabric_include="$fabric" >> "$log" 2>&1 || { tail -20 "$log"; exit 1; }
ninja -C "$build" >> "$log" 2>&1 || { tail -40 "$log"; exit 1; }

# A user who is not root needs to get at the programs.
stage=$(mktemp -d /tmp/barway-hw.XXXXXX)
trap 'rm -rf "$stage"' EXIT
cp -r "$build/tests/hw/hw_test" "$build/tools/barway" "$build"/src/libbarway*.so* \
	"$build"/compat/gdrapi/libgdrapi.so* "$build"/tests/clients/{clients,misuse}_test \
	"$build"/tests/hw/{channel_hw,channel_end,copies_hw,copies_async,copies_figures}_test \
	"$build"/examples/{log_and_read,work_queue,two_servers} "$stage"/
chmod -R a+rX "$stage"
export LD_LIBRARY_PATH=$stage${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# check NAME COMMAND...: runs one set of cases, keeps its totals for the table
check() {
	local name=$1 t0 t1 rc line
	shift
	say "== $name"
	t0=$(date +%s%N)
	timeout 240 "$@" > "$out/last" 2>&1
	rc=$?
	t1=$(date +%s%N)
	cat "$out/last" >> "$log"
	grep -vE ': [0-9]+ passed, ' "$out/last" | tail -40
	line=$(grep -E ': [0-9]+ passed, [0-9]+ failed' "$out/last" | tail -1)
	if [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ]; then
		failed=1
		line="${line:-ended with $rc without a total} (exit $rc)"
	fi
	rows+=("$(printf '%-34s %s, %d ms' "$name" "${line#*: }" $(((t1 - t0) / 1000000)))")
}

summary() {
	say ""
	say "---- summary ($(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -1))"
	for r in "${rows[@]}"; do
		say "$r"
	done
	say "logs and JSON: $out"
	exit $failed
}

# show NAME COMMAND...: runs it for what it prints
show() {
	local name=$1
	shift
	say "== $name"
	timeout 240 "$@" 2>&1 | tee -a "$log"
	[ "${PIPESTATUS[0]}" = 0 ] || { failed=1; rows+=("$(printf '%-34s FAILED' "$name")"); }
}

channels() {
	check "channels" "$stage/channel_hw_test"
	check "channels: killed, failing, idle" "$stage/channel_end_test"
}

copies() {
	check "copies: data" "$stage/copies_hw_test"
	check "copies: requests, streams, graphs" "$stage/copies_async_test"
}

# The plan that is built in, then the one that was measured here; the user's own stays as it is.
copies_figures() {
	local ways="--helpers ${COPIES_HELPERS:=4} --resident"
	export COPIES_FIGURES=1 BARWAY_PLAN_DIR=$out/plan
	rm -rf "$BARWAY_PLAN_DIR"
	show "copies: the choice, built in" "$stage/copies_figures_test" --json "$out/choice-built-in.json"
	show "barway tune" "$stage/barway" tune --threads "$COPIES_HELPERS" --resident \
		--save "$out/tune.json"
	cat "$out"/plan/plan-* >> "$log"
	show "copies: the choice, tuned" "$stage/copies_figures_test" --json "$out/choice-tuned.json"
	# shellcheck disable=SC2086
	show "barway copylat" "$stage/barway" copylat $ways --save "$out/copies-copylat.json"
	# shellcheck disable=SC2086
	show "barway copybw" "$stage/barway" copybw $ways --save "$out/copies-copybw.json"
}

# Between two processes, each with a GPU of its own where there are two.
network() {
	local net threads
	show "barway paths" "$stage/barway" paths --local --save "$out/paths.json"
	for net in tcp shm; do
		show "two_servers over $net" env BARWAY_NET_NETWORK=$net "$stage/two_servers"
		for threads in 0 1; do
			show "barway netlat, $net, $threads threads" "$stage/barway" netlat --local \
				--network $net --threads $threads --save "$out/netlat-$net-$threads.json"
		done
		show "barway netlat, $net, 1 KiB" "$stage/barway" netlat --local -c 1K \
			--network $net --threads 0 --save "$out/netlat-$net-1K.json"
		show "barway netlat, $net, 4 KiB" "$stage/barway" netlat --local -c 4K \
			--network $net --threads 0 --save "$out/netlat-$net-4K.json"
		show "barway netlat, $net, 4 KiB, helpers" env BARWAY_COPY_THREADS=4 "$stage/barway" \
			netlat --local -c 4K --network $net --threads 0 \
			--save "$out/netlat-$net-4K-helpers.json"
		show "barway netlat, $net, host memory" "$stage/barway" netlat --local --host -s 4K \
			--network $net --threads 0 --save "$out/netlat-$net-host.json"
		show "barway netbw, $net" "$stage/barway" netbw --local -s 256M --network $net \
			--threads 0 --save "$out/netbw-$net.json"
	done
	show "barway netbw, tcp, 4 rails" "$stage/barway" netbw --local -s 256M --network tcp --rails 4 \
		--threads 4 --save "$out/netbw-tcp-rails.json"
	if [ -x "$build/tests/net/bare" ]; then
		show "libfabric alone, net" "$build/tests/net/bare" net
		show "libfabric alone, shm" "$build/tests/net/bare" shm
	fi
	check "NCCL between two processes" tests/net/run-nccl-pingpong.sh "$out"
	cat "$out"/nccl-{sockets,shm}.json 2> /dev/null | tee -a "$log"
}

case $what in
net)
	network
	summary
	;;
copies)
	copies
	copies_figures
	summary
	;;
channel)
	channels
	show "barway pplat" "$stage/barway" pplat --save "$out/pplat.json"
	show "barway bench channel" "$stage/barway" bench channel --save "$out/bench-channel.json"
	show "example log_and_read" "$stage/log_and_read" "$stage/barway"
	show "example work_queue" "$stage/work_queue" 200 10000
	summary
	;;
soak)
	check "channels: ${SOAK:=1000000000} messages" env CHANNEL_SOAK="$SOAK" \
		"$stage/channel_hw_test" soak
	grep 'million/s' "$out/last" >> "$out/soak.txt"
	summary
	;;
memcheck)
	PATH=$PATH:/usr/local/cuda/bin
	command -v compute-sanitizer > /dev/null || { say "compute-sanitizer is not there"; exit 77; }
	check "channels under compute-sanitizer" env CHANNEL_DIVIDE="${CHANNEL_DIVIDE:-1000}" \
		compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 --print-limit 20 \
		"$stage/channel_hw_test" echo to_gpu to_cpu fences
	tail -n 5 "$out/last"
	summary
	;;
esac

t=$stage/hw_test
quick_cases="offsets neighbour vmm pool kinds stale context capture"
if command -v setpriv > /dev/null && [ "$(id -u)" = 0 ]; then
	as_user="setpriv --reuid=65534 --regid=65534 --clear-groups"
else
	as_user=
fi

check "everything" "$t"
# shellcheck disable=SC2086
if [ "$what" = all ]; then
	[ -n "$as_user" ] && check "as an ordinary user" $as_user "$t" $quick_cases threads release mapping
	check "route: vmm import" env BARWAY_RM_ROUTES=vmm,hook "$t" vmm_with
	check "route: ipc" env BARWAY_RM_ROUTES=ipc "$t" cudamalloc sizes stale release
	check "route: tap" env BARWAY_RM_ROUTES=tap LD_PRELOAD="$stage/libbarway-tap.so" "$t" $quick_cases
	check "bound at start (LD_BIND_NOW=1)" env LD_BIND_NOW=1 "$t" $quick_cases
	for k in c sse2 sse41 avx2 avx512 movdir64b; do
		check "CPU kernels: $k" env BARWAY_CPU_MASK=$k "$t" sizes offsets
	done
	if [ "$(nvidia-smi -L 2> /dev/null | wc -l)" -ge 2 ]; then
		check "CUDA_VISIBLE_DEVICES=1,0" env CUDA_VISIBLE_DEVICES=1,0 "$t" $quick_cases gpu
		check "CUDA_VISIBLE_DEVICES=1" env CUDA_VISIBLE_DEVICES=1 "$t" $quick_cases
	fi
	if command -v nvidia-cuda-mps-control > /dev/null; then
		export CUDA_MPS_PIPE_DIRECTORY=$stage/mps CUDA_MPS_LOG_DIRECTORY=$stage/mps
		mkdir -p "$stage/mps"
		if nvidia-cuda-mps-control -d >> "$log" 2>&1; then
			check "under MPS" "$t" $quick_cases threads
			echo quit | nvidia-cuda-mps-control >> "$log" 2>&1
		fi
		unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	fi
	channels
	copies
	for c in "$build"/tests/contract/*_test; do
		[ -x "$c" ] && check "contract: $(basename "$c")" "$c"
	done
	check "gdrapi: as its clients use it" "$stage/clients_test"
	[ -n "$as_user" ] && check "gdrapi: as an ordinary user" $as_user "$stage/clients_test"
	check "gdrapi: misuse" "$stage/misuse_test"
	check "gdrapi: misuse, no cache" env BARWAY_CACHE_BYTES=0 CHURN_CYCLES=1000 "$stage/misuse_test" \
		threads nothing_leaks close_under
	if [ "$(nvidia-smi -L 2> /dev/null | wc -l)" -ge 2 ]; then
		check "gdrapi: NCCL over sockets" tests/clients/run-nccl.sh "$stage"
	fi
fi

say "== barway info"
"$stage/barway" info 2>&1 | tee -a "$log"
"$stage/barway" info --json > "$out/info.json" 2>> "$log" || failed=1
say "== barway copylat"
"$stage/barway" copylat > "$out/copylat.txt" 2>> "$log" || failed=1
tee -a "$log" < "$out/copylat.txt"
"$stage/barway" copylat --json > "$out/copylat.json" 2>> "$log" || failed=1

summary
