#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What needs a real GPU, in one call: builds, checks, measures, prints a short table last and writes
# JSON. Needs a compiler, make, meson and ninja. It never changes a setting of the GPU.
#
#   scripts/hw.sh [all|quick]
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

if [ ! -f "$build/build.ninja" ]; then
	meson setup "$build" -Dman=false >> "$log" 2>&1 || { tail -20 "$log"; exit 1; }
fi
ninja -C "$build" >> "$log" 2>&1 || { tail -40 "$log"; exit 1; }

# A user who is not root needs to get at the programs.
stage=$(mktemp -d /tmp/barway-hw.XXXXXX)
trap 'rm -rf "$stage"' EXIT
cp -r "$build/tests/hw/hw_test" "$build/tools/barway" "$build"/src/libbarway*.so* \
	"$build"/compat/gdrapi/libgdrapi.so* "$build"/tests/clients/{clients,misuse}_test "$stage"/
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

say ""
say "---- summary ($(date -u +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -1))"
for r in "${rows[@]}"; do
	say "$r"
done
say "logs and JSON: $out"
exit $failed
