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
	case $word in file:*) port=${word#file:} ;; esac
done
cat "${0%/*}/says" >"$port"
[ ! -f "${0%/*}/hangs" ] || exec sleep 100
END
chmod +x "$work/qemu"
printf '1 one\n1 two\tA=1 args # words\n\n# more\n' >"$work/list"

plays() { # name, what the last line has to be, exit code; what the guest says on stdin
	cat >"$work/says"
	"$scripts/test-vm-boot" --qemu "$work/qemu" --grace 1 --start 2 "$work" "$work/list" \
		>"$work/out" 2>&1
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
: >"$work/hangs"
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

echo "boot_test: $passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
