#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# setup.sh demo|test|vm|ci: install what is missing to build, to test, to test in a guest of QEMU too,
# or to run everything.
#
# Does nothing, and needs no network, where everything is there. Otherwise installs Debian packages
# with apt-get, as root or through sudo. What the tests can do without is only asked for politely:
# without it some of them are skipped.
set -u

level=${1:-demo}
case $level in
demo | test | vm | ci) ;;
*)
	echo "usage: setup.sh demo|test|vm|ci" >&2
	exit 2
	;;
esac

required=
wanted=

have() { command -v "$1" >/dev/null 2>&1; }
have_admin() { (PATH="$PATH:/usr/sbin:/sbin" && have "$1"); } # not in the path of users
need() { required="$required $*"; }
want() { wanted="$wanted $*"; }

compiles() { # compiler, language, program
	printf '%s\n' "$3" | "$1" -x "$2" -o /dev/null - >/dev/null 2>&1
}

# Can a library be opened? Without a compiler to ask: no; asking for what is there does no harm.
opens() { # library
	probe=$(mktemp -d) || return 1
	printf '%s\n' '#include <dlfcn.h>
int main(int argc, char **argv) { return argc < 2 || !dlopen(argv[1], RTLD_NOW); }' |
		"${CC:-cc}" -x c -o "$probe/opens" - -ldl >/dev/null 2>&1 &&
		"$probe/opens" "$1" >/dev/null 2>&1
	opened=$?
	rm -rf "$probe"
	return $opened
}

# What scripts/test-vm makes its guest of, but for the kernel, which is downloaded there.
want_guest() {
	[ "$(uname -m)" = x86_64 ] || return 0
	have qemu-system-x86_64 || want qemu-system-x86 seabios
	have busybox && ! ldd "$(command -v busybox)" >/dev/null 2>&1 || want busybox-static
	have cpio || want cpio
	have_admin modprobe && have_admin depmod || want kmod
	have_admin rdma || want iproute2
	opens libfabric.so.1 || want libfabric1
	[ -f /etc/libibverbs.d/rxe.driver ] || want ibverbs-providers
}

missing() {
	required=
	wanted=

	if ! have "${CC:-cc}"; then
		need gcc libc6-dev
	elif ! compiles "${CC:-cc}" c '#include <stdio.h>
int main(void) { return 0; }'; then
		need libc6-dev
	fi
	have make || need make
	if ! have ninja && ! have ninja-build && ! have samu; then
		need ninja-build
	fi
	have meson || need meson
	have gnuplot || want gnuplot-nox
	compiles "${CC:-cc}" c '#include <numa.h>
int main(void) { return 0; }' || want libnuma-dev
	compiles "${CC:-cc}" c '#include <rdma/fi_endpoint.h>
int main(void) { return 0; }' || want libfabric-dev
	# What the library opens at run time: for connections to other processes.
	opens libcrypto.so.3 || opens libcrypto.so.1.1 || want libssl3
	# For two servers in one machine.
	have unshare || want util-linux
	have_admin ip || want iproute2
	[ "$level" = demo ] && return

	have python3 || need python3
	have nm || need binutils
	have "${CXX:-c++}" || want g++
	have pkg-config || want pkg-config
	have mandoc || want mandoc
	compiles "${CC:-cc}" c '#include <sys/sdt.h>
int main(void) { return 0; }' || want systemtap-sdt-dev
	[ "$level" = test ] && return

	want_guest
	[ "$level" = vm ] && return

	have clang || want clang
	if have clang && ! printf 'int main(void) { return 0; }' |
		clang -fsanitize=address -x c -o /dev/null - 2>/dev/null; then
		want libclang-rt-14-dev
	elif ! have clang; then
		want libclang-rt-14-dev
	fi
	have aarch64-linux-gnu-gcc || want gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	have powerpc64le-linux-gnu-gcc || want gcc-powerpc64le-linux-gnu libc6-dev-ppc64el-cross
	have qemu-aarch64 || have qemu-aarch64-static || want qemu-user
	have valgrind || want valgrind
}

# Installs the packages given; says why not and returns 1 where that is not possible.
install() {
	have apt-get || {
		echo "setup: no apt-get here: install with your package manager:$*" >&2
		return 1
	}
	if [ "$(id -u)" = 0 ]; then
		root=
	elif have sudo && sudo -n true 2>/dev/null; then
		root=sudo
	elif have sudo && [ -t 0 ]; then
		root=sudo
	else
		echo "setup: neither root nor sudo: have these packages installed:$*" >&2
		return 1
	fi
	echo "setup: installing:$*"
	# Package lists first where there are none yet, or where they are too old to serve.
	# shellcheck disable=SC2086
	$root env DEBIAN_FRONTEND=noninteractive sh -c '
		apt-get install -y --no-install-recommends "$@" </dev/null >/dev/null 2>&1 ||
		{ apt-get update </dev/null &&
		  apt-get install -y --no-install-recommends "$@" </dev/null; }' sh $* >&2
}

missing
[ -z "$required$wanted" ] && exit 0

# One package that cannot be had must not keep the rest away.
if ! install "$required$wanted" && [ -n "$wanted" ]; then
	missing
	[ -z "$required" ] || install "$required"
fi
missing
if [ -n "$required" ]; then
	echo "setup: still missing:$required (Debian package names)" >&2
	exit 1
fi
[ -z "$wanted" ] || echo "setup: going on without:$wanted; what needs them is skipped" >&2

version=$(meson --version 2>/dev/null)
case $version in
'' | 0.*)
	echo "setup: meson ${version:-does not run}: 1.0 or newer is needed (pip install meson)" >&2
	exit 1
	;;
esac
exit 0
