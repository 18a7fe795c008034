#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# run-nccl-pingpong.sh [FOLDER]: NCCL between two processes with one GPU each, once over TCP sockets of
# the loopback interface and once over shared memory; never over NVLink or PCIe peer access. Writes
# nccl-sockets.json and nccl-shm.json into FOLDER. NCCL and the CUDA runtime are those of the system or
# of PyTorch. Needs a C compiler.
set -u
out=${1:-.}
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

skip() {
	echo "run-nccl-pingpong: skipped: $1"
	echo "run-nccl-pingpong: 0 passed, 0 failed, 1 skipped"
	exit 77
}

site=$(python3 -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null)
first() { # file pattern, folders...: the first folder that has it
	local pattern=$1 folder found
	shift
	for folder in "$@"; do
		found=$(find -L "$folder" -maxdepth 4 -name "$pattern" 2>/dev/null | sort | head -n 1)
		[ -n "$found" ] && echo "$found" && return
	done
}
# shellcheck disable=SC2086
{
	nccl_h=$(first nccl.h /usr/include /usr/local/include /usr/local/cuda/include $site)
	nccl_so=$(first 'libnccl.so*' /usr/lib /usr/lib64 /usr/local/lib /usr/local/cuda/lib64 $site)
	cuda_h=$(first cuda_runtime.h /usr/local/cuda/include /usr/include $site)
	cudart=$(first 'libcudart.so*' /usr/local/cuda/lib64 /usr/local/cuda/targets /usr/lib $site)
}
for file in "nccl.h:$nccl_h" "libnccl.so:$nccl_so" "cuda_runtime.h:$cuda_h" "libcudart.so:$cudart"; do
	[ -n "${file#*:}" ] || skip "no ${file%%:*}"
done
passed=0 failed=0
${CC:-cc} -O2 -std=gnu11 -I"$(dirname "$nccl_h")" -I"$(dirname "$cuda_h")" "$here/nccl_pingpong.c" \
	-o "$tmp/nccl_pingpong" "$nccl_so" "$cudart" -Wl,-rpath,"$(dirname "$nccl_so")" \
	-Wl,-rpath,"$(dirname "$cudart")" ||
	{ echo "run-nccl-pingpong: 0 passed, 1 failed, 0 skipped"; exit 1; }

# run NAME WAY ENVIRONMENT...: WAY is what NCCL's log has to say that it took
run() {
	local name=$1 way=$2
	shift 2
	env NCCL_P2P_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_IB_DISABLE=1 NCCL_DEBUG=INFO \
		NCCL_DEBUG_FILE="$tmp/log.%p" "$@" timeout 200 "$tmp/nccl_pingpong" "$name" \
		>"$tmp/$name.json" 2>"$tmp/err"
	case $? in
	0) ;;
	77) skip "$(cat "$tmp/err")" ;;
	*)
		tail -n 20 "$tmp/err"
		echo "run-nccl-pingpong: $name: FAILED"
		failed=$((failed + 1))
		return
		;;
	esac
	if ! grep -qh "via $way" "$tmp"/log.*; then
		echo "run-nccl-pingpong: $name: FAILED: NCCL's log does not say that it went via $way"
		failed=$((failed + 1))
		return
	fi
	rm -f "$tmp"/log.*
	cp "$tmp/$name.json" "$out/nccl-$name.json"
	cat "$tmp/$name.json"
	passed=$((passed + 1))
}

run sockets NET/Socket NCCL_SHM_DISABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}"
run shm SHM
echo "run-nccl-pingpong: $passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
