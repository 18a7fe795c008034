#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tool_test.sh BARWAY: drives the built program on the soft GPU. UPDATE=1 writes the snapshots of
# the help texts anew. Closes like the C tests: "name: N passed, N failed, N skipped", exit 0, 1 or 77.
[ $# = 1 ] || { echo "usage: $0 BARWAY" >&2; exit 1; }
. "$(dirname "$0")/checks.sh"
tool=$1
unset BARWAY_LOG BARWAY_FAULT BARWAY_PROVIDERS BARWAY_FALLBACK BARWAY_CACHE_BYTES BARWAY_LIBCUDA
export BARWAY_DEVICES=soft

# run ARGUMENT...: code, $tmp/out, $tmp/err. MESON_EXE_WRAPPER: an emulator where that is needed.
run()
{
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

# ---- help and version -------------------------------------------------------------------

snapshot() # NAME ARGUMENT...
{
	file=$1
	shift
	run "$@"
	helped "$file"
}

check 'help' snapshot help --help
check 'help, short' snapshot help -h
check 'help of info' snapshot info-help info --help
check 'help of info, short' snapshot info-help info -h

version()
{
	run "$1"
	[ "$code" = 0 ] && lines out 1 && grep -qE '^barway [0-9]+\.[0-9]+\.[0-9]+$' "$tmp/out"
}
check 'version' version --version
check 'version, short' version -V

# ---- bad input: code 2, one line, nothing on stdout ---------------------------------------

refused() # MESSAGE ARGUMENT...
{
	want=$1
	shift
	run "$@"
	said_no 2 "$want"
}

# message | arguments, separated by spaces
while IFS='|' read -r message arguments; do
	# shellcheck disable=SC2086
	check "bad input: $arguments" refused "$message" $arguments
done <<'TABLE'
barway: no verb given; see 'barway --help'|
barway: unknown verb 'frob'; see 'barway --help'|frob
barway: unknown option '--frob'; see 'barway --help'|--frob
barway info: unknown option '--frob'; see 'barway info --help'|info --frob
barway info: unknown option '-x'; see 'barway info --help'|info -x
barway info: unknown option '-s'; see 'barway info --help'|info -s 1K
barway info: --json takes no value; see 'barway info --help'|info --json=yes
barway info: -d needs a value; see 'barway info --help'|info -d
barway info: --device needs a value; see 'barway info --help'|info --device
barway info: unexpected argument 'extra'; see 'barway info --help'|info extra
barway info: unexpected argument 'extra'; see 'barway info --help'|info --json extra
barway info: -d: |info -d 99
barway info: -d: |info -d GPU-none-such
TABLE

# ---- failures: code 1, one line -----------------------------------------------------------

fails() # ARGUMENT...
{
	run "$@"
	[ "$code" = 1 ] && lines err 1 && grep -q "^barway $1: ." "$tmp/err"
}

bad_parameter()
{
	BARWAY_SOFT_MEMORY=abc fails info && has err BARWAY_SOFT_MEMORY
}
check 'a parameter that is no value' bad_parameter

full_disk() # ARGUMENT...
{
	[ -c /dev/full ] || return 0
	# shellcheck disable=SC2086
	BARWAY_DEVICES=soft $MESON_EXE_WRAPPER "$tool" "$@" >/dev/full 2>"$tmp/err"
	[ $? = 1 ] && lines err 1 &&
		has err 'barway: cannot write the output: No space left on device'
}
check 'output that cannot be written' full_disk info --json
check 'output that cannot be written, early' full_disk copylat -s 1 -w 2 -r 2

# ---- info ---------------------------------------------------------------------------------

info_soft()
{
	run info
	[ "$code" = 0 ] && quiet err && plain && narrow 80 &&
		head -1 "$tmp/out" | grep -q '^Soft GPU: ' &&
		has out 'device 0: ' && has out 'BAR1 aperture' && has out 'NUMA node' &&
		has out 'CPU kernels' && has out '  providers' && has out '    soft ' &&
		has out 'refuses' && has out 'this machine, before a device is chosen' &&
		[ "$(grep -c '^  providers$' "$tmp/out")" = 2 ] &&
		has out 'devices           soft (environment; default: auto)'
}
check 'info on the soft GPU' info_soft

info_device()
{
	BARWAY_SOFT_DEVICES=3
	export BARWAY_SOFT_DEVICES
	run info
	[ "$code" = 0 ] && [ "$(grep -c '^device ' "$tmp/out")" = 3 ] && run info -d 2 &&
		[ "$code" = 0 ] && [ "$(grep -c '^device ' "$tmp/out")" = 1 ] &&
		has out 'device 2: '
	result=$?
	unset BARWAY_SOFT_DEVICES
	return $result
}
check 'info of one device of three' info_device

info_params()
{
	run info --params
	[ "$code" = 0 ] && plain && narrow 80 && has out 'cache_bytes       64M (default)' &&
		has out 'soft_bar1         256M (default)'
}
check 'info lists all parameters' info_params

info_no_provider()
{
	BARWAY_PROVIDERS='rm'
	export BARWAY_PROVIDERS
	run info
	unset BARWAY_PROVIDERS
	[ "$code" = 1 ] && has out 'device 0: ' && has out refuses
}
check 'info: no provider takes the device' info_no_provider

info_no_device()
{
	BARWAY_DEVICES=cuda BARWAY_LIBCUDA=libnot-there.so.9
	export BARWAY_DEVICES BARWAY_LIBCUDA
	run info
	human=$code
	grep -q '^no device: .' "$tmp/out" && has out '  providers' && run info --json
	result=$?
	BARWAY_DEVICES=soft
	unset BARWAY_LIBCUDA
	[ $result = 0 ] && [ "$human" = 1 ] && [ "$code" = 1 ] && has out '"no_device_reason": "' &&
		has out '"machine_providers": ['
}
check 'info: no device' info_no_device

info_without_gpu()
{
	[ ! -e /dev/nvidiactl ] || return 0
	BARWAY_DEVICES=auto BARWAY_LIBCUDA=libnot-there.so.9
	export BARWAY_DEVICES BARWAY_LIBCUDA
	run info
	BARWAY_DEVICES=soft
	unset BARWAY_LIBCUDA
	[ "$code" = 0 ] && lines err 1 && has err 'no GPU: ' && has err libnot-there.so.9 &&
		head -1 "$tmp/out" | grep -q '^Soft GPU: ' &&
		sed -n '/^this machine/,/^$/p' "$tmp/out" | grep -q '/dev/nvidiactl: '
}
check 'info: the soft GPU took the place of one' info_without_gpu

# ---- JSON ---------------------------------------------------------------------------------

json() # CODE KEYS ARGUMENT...: $tmp/out is JSON and has these keys, "a.b" in each element of a list
{
	want=$1 keys=$2
	shift 2
	run "$@"
	[ "$code" = "$want" ] && quiet err && plain && python3 -m json.tool "$tmp/out" >/dev/null &&
		python3 - "$tmp/out" "$keys" <<'PYTHON'
import json
import sys

top = json.load(open(sys.argv[1]))
missing = []

def look(node, path, whole):
    if isinstance(node, list):
        if not node:
            missing.append(whole + ' (empty list)')
        for n in node:
            look(n, path, whole)
    elif path:
        if isinstance(node, dict) and path[0] in node:
            look(node[path[0]], path[1:], whole)
        else:
            missing.append(whole)

for key in sys.argv[2].split():
    name, _, value = key.partition('=')
    look(top, name.split('.'), name)
    if value and str(top.get(name)) != value:
        missing.append(f'{key} (it is {top.get(name)})')
if missing:
    print('missing:', *missing, sep='\n  ')
sys.exit(bool(missing))
PYTHON
}

info_keys='schema=barway-info-1 version soft=True note no_device_reason devices.index devices.kind
devices.name devices.pci devices.uuid devices.driver devices.numa_node devices.near_cpus
devices.memory_total_bytes devices.memory_free_bytes devices.bar1_total_bytes
devices.bar1_free_bytes devices.bar1_used_bytes devices.store_kernel devices.load_kernel
devices.providers.name devices.providers.score devices.providers.refuses devices.providers.reason
devices.providers.keeps_alive machine_providers.name machine_providers.score
machine_providers.refuses machine_providers.reason machine_providers.keeps_alive parameters.name parameters.value parameters.default
parameters.source parameters.help'

if command -v python3 >/dev/null 2>&1; then
	check 'JSON of info' json 0 "$info_keys" info --json
	check 'JSON of info, all parameters' json 0 "$info_keys" info --json --params -d 0
else
	skip 'JSON' 'python3 is not there'
fi

total
