#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# boot_test.sh SCRIPTS: what test-vm-boot and run-tests make of a guest, with a QEMU that is a
# script: it plays what a guest says, and ends or hangs as one does.
set -u

scripts=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
passed=0 failed=0

cat >"$work/qemu" <<'END'
#!/bin/sh
# The second -serial is the port of the tests.
for word; do
	case $word in
	file:*) port=${word#file:} ;;
	*guest=*) guest=${word#*guest=} guest=${guest%% *} ;;
	esac
done
cat "${0%/*}/says.$guest" >"$port"
[ ! -f "${0%/*}/hangs.$guest" ] || exec sleep 100
END
chmod +x "$work/qemu"
printf '1 one\n1 two\tA=1 args # words\n\n# more\n' >"$work/list"

guests=1
plays() { # name, what the last line has to be, exit code; what guest 1 says on stdin
	cat >"$work/says.1"
	"$scripts/test-vm-boot" --qemu "$work/qemu" --guests $guests --grace 1 --start 2 "$work" \
		"$work/list" >"$work/out" 2>&1
	"$scripts/run-tests" --log "$work/list.json" >>"$work/out" 2>&1
	status=$?
	if [ "$(tail -n 1 "$work/out")" = "$2" ] && [ $status = "$3" ]; then
		passed=$((passed + 1))
		return
	fi
	cat "$work/out"
	echo "boot_test: $1: FAILED: ended with $status, expected \"$2\" and $3"
	failed=$((failed + 1))
}

says() { # text; in what run-tests said last
	grep -qF "$1" "$work/out" && passed=$((passed + 1)) && return
	cat "$work/out"
	echo "boot_test: FAILED: nothing says: $1"
	failed=$((failed + 1))
}

plays passes '5 passed, 0 failed, 1 skipped' 0 <<'END'
== guest ready
== begin 1 one
one: 2 passed, 0 failed, 0 skipped
== end 1 0 0
== begin 2 two
two: x: skipped: no reason
two: 3 passed, 0 failed, 1 skipped
== end 2 0 1
== done
END
says 'two: x: skipped: no reason'
plays fails '2 passed, 1 failed, 0 skipped' 1 <<'END'
== begin 1 one
one: 2 passed, 0 failed, 0 skipped
== end 1 0 0
== begin 2 two
two: x: FAILED
two: 0 passed, 1 failed, 0 skipped
== end 2 1 0
== done
END
plays lies '3 passed, 1 failed, 0 skipped' 1 <<'END'
== begin 1 one
one: 2 passed, 0 failed, 0 skipped
== end 1 1 0
== begin 2 two
two: 1 passed, 0 failed, 0 skipped
== end 2 0 0
== done
END
plays 'is gone' '0 passed, 2 failed, 0 skipped' 1 <<'END'
== begin 1 one
END
says 'one: ended with -1 (the guest ended'
says 'two A=1 args: ended with -1 (it did not begin'
plays 'takes too long' '2 passed, 1 failed, 0 skipped' 1 <<'END'
== begin 1 one
== end 1 137 1
== begin 2 two
two: 2 passed, 0 failed, 0 skipped
== end 2 0 0
== done
END
says 'one: ran out of time'
plays 'is killed' '1 passed, 1 failed, 0 skipped' 1 <<'END'
== begin 1 one
== end 1 137 0
== begin 2 two
two: 1 passed, 0 failed, 0 skipped
== end 2 0 0
== done
END
says 'one: ended with 137'
: >"$work/hangs.1"
plays hangs '1 passed, 1 failed, 0 skipped' 1 <<'END'
== begin 1 one
one: 1 passed, 0 failed, 0 skipped
== end 1 0 0
== begin 2 two
END
says 'the guest does not answer since two'
plays 'never starts' '0 passed, 2 failed, 0 skipped' 1 <<'END'
END
says 'said nothing for 2 s'


# ---- two guests ----------------------------------------------------------------------------------

guests=2
one='== begin 1 one
one: 2 passed, 0 failed, 0 skipped
== end 1 0 0'
two='== begin 2 two
two: 1 passed, 0 failed, 0 skipped
== end 2 0 0'
rm "$work/hangs.1"

printf '%s\n' "$one" "$two" '== done' >"$work/says.2"
plays 'two pass' '6 passed, 0 failed, 0 skipped' 0 <<END
$one
$two
== done
END
: >"$work/hangs.2"
printf '%s\n' "$one" '== begin 2 two' 'two: 3 passed, 0 failed, 0 skipped' '== kill' >"$work/says.2"
plays 'wants to be killed' '8 passed, 0 failed, 0 skipped' 0 <<END
$one
$two
== done
END
says 'guest 2 was killed, as it wanted'
printf '%s\n' '== kill' '== begin 1 one' 'one: 2 passed, 1 failed, 0 skipped' '== kill' \
	>"$work/says.2"
plays 'fails and wants to be killed' '5 passed, 2 failed, 0 skipped' 1 <<END
$one
$two
== done
END
says 'guest 2: one: exited with 0 although cases failed'
says 'guest 2: two A=1 args: ended with -1 (it did not begin: the guest was killed, as it wanted'
printf '%s\n' "$one" '== begin 2 two' >"$work/says.2"
: >"$work/hangs.1"
plays 'one hangs' '4 passed, 2 failed, 0 skipped' 1 <<END
$one
== begin 2 two
END
says 'does not answer since two'
rm "$work/hangs.2"
plays 'one is gone' '4 passed, 2 failed, 0 skipped' 1 <<END
$one
== begin 2 two
END
says 'guest 2: two A=1 args: ended with -1 (the guest ended (QEMU with 0))'
says 'guest 1: two A=1 args: ended with -1 (the guest was ended, as guest 2 ended (QEMU with 0))'

echo "boot_test: $passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
