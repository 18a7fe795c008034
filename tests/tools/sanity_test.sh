#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# sanity_test.sh BARWAY GDRAPI-FOLDER [LIBFAKENV LIBCUDA]: barway sanity on the soft GPU, and over a
# driver that is not there where that can be preloaded. UPDATE=1 writes the snapshot of the help
# anew. Closes like the C tests: "name: N passed, N failed, N skipped", exit 0, 1 or 77.
[ $# = 2 ] || [ $# = 4 ] ||
	{ echo "usage: $0 BARWAY GDRAPI-FOLDER [LIBFAKENV LIBCUDA]" >&2; exit 1; }
. "$(dirname "$0")/checks.sh"
tool=$1 gdrapi=$2 fakenv=$3 libcuda=$4
unset BARWAY_LOG BARWAY_FAULT BARWAY_PROVIDERS BARWAY_FALLBACK BARWAY_CACHE_BYTES BARWAY_LIBCUDA
unset GDRCOPY_ENABLE_LOGGING LD_PRELOAD
export BARWAY_DEVICES=soft LD_LIBRARY_PATH="$gdrapi"

run() # ARGUMENT...: code, $tmp/out, $tmp/err
{
	"$tool" sanity "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

# with_env NAME=VALUE... -- ARGUMENT...: run() with these in the environment
with_env()
{
	set_here=
	while [ "$1" != -- ]; do
		set_here="$set_here $1"
		shift
	done
	shift
	# shellcheck disable=SC2086
	env $set_here "$tool" sanity "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

count() { grep -c "^$1 " "$tmp/out"; }
# "verdict CASE": what the output says of it
verdict() { sed -n "s/^\([a-z]*\)  $1  *[0-9]* ms\$/\1/p" "$tmp/out"; }

# ---- help, usage ------------------------------------------------------------------------

snapshot()
{
	run "$@"
	helped sanity-help
}
check 'help' snapshot --help
check 'help, short' snapshot -h
check 'help before other options' snapshot --quick -h

refused() # MESSAGE ARGUMENT...
{
	want=$1
	shift
	run "$@"
	said_no 2 "barway sanity: $want"
}
# message | arguments, separated by spaces
while IFS='|' read -r message arguments; do
	# shellcheck disable=SC2086
	check "bad input: $arguments" refused "$message" $arguments
done <<'TABLE'
unknown option '--frob'; see 'barway sanity --help'|--frob
unknown option '-x'; see 'barway sanity --help'|-x
--quick takes no value; see|--quick=yes
-t needs a value; see|-t
-t: '0' is not a number of seconds from 0.001 to 86400|-t 0
-t: '0.0001' is not a number of seconds|-t 0.0001
-t: '86401' is not a number of seconds|-t 86401
-t: '1.' is not a number of seconds|-t 1.
-t: '1e3' is not a number of seconds|-t 1e3
-t: '-1' is not a number of seconds|-t -1
-t: 'nan' is not a number of seconds|-t nan
-s needs a value; see|-s
unknown case 'frob'; 'barway sanity -l' lists them|-s frob
unknown case 'frob'; 'barway sanity -l' lists them|frob
unknown case 'basic'; 'barway sanity -l' lists them|basics basic
no case is left to run|basics -s basics
-d: barway_device_find: no device is called '99'|-d 99
-d: barway_device_find: no device is called 'GPU-none'|-d GPU-none basics
TABLE
check 'bad input: empty name' refused '-d: barway_device_find: the name is empty' -d '' basics

listed()
{
	run -l
	[ "$code" = 0 ] && quiet err && [ "$(wc -l <"$tmp/out")" -ge 25 ] && has out 'basics ' &&
		has out 'gdrapi_basics ' && has out '(quick)' &&
		[ -z "$(awk '{ print $1 }' "$tmp/out" | sort | uniq -d)" ]
}
check 'list of cases' listed
listed_json()
{
	run -l --json
	[ "$code" = 0 ] && quiet err && has out '"schema": "barway-sanity-list-1"' &&
		[ "$(grep -c '"name": ' "$tmp/out")" = "$("$tool" sanity -l | wc -l)" ]
}
check 'list of cases, JSON' listed_json
cases=$("$tool" sanity -l | wc -l)
quick=$("$tool" sanity -l | grep -c '(quick)')

# ---- on the soft GPU --------------------------------------------------------------------

# What the soft GPU has not: it is waived, and the reason is a sentence.
whole()
{
	run
	[ "$code" = 0 ] && quiet err &&
		head -1 "$tmp/out" | grep -q '^device 0: .*soft GPU.*there is no GPU here' &&
		[ "$(count passed)" = $((cases - 8)) ] && [ "$(count waived)" = 8 ] &&
		[ "$(count failed)" = 0 ] || return 1
	for case in device_memory vmm vmm_handle_type vmm_two_handles pool other_process \
		freed_device freed_vmm; do
		[ "$(verdict $case)" = waived ] || return 1
	done
	[ "$(grep -c 'the soft GPU has no memory of this kind' "$tmp/out")" = 8 ] &&
		has out "Total: $cases, Passed: $((cases - 8)), Failed: 0, Waived: 8"
}
check 'all cases' whole

quick_ones()
{
	start=$(date +%s)
	run --quick
	end=$(date +%s)
	[ "$code" = 0 ] && quiet err && [ "$(count passed)" = $((quick - 2)) ] &&
		has out "Total: $quick, Passed: $((quick - 2)), Failed: 0, Waived: 2" &&
		[ $((end - start)) -le 20 ] # 0.2 s where nothing else runs
}
check 'the quick ones' quick_ones

chosen()
{
	run -s sizes basics sizes stores
	[ "$code" = 0 ] && [ "$(count passed)" = 2 ] && [ "$(verdict basics)" = passed ] &&
		[ "$(verdict stores)" = passed ] && has out 'Total: 2, '
}
check 'cases by name, but one' chosen

another_device()
{
	with_env BARWAY_SOFT_DEVICES=3 -- -d 2 basics stores gdrapi_basics
	[ "$code" = 0 ] && head -1 "$tmp/out" | grep -q '^device 2: ' && [ "$(count passed)" = 3 ]
}
check 'another device' another_device

verbose()
{
	run -v basics
	[ "$code" = 0 ] && has out 'passed  basics' && has out 'open, map, copy' &&
		has err 'barway: info'
}
check 'verbose' verbose

# Where it is neither in the loader's path nor beside libbarway nor where it was built.
no_gdrapi()
{
	with_env "LD_LIBRARY_PATH=$tmp/alone" -- gdrapi_basics gdrapi_leaks
	[ "$code" = 0 ] && [ "$(count waived)" = 2 ] && has out libgdrapi.so.2
}
beside_libbarway()
{
	with_env LD_LIBRARY_PATH=/nowhere -- gdrapi_basics gdrapi_leaks
	[ "$code" = 0 ] && [ "$(count passed)" = 2 ]
}

libbarway=$(ldd "$tool" 2>/dev/null | sed -n 's/.*libbarway\.so[^ ]* => \([^ ]*\) .*/\1/p')
if [ -n "$libbarway" ]; then
	mkdir "$tmp/alone" && cp "$libbarway" "$tmp/alone" || exit 1
	check 'no libgdrapi: waived' no_gdrapi
	check 'libgdrapi where it was built: found' beside_libbarway
else
	skip 'no libgdrapi; one where it was built' 'what libbarway the tool takes is not known'
fi

# A library of that name that is not Barway's: one that lacks functions, and one that has them all,
# which hangs or crashes if it is told to.
make_other()
{
	mkdir "$tmp/lacks" "$tmp/other" || return 1
	echo 'int gdr_open(void); int gdr_open(void) { return 0; }' >"$tmp/lacks/g.c"
	{
		echo '#include <stdlib.h>'
		echo '#include <unistd.h>'
		for f in close pin_buffer unpin_buffer get_callback_flag get_info_v2 map unmap \
			copy_to_mapping copy_from_mapping runtime_get_version driver_get_version \
			get_attribute; do
			echo "int gdr_$f(void); int gdr_$f(void) { return 0; }"
		done
		echo 'void *gdr_open(void);'
		echo 'void *gdr_open(void)'
		echo '{ if (getenv("HANGS")) while (1) pause(); if (getenv("CRASHES")) _exit(9);'
		echo '  if (getenv("ABORTS")) abort(); return "a gdr_t"; }'
	} >"$tmp/other/g.c"
	for d in lacks other; do
		cc -shared -fPIC -o "$tmp/$d/libgdrapi.so.2" "$tmp/$d/g.c" || return 1
	done
}

says() { tr -s '\n ' ' ' <"$tmp/out" | grep -qF "$1"; } # whatever lines it was broken into

other() # FOLDER ENVIRONMENT CODE VERDICT WORDS
{
	with_env "LD_LIBRARY_PATH=$tmp/$1" "$2" -- -t 1 gdrapi_basics pool
	[ "$code" = "$3" ] && [ "$(verdict gdrapi_basics)" = "$4" ] && says "$5" &&
		[ "$(verdict pool)" = waived ]
}

if make_other 2>"$tmp/err"; then
	check 'a libgdrapi that lacks functions: waived' other lacks A= 0 waived "not Barway's"
	check 'another libgdrapi: waived' other other A= 0 waived "not Barway's"
	check 'a case that hangs' other other HANGS=1 1 failed 'not done within 1 s'
	check 'a case that just ends' other other CRASHES=1 1 failed \
		'the case ended with exit code 9 and gave no verdict'
	check 'a case that crashes' other other ABORTS=1 1 failed 'was ended by signal 6 '
else
	skip 'another libgdrapi; cases that hang or crash' 'there is no compiler'
fi

# ---- what fails -------------------------------------------------------------------------

planted() # FAULT CASE WORDS
{
	with_env "BARWAY_FAULT=$1" -- two_mappings "$2"
	[ "$code" = 1 ] && [ "$(verdict "$2")" = failed ] && says "$3" && has out 'Failed: '
}
check 'a full aperture is seen' planted aperture@2 unaligned 'the BAR1 aperture is full'
check 'a failing copy engine is seen' planted copy@3 basics 'the copy engine failed'
check 'failing memory is seen' planted device-alloc@1 sizes 'fault injected'
check 'a failing thread is seen' planted thread@1 stores 'use the GPU beside Barway'

full_aperture()
{
	with_env BARWAY_SOFT_BAR1=1M -- adjacent leaks small_buffers two_mappings
	[ "$code" = 1 ] && [ "$(verdict two_mappings)" = failed ] &&
		[ "$(verdict small_buffers)" = passed ]
}
check 'a small aperture: what needs more fails, the rest passes' full_aperture

time_limit()
{
	run -t 0.005 sizes basics
	[ "$code" = 1 ] && [ "$(verdict sizes)" = failed ] && has out 'not done within 0.005 s'
}
check 'the time limit' time_limit

no_device()
{
	with_env BARWAY_DEVICES=cuda BARWAY_LIBCUDA=libnot-there.so.9 -- --json
	[ "$code" = 1 ] && quiet out && lines err 1 && has err 'barway sanity: ' &&
		has err libnot-there
}
check 'no device' no_device

full_disk()
{
	"$tool" sanity basics >/dev/full 2>"$tmp/err"
	[ $? = 1 ] && has err 'barway: cannot write the output'
}
if [ -c /dev/full ]; then check 'output that cannot be written' full_disk; fi

# ---- JSON -------------------------------------------------------------------------------

json() # CODE WHAT ARGUMENT...: it is JSON, with the documented keys; WHAT is true of it
{
	want=$1 what=$2
	shift 2
	run "$@"
	[ "$code" = "$want" ] && python3 - "$tmp/out" "$what" <<'PYTHON'
import json
import sys

top = json.load(open(sys.argv[1]))
keys = ['schema', 'tool', 'version', 'soft', 'note', 'device', 'quick', 'cases', 'passed',
        'failed', 'waived']
verdicts = [c['verdict'] for c in top['cases']]
assert list(top) == keys, list(top)
assert top['schema'] == 'barway-sanity-1' and top['tool'] == 'barway sanity'
assert list(top['device']) == ['index', 'kind', 'name', 'pci', 'uuid', 'driver']
for c in top['cases']:
    assert list(c) == ['name', 'what', 'verdict', 'reason', 'ms'], c
    assert (c['reason'] is None) == (c['verdict'] == 'passed'), c
    assert c['ms'] >= 0, c
for v in ('passed', 'failed', 'waived'):
    assert top[v] == verdicts.count(v), (v, top[v])
assert eval(sys.argv[2]), (sys.argv[2], top)
PYTHON
}
if command -v python3 >/dev/null 2>&1; then
	check 'JSON, quick' json 0 "top['quick'] and top['soft'] and 'no GPU' in top['note'] and \
top['passed'] + 2 == len(top['cases']) == $quick" --quick --json
	check 'JSON, waived' json 0 'top["waived"] == 1 and top["device"]["kind"] == "soft"' \
		--json pool basics
	run --json basics pool
	check 'JSON, its members' python3 "$here/doctor_test_schema.py" \
		"$here/snapshots/sanity-schema.txt" "$tmp/out"
	check 'JSON, failed' json 1 \
		'top["failed"] == 1 and "0.002 s" in top["cases"][0]["reason"]' --json -t 0.002 sizes
else
	skip 'JSON' 'python3 is not there'
fi

# ---- over a driver that is not there ----------------------------------------------------

# It runs no kernels and imports no memory.
fake()
{
	with_env -u BARWAY_DEVICES "LD_PRELOAD=$fakenv" "BARWAY_LIBCUDA=$libcuda" -- \
		-s stores -s visible -s publish -s flush
	[ "$code" = 0 ] && quiet err && head -1 "$tmp/out" | grep -q '^device 0: NVIDIA Fake' &&
		[ "$(count passed)" = $((cases - 5)) ] && [ "$(verdict other_process)" = waived ]
}
fake_tampered()
{
	with_env -u BARWAY_DEVICES "LD_PRELOAD=$fakenv" "BARWAY_LIBCUDA=$libcuda" \
		FAKENV=tamper=map_wrong_offset -- basics vmm
	[ "$code" = 1 ] && [ "$(count failed)" = 2 ]
}
# A library before Barway's that gives nothing back.
keeps()
{
	echo 'int barway_mem_free(void); int barway_mem_free(void) { return 0; }' >"$tmp/keep.c"
	cc -shared -fPIC -o "$tmp/keep.so" "$tmp/keep.c" || return 1
	with_env "LD_PRELOAD=$tmp/keep.so" -- leaks_contexts
	[ "$code" = 1 ] && says 'after 24 contexts' && says 'of GPU memory did not come back'
}
if [ -n "$fakenv" ] && command -v cc >/dev/null 2>&1; then
	check 'memory that contexts do not give back is seen' keeps
fi
if [ -n "$fakenv" ]; then
	check 'over the fake driver' fake
	check 'over one that maps the wrong page' fake_tampered
else
	skip 'over the fake driver' 'it cannot be preloaded in this build'
fi

total
