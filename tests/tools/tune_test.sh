#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# tune_test.sh BARWAY: barway tune on the soft GPU. UPDATE=1 writes the snapshots of its help and of
# its JSON anew. Closes like the C tests: "name: N passed, N failed, N skipped", exit 0, 1 or 77.
[ $# = 1 ] || { echo "usage: $0 BARWAY" >&2; exit 1; }
. "$(dirname "$0")/checks.sh"
tool=$1
unset BARWAY_LOG BARWAY_FAULT BARWAY_PROVIDERS BARWAY_FALLBACK BARWAY_LIBCUDA BARWAY_COPY_THREADS
unset BARWAY_COPY_METHOD XDG_CACHE_HOME
export BARWAY_DEVICES=soft BARWAY_PLAN_DIR="$tmp/plans" HOME="$tmp"

# run ARGUMENT...: code, $tmp/out, $tmp/err. MESON_EXE_WRAPPER: an emulator where that is needed.
run()
{
	# shellcheck disable=SC2086
	$MESON_EXE_WRAPPER "$tool" tune "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

rows() { grep -cE '^ +[0-9]+ ' "$tmp/out"; }
files() { find "$1" -type f 2>/dev/null | wc -l; }
have_python() { command -v python3 >/dev/null 2>&1; }

# ---- help, usage ------------------------------------------------------------------------

help()
{
	run "$1"
	helped tune-help
}
check 'help' help --help
check 'help, short' help -h

refused() # MESSAGE ARGUMENT...: code 2, one line, nothing on stdout, nothing measured
{
	want=$1
	shift
	run "$@"
	said_no 2 "$want" && [ ! -e "$tmp/plans" ]
}

# message | arguments, separated by spaces
while IFS='|' read -r message arguments; do
	# shellcheck disable=SC2086
	check "bad input: $arguments" refused "$message" $arguments
done <<TABLE
barway tune: --threads: '65' is not a number from 0 to 64|--threads 65
barway tune: --threads: 'x' is not a number from 0 to 64|--threads x
barway tune: --show measures and writes nothing: leave --dry-run away|--show --dry-run
barway tune: --show measures and writes nothing: leave -o away|-o x --show
barway tune: -o and --dry-run: a file, or none: leave one away|-o x --dry-run
barway tune: -d: |-d 99 --dry-run
barway tune: --plot: this measurement cannot be drawn|--show --plot $tmp/x.svg
barway tune: unknown option '--frob'; see 'barway tune --help'|--frob
barway tune: unexpected argument 'extra'; see 'barway tune --help'|extra
TABLE
check 'bad input: empty name' refused '-o: the name is empty' -o ''

# ---- before there are figures -------------------------------------------------------------

shows_built_in()
{
	run --show
	[ "$code" = 0 ] && quiet err && plain && grep -q '^Soft GPU: ' "$tmp/out" &&
		has out 'plan              built in' && has out 'file              none' &&
		[ "$(rows)" = 42 ] && [ ! -e "$tmp/plans" ]
}
check 'the plan that is built in' shows_built_in

dry()
{
	run --dry-run --threads 0
	[ "$code" = 0 ] && quiet err && plain && grep -q '^Soft GPU: ' "$tmp/out" &&
		has out "the soft GPU's alone" && has out 'written           nothing' &&
		sed -n 2p "$tmp/out" | grep -q '; provider soft ' &&
		has out 'host to GPU, microseconds' && has out 'GPU to host, microseconds' &&
		has out ' cpu ' && has out ' ce ' && ! has out resident\ \  && [ "$(rows)" = 30 ] &&
		[ ! -e "$tmp/plans" ]
}
check 'nothing is written where that is wanted' dry

# ---- figures ------------------------------------------------------------------------------

measures()
{
	run --threads 2 --resident --save "$tmp/tune.json"
	[ "$code" = 0 ] && quiet err && has out 'helper threads: 2; resident copier: started' &&
		has out ' threads ' && has out ' resident ' &&
		has out "written           $tmp/plans/plan-" && [ "$(files "$tmp/plans")" = 1 ] &&
		[ "$(grep -c '^barway-plan 1$' "$tmp"/plans/plan-*)" = 1 ] &&
		grep -q '^gpu .*soft' "$tmp"/plans/plan-* && grep -q '^threads from ' "$tmp"/plans/plan-*
}
check 'figures are measured and kept' measures

shows_them()
{
	run --show --threads 2 --resident --json
	cp "$tmp/out" "$tmp/show.json"
	[ "$code" = 0 ] && quiet err && has out '"source": "barway tune, 20' &&
		has out "\"file\": \"$tmp/plans/plan-" && has out '"resident": true'
}
check 'they are in force afterwards' shows_them

# What the one calls planned is what the library takes: by every figure of theirs.
same_choice()
{
	python3 - "$tmp/tune.json" "$tmp/show.json" >"$tmp/out" 2>"$tmp/err" <<'PYTHON'
import json, sys
tuned, shown = (json.load(open(path)) for path in sys.argv[1:])
rows = {(r['direction'], r['size_bytes']): r for r in shown['results']}
compared = 0
for r in tuned['results']:
    for host in 'pageable', 'pinned':
        got = rows.get((r['direction'], r['size_bytes']))
        if not got:
            continue
        plan = r[host]['plan']
        if got[host]['method'] != plan['method'] or \
           abs(got[host]['estimate_us'] - plan['median_us']) > 0.003:
            sys.exit(f"{r['direction']} {r['size_bytes']} {host}: {plan}, {got[host]}")
        # the resident copier has to be ahead by 15 percent
        others = [v['median_us'] / (0.85 if k == 'resident' else 1)
                  for k, v in r[host].items() if k != 'plan']
        if min(others) < plan['median_us'] * 0.95:
            sys.exit(f"{r['direction']} {r['size_bytes']} {host}: not the best")
        for name, v in r[host].items():
            if name != 'plan' and not v['min_us'] <= v['median_us'] <= v['p99_us']:
                sys.exit(f'{r} {name}: out of order')
        compared += 1
if compared < 50:
    sys.exit(f'only {compared} compared')
PYTHON
	code=$?
	[ "$code" = 0 ]
}
if have_python; then
	check 'what is marked is what is taken' same_choice
else
	skip 'what is marked is what is taken' 'no python3'
fi

schema() # NAME FILE
{
	python3 "$here/doctor_test_schema.py" "$here/snapshots/$1-schema.txt" "$2" >"$tmp/out" \
		2>"$tmp/err"
	code=$?
	[ "$code" = 0 ]
}
if have_python; then
	check 'the members of the figures' schema tune "$tmp/tune.json"
	check 'the members of the plan' schema tune-show "$tmp/show.json"
else
	skip 'the members' 'no python3'
fi

# A file that is there and cannot be taken: that is said, by the library and by the tool.
ignored() # WORDS COMMAND...: which spoils it
{
	words=$1 plan=$(echo "$tmp"/plans/plan-*)
	shift
	cp "$plan" "$tmp/good"
	"$@" "$plan" || return 1
	run --show
	cp "$tmp/good" "$plan"
	[ "$code" = 0 ] && lines err 1 && has err "barway: warning: plan $plan: $words" &&
		has out 'plan              built in' && has out 'file              none' &&
		tr -s '\n ' ' ' <"$tmp/out" | grep -qF " ignored plan $plan: $words"
}
check 'a plan of another version is ignored aloud' ignored 'not a plan of this version: run' \
	sed -i '1s/1/2/'
check 'a plan of another driver is ignored aloud' ignored 'of another machine or driver: run' \
	sed -i 's/^driver .*/driver x/'
check 'an empty plan is ignored aloud' ignored 'not a plan of this version' cp /dev/null

# It is given by a link, which stays.
elsewhere()
{
	before=$(cat "$tmp"/plans/plan-*)
	mkdir "$tmp/kept" && echo old >"$tmp/kept/plan" && ln -s kept/plan "$tmp/mine" || return 1
	run --threads 0 -o "$tmp/mine"
	[ "$code" = 0 ] && has out "written           $tmp/mine, where contexts do not look" &&
		[ -L "$tmp/mine" ] && [ "$(files "$tmp/kept")" = 1 ] &&
		grep -q '^barway-plan 1$' "$tmp/kept/plan" && ! grep -q '^threads to' "$tmp/mine" &&
		[ "$before" = "$(cat "$tmp"/plans/plan-*)" ]
}
check 'a file elsewhere' elsewhere

cannot_write()
{
	run --threads 0 -o /none/at/all
	[ "$code" = 2 ] && quiet out && lines err 1 &&
		has err "barway tune: -o: '/none/at/all' cannot be written: No such file" || return 1
	run --threads 0 -o "$tmp"
	[ "$code" = 2 ] && quiet out && lines err 1 && has err 'cannot be written: Is a directory' || return 1
	ln -s nothing "$tmp/loose"
	run --threads 0 -o "$tmp/loose"
	[ "$code" = 2 ] && lines err 1 && has err 'cannot be written: No such file' &&
		[ -L "$tmp/loose" ]
}
check 'a file that cannot be written' cannot_write

no_file() # COMMAND...: makes $tmp/node, which is never replaced
{
	rm -f "$tmp/node"
	"$@" || return 1
	run --threads 0 -o "$tmp/node"
	[ "$code" = 2 ] && lines err 1 && has err 'cannot be written: Not a regular file' &&
		[ ! -f "$tmp/node" ]
}
check 'a pipe is no file for a plan' no_file mkfifo "$tmp/node"
if mknod "$tmp/try" c 1 3 2>/dev/null; then
	check 'a device node is no file for a plan' no_file mknod "$tmp/node" c 1 3
else
	skip 'a device node is no file for a plan' 'mknod is not allowed'
fi

compared()
{
	run --dry-run --threads 0 --compare "$tmp/tune.json"
	[ "$code" = 0 ] && lines err 1 && has err '; helpers was 2, is 0; resident was true, ' &&
		has out 'pageable.cpu'
}
check 'figures are compared' compared

drawn()
{
	run --dry-run --threads 0 --plot "$tmp/tune.svg"
	[ "$code" = 0 ] && quiet err && has out "picture: $tmp/tune.svg" &&
		grep -q 'copy engine, pinned' "$tmp/tune.svg" &&
		grep -q 'what is planned, pageable' "$tmp/tune.svg"
}
if command -v gnuplot >/dev/null 2>&1; then
	check 'figures are drawn' drawn
else
	skip 'figures are drawn' 'no gnuplot'
fi

total
