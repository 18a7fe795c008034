# shellcheck shell=sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Read by doctor_test.sh: machines that are not there. Files of the system come from $root
# (BARWAY_DOCTOR_ROOT), the driver's own from libfakenv.so, libcuda from $lib.

# pci_device ADDRESS VENDOR CLASS [DRIVER [PARENT-ADDRESS]]: a device behind a root port
pci_device()
{
	where=$root/sys/devices/pci0000:1a/${5:-0000:1a:01.0}
	mkdir -p "$where/$1" "$root/sys/bus/pci/devices"
	for device in "$where" "$where/$1"; do
		echo '32.0 GT/s PCIe' >"$device/current_link_speed"
		echo '32.0 GT/s PCIe' >"$device/max_link_speed"
		echo 16 >"$device/current_link_width"
		echo 16 >"$device/max_link_width"
		ln -sfn "$device" "$root/sys/bus/pci/devices/${device##*/}"
	done
	echo 0x8086 >"$where/vendor"
	echo 0x060400 >"$where/class"
	echo "$2" >"$where/$1/vendor"
	echo "$3" >"$where/$1/class"
	echo 0 >"$where/$1/numa_node"
	[ -z "$4" ] || ln -sfn "../../../../bus/pci/drivers/$4" "$where/$1/driver"
}

# machine [DRIVER]: one with a GPU that DRIVER has; the tests of sanity pass in it
machine()
{
	rm -rf "$root"
	mkdir -p "$root/proc/self" "$root/sys/devices/system/node/node0" "$lib"
	pci_device 0000:1b:00.0 0x10de 0x030200 "${1-nvidia}"
	echo 0-1 >"$root/sys/devices/system/node/online"
	echo '10 21' >"$root/sys/devices/system/node/node0/distance"
	gpu=$root/sys/bus/pci/devices/0000:1b:00.0
	sanity 0 '{"cases": [{"name": "basics", "verdict": "passed", "reason": "", "ms": 1},
		{"name": "pools", "verdict": "waived", "reason": "none here", "ms": 0}],
		"passed": 1, "failed": 0, "waived": 1}'
	FAKENV=
	preload=$fakenv
	libcuda 580.159.04
}

# without_gpu: a machine that has none, and no driver
without_gpu()
{
	machine
	rm -rf "$root/sys" "$root/dev"
	pci_device 0000:1b:00.0 0x8086 0x020000 e1000e
	preload=
	rm -f "$lib"/libcuda*
}

# no_module: no NVIDIA kernel module is loaded
no_module() { FAKENV=proc_version=0,sysfs_version=0,ctl=0,nodes=0; }

# libcuda VERSION: the library of that driver is where the loader looks
libcuda()
{
	rm -f "$lib"/libcuda*
	cp "$fake_libcuda" "$lib/libcuda.so.$1"
	ln -s "libcuda.so.$1" "$lib/libcuda.so.1"
}

# sanity STATUS OUTPUT: what 'barway sanity' says and its exit status; "hang": it does not end
sanity()
{
	printf '%s\n' "$2" >"$root/sanity"
	cat >"$root/proc/self/exe" <<SCRIPT
#!/bin/sh
[ "\$1" = sanity ] || exec "$tool" "\$@"
echo "\$BARWAY_DEVICES \$*" >"$root/sanity.run"
if [ "$1" = hang ]; then exec sleep 30; fi
cat "$root/sanity"
exit $1
SCRIPT
	chmod +x "$root/proc/self/exe"
}

# real_sanity [FAULT]: the program's own tests, with a fault injected into them alone
real_sanity()
{
	cat >"$root/proc/self/exe" <<SCRIPT
#!/bin/sh
[ "\$1" != sanity ] || export BARWAY_FAULT="$1"
exec "$tool" "\$@"
SCRIPT
}
