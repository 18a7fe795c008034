#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# run-nccl.sh FOLDER [ROUNDS]: nccl_test over sockets between two GPUs, in turn with GDRCopy's library
# from FOLDER (libgdrapi.so and libbarway.so.0) and without. NCCL has to say in its own log that it uses
# it; results have to be right; prints the latency of 8 bytes both ways. NCCL and the CUDA runtime are
# those of the system or of PyTorch. Needs a C compiler.
set -u
folder=$(cd "${1:?folder with libgdrapi.so}" && pwd) || exit 1
rounds=${2:-3}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

skip() {
	echo "run-nccl: skipped: $1"
	echo "run-nccl: 0 passed, 0 failed, 1 skipped"
	exit 77
}

# Folders of PyTorch's NVIDIA packages, and those of a toolkit.
site=$(python3 -c 'import nvidia, sys; print("\n".join(nvidia.__path__))' 2>/dev/null)
# The first folder that has it: those of PyTorch come last, its headers are not all there.
first() { # file pattern, folders...
	local pattern=$1 folder found
	shift
	for folder in "$@"; do
		found=$(find -L "$folder" -maxdepth 4 -name "$pattern" 2>/dev/null | sort | head -n 1)
		[ -n "$found" ] && echo "$found" && return
	done
}
# shellcheck disable=SC2086
{
	nccl_h=$(first nccl.h /usr/include /usr/local/include $site)
	nccl_so=$(first 'libnccl.so*' /usr/lib /usr/lib64 /usr/local/lib $site)
	cuda_h=$(first cuda_runtime.h /usr/local/cuda/include /usr/include $site)
	cudart=$(first 'libcudart.so*' /usr/local/cuda/lib64 /usr/local/cuda/targets /usr/lib $site)
}
for file in "nccl.h:$nccl_h" "libnccl.so:$nccl_so" "cuda_runtime.h:$cuda_h" "libcudart.so:$cudart"; do
	[ -n "${file#*:}" ] || skip "no ${file%%:*}"
done
libs=$(dirname "$nccl_so"):$(dirname "$cudart")
${CC:-cc} -O2 -std=gnu11 -I"$here/.." -I"$(dirname "$nccl_h")" -I"$(dirname "$cuda_h")" \
	"$here/nccl_test.c" -o "$tmp/nccl_test" "$nccl_so" "$cudart" \
	-Wl,-rpath,"$(dirname "$nccl_so")" -Wl,-rpath,"$(dirname "$cudart")" ||
	{ echo "run-nccl: 0 passed, 1 failed, 0 skipped"; exit 1; }

# Sockets alone; no NVLink multicast.
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_NET=Socket NCCL_NVLS_ENABLE=0
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH
passed=0 failed=0

good() { passed=$((passed + 1)); }
bad() {
	echo "run-nccl: $1: FAILED"
	failed=$((failed + 1))
}

# run NAME GDRCOPY: one process
run() {
	local name=$1 log=$tmp/$1
	NCCL_GDRCOPY_ENABLE=$2 GDRCOPY_ENABLE_LOGGING=1 LD_LIBRARY_PATH=$folder:$libs timeout 200 \
		"$tmp/nccl_test" >"$log" 2>&1
	case $? in
	0) good ;;
	77) skip "$(grep skipped "$log" | head -n 1)" ;;
	*)
		tail -n 40 "$log"
		bad "$name"
		;;
	esac
	grep -h '^latency' "$log" | sed "s/^/$name: /"
}

for ((i = 1; i <= rounds; i++)); do
	run "without-$i" 0
	run "with-$i" 1
done
grep -h 'NCCL version' "$tmp/with-1" | head -n 1
if grep -h 'GDRCOPY enabled' "$tmp/with-1" | head -n 1 | grep .; then
	good
else
	grep -hi gdr "$tmp/with-1" | head
	bad "NCCL's log does not say that it uses GDRCopy"
fi
grep -h '^gdrapi: ' "$tmp/with-1" | sort | uniq -c | head -n 5
said() { # text, what is wrong without it
	if grep -q "$1" "$tmp/with-1"; then good; else bad "$2"; fi
}
said '^gdrapi: info: gdr_open: Barway' "it was not this library"
said 'via NET/Socket' "NCCL did not go over sockets"
if grep '^gdrapi: error' "$tmp/with-1"; then bad "the library reports an error"; else good; fi

# The best of the rounds, each way.
best() { # with|without, operation
	cat "$tmp/$1"-* | sed -n "s|^latency $2 8 B: alone \([0-9.]*\) us.*|\1|p" | sort -n | head -n 1
}
for operation in all-reduce send/recv; do
	echo "run-nccl: $operation of 8 B, best of $rounds: with $(best with "$operation") us," \
		"without $(best without "$operation") us"
done
echo "run-nccl: $passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
