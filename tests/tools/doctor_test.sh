#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# doctor_test.sh BARWAY LIBFAKENV LIBCUDA: plays through machines on which something is wrong, and
# looks that 'barway doctor' says what, and what to do. UPDATE=1 writes the snapshots anew. Closes
# like the C tests: "name: N passed, N failed, N skipped", exit 0, 1 or 77.
[ $# = 3 ] || { echo "usage: $0 BARWAY LIBFAKENV LIBCUDA" >&2; exit 1; }
. "$(dirname "$0")/checks.sh"
tool=$1 fakenv=$2 fake_libcuda=$3
root=$tmp/root lib=$tmp/lib
seen=' '
unset BARWAY_LOG BARWAY_FAULT BARWAY_PROVIDERS BARWAY_FALLBACK BARWAY_CACHE_BYTES BARWAY_LIBCUDA \
	BARWAY_DEVICES BARWAY_RM_ROUTES BARWAY_RM_ALLOW_UNKNOWN CUDA_VISIBLE_DEVICES LD_PRELOAD \
	KUBERNETES_SERVICE_HOST
export BARWAY_DOCTOR_ROOT="$root"
. "$here/doctor_test_machine.sh"

# run ARGUMENT...: code, $tmp/out, $tmp/err
run()
{
	env LD_PRELOAD="$preload" FAKENV="$FAKENV" LD_LIBRARY_PATH="$lib" $with "$tool" "$@" \
		>"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
}

# $with is for one check
check()
{
	judge "$@"
	with=
}

shown()
{
	sed 's/^/    out: /' "$tmp/out" | sed '/"info"/,$d' | head -150
	sed 's/^/    err: /' "$tmp/err" | head -20
}

next() { sed -n '/^  "next": {$/,/^  }/p' "$tmp/out"; }

# a finding with that id, and words of its evidence
finding()
{
	case $seen in *" $1 "*) ;; *) seen="$seen$1 " ;; esac
	awk -v id="\"id\": \"$1\"" -v words="$2" '
		/^  "findings"/ { on = 1 }
		/^  "paths"/ { on = 0 }
		on && /"id": / { mine = index($0, id) }
		on && mine && /"evidence": / && index($0, words) { ok = 1 }
		END { exit !ok }' "$tmp/out"
}

# says CODE RESULT ID ACTION EVIDENCE [ARGUMENT...]: the id decides the next step
says()
{
	wanted=$1 result=$2 id=$3 action=$4 evidence=$5
	shift 5
	run doctor --json "$@"
	[ "$code" = "$wanted" ] && quiet err && plain && has out "\"result\": \"$result\"" &&
		next | grep -qF "\"id\": \"$id\"" && next | grep -qF -- "$action" &&
		finding "$id" "$evidence"
}

wrong() { says 1 wrong "$@"; } # ID ACTION EVIDENCE [ARGUMENT...]

# finds ID EVIDENCE: besides, without being the next step
finds() { run doctor --json && [ "$code" = 0 ] && finding "$1" "$2"; }

# link NAME VERDICT: of the chain
link() { grep -A1 -F "\"check\": \"$1\"," "$tmp/out" | grep -qF "\"verdict\": \"$2\""; }

# ---- all is well, and there is no GPU ------------------------------------------------------

well()
{
	run doctor --json
	[ "$code" = 0 ] && quiet err && has out '"result": "well"' && has out '"next": null' &&
		has out '"provider": "rm"' && has out '"route": "dma-buf hook"' &&
		has out '"caching": "write-combined"' && link sanity good &&
		! grep -q '"verdict": "[^g]' "$tmp/out" && [ "$(cat "$root/sanity.run")" = \
		'cuda sanity --quick --json -d 0' ]
}
machine
check 'all is well' well

in_words()
{
	run doctor
	[ "$code" = 0 ] && quiet err && plain && narrow 80 && has out 'device 0: NVIDIA Fake' &&
		has out 'provider          rm, memory found by dma-buf hook' &&
		has out 'result: all is well' && [ "$(tail -1 "$tmp/out")" = 'next: nothing to do' ]
}
check 'all is well, in words' in_words

without_gpu
check 'no GPU' says 0 no-gpu no-gpu 'put one in' 'no NVIDIA GPU among /sys/bus/pci/devices'
check 'no GPU: the soft GPU carries data' has out '"provider": "soft"'
check 'no GPU: the tests run on the soft GPU' \
	[ "$(cat "$root/sanity.run")" = 'soft sanity --quick --json -d 0' ]
no_gpu_in_words()
{
	run doctor
	[ "$code" = 0 ] && plain && narrow 80 && has out 'result: no GPU, nothing is wrong' &&
		has out 'quick tests       1 passed, 0 failed, 1 waived' &&
		tail -4 "$tmp/out" | grep -q '^next: to use a GPU: put one in'
}
check 'no GPU, in words' no_gpu_in_words
touch "$root/.dockerenv"
check 'no GPU in a container' says 0 no-gpu no-gpu 'docker run --gpus all' 'no NVIDIA GPU'
rm -rf "$root/sys"
check 'no PCI bus at all' says 0 no-gpu no-gpu '' 'nothing in /sys/bus/pci/devices'
with='env BARWAY_FAULT=device-alloc@1'
check 'not even the soft GPU' wrong soft-gpu 'unset BARWAY_FAULT; where that does not help: build' \
	'the soft GPU: '
with='env BARWAY_DEVICES=bogus'
check 'no GPU, and devices that there are not' wrong bad-parameter 'give auto, cuda or soft, or unset it' \
	BARWAY_DEVICES
with='env BARWAY_SOFT_BAR1=xyz'
check 'no GPU, and a size that is none' wrong bad-parameter 'BARWAY_SOFT_BAR1' 'not a value for it'
with='env BARWAY_PROVIDERS=rm'
check 'no GPU, and no provider of the soft GPU' wrong providers-excluded 'unset BARWAY_PROVIDERS' \
	'not among the allowed'
with='env BARWAY_DEVICES=cuda'
check 'no GPU, and programs want one' wrong devices-cuda 'unset BARWAY_DEVICES' "is 'cuda'"
soft_first()
{
	with='env BARWAY_DEVICES=cuda'
	run doctor
	[ "$code" = 1 ] && head -n 1 "$tmp/out" | grep -q '^Soft GPU: ' && [ "$(grep -c '^Soft GPU: ' \
		"$tmp/out")" = 1 ]
}
check 'no GPU, and programs want one: the first line' soft_first
soft_device() # -d is looked at on the soft GPU, too
{
	with='env BARWAY_SOFT_DEVICES=2'
	run doctor --json -d 1 && [ "$code" = 0 ] && [ "$(grep -c '"name": "Barway soft GPU"' \
		"$tmp/out")" = 2 ] && [ "$(cat "$root/sanity.run")" = 'soft sanity --quick --json -d 1' ]
}
check 'no GPU: one of two soft GPUs' soft_device
without_gpu
sanity 1 '{"cases": [{"name": "basics", "verdict": "failed", "reason": "it does not", "ms": 1}],
	"passed": 0, "failed": 1, "waived": 0}'
check 'the tests fail on the soft GPU' wrong sanity 'barway sanity -v basics' 'it does not'

# ---- other kinds of machine ----------------------------------------------------------------

machine
rm -rf "$root/sys"
FAKENV=wsl=1
echo 'Linux version 6.6.87.2-microsoft-standard-WSL2 (root@x)' >"$root/proc/version"
check 'WSL2' wrong wsl2 'run on Linux itself' 'microsoft-standard-WSL2'
machine
rm -rf "$root/sys"
FAKENV=jetson=1
check 'Jetson' wrong jetson 'cudaHostAlloc()' '/dev/nvmap'
mkdir -p "$root/proc/device-tree"
printf 'nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0' >"$root/proc/device-tree/compatible"
check 'Jetson, by its device tree' wrong jetson 'cudaHostAlloc()' 'nvidia,tegra in'
rm -r "$root/proc/device-tree"
mkdir "$root/etc"
touch "$root/etc/nv_tegra_release"
check 'Jetson, by its release' wrong jetson 'cudaHostAlloc()' 'nv_tegra_release'

# ---- the driver ----------------------------------------------------------------------------

machine nouveau
no_module
check 'nouveau has the GPU' wrong nouveau 'install the NVIDIA driver' '0000:1b:00.0 (nouveau)'
machine vfio-pci
no_module
check 'vfio has the GPU' wrong vfio 'driverctl unset-override 0000:1b:00.0' '(vfio-pci)'
machine ''
no_module
check 'no driver' wrong driver-missing 'install the NVIDIA driver, 515 or newer' '(no driver)'
check 'no driver: the links after it' link nodes 'not reached'
touch "$root/.dockerenv"
check 'no driver under a container' wrong driver-missing 'on the host' 'nvidia.ko'
mkdir -p "$root/lib/modules/$(uname -r)"
echo 'updates/dkms/nvidia.ko.zst: kernel/drivers/video/backlight.ko' \
	>"$root/lib/modules/$(uname -r)/modules.dep"
check 'driver not loaded' wrong driver-not-loaded 'sudo modprobe nvidia' 'modules.dep'
machine
mkdir -p "$root/proc/driver/nvidia"
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May' \
	>"$root/proc/driver/nvidia/version"
check 'driver too old' wrong driver-old 'install the NVIDIA driver, 515 or newer' '470.256.02'
machine ''
check 'the driver has not taken the GPU' wrong gpu-init 'sudo dmesg' 'has taken no GPU'

# ---- device nodes and permission -----------------------------------------------------------

machine
FAKENV=nodes=0
check 'no device nodes' wrong no-nodes 'sudo nvidia-modprobe -c 0 -u' 'there is: /dev/nvidiactl'
FAKENV=nodes=0,ctl=0
check 'no device nodes at all' wrong no-nodes 'sudo nvidia-modprobe -c 0 -u' 'there is: none'
no_nodes_in_words()
{
	run doctor
	[ "$code" = 1 ] && plain && narrow 80 && has out '  device nodes      WRONG: ' &&
		has out 'problem: no-nodes' && has out 'result: something is wrong' &&
		tail -2 "$tmp/out" | grep -q '^next: sudo nvidia-modprobe -c 0 -u'
}
check 'no device nodes, in words' no_nodes_in_words
touch "$root/.dockerenv"
check 'a container without the nodes' wrong container-no-nodes 'docker run --gpus all' /.dockerenv
rm "$root/.dockerenv"
echo '12:devices:/kubepods/burstable/pod1' >"$root/proc/1-cgroup"
mkdir -p "$root/proc/1"
mv "$root/proc/1-cgroup" "$root/proc/1/cgroup"
check 'a container, by its cgroup' wrong container-no-nodes 'nvidia.com/gpu: 1' "'kubepods' in"
machine
mkdir -p "$root/dev"
touch "$root/dev/nvidia-uvm"
check 'no uvm node' wrong no-uvm-node 'sudo nvidia-modprobe -u -c 0' 'no /dev/nvidia-uvm'
machine
FAKENV=dev_mode=eacces
check 'no permission' wrong no-permission 'sudo chmod a+rw /dev/nvidia*' 'Permission denied'
FAKENV=dev_mode=eperm
touch "$root/.dockerenv"
check 'no permission in a container' wrong container-no-permission 'docker run --gpus all' \
	'Operation not permitted'
machine
if command -v setsid >/dev/null 2>&1; then
	mkdir -p "$root/dev"
	ln -s /dev/tty "$root/dev/nvidia0" # without a terminal it cannot be opened
	with='setsid -w'
	check 'a GPU that does not start' wrong gpu-init 'sudo dmesg' 'open /dev/nvidia0: '
else
	skip 'a GPU that does not start' 'no setsid'
	seen="$seen gpu-init "
fi

# ---- libcuda and cuInit --------------------------------------------------------------------

machine
rm -f "$lib"/libcuda*
if command -v ldconfig >/dev/null 2>&1 && ldconfig -p | grep -qF 'libcuda.so.1 '; then
	skip 'no libcuda' 'a real one is installed here'
	seen="$seen libcuda-missing container-no-libcuda libcuda-not-found "
else
	check 'no libcuda' wrong libcuda-missing 'install libcuda' 'libcuda.so.1: cannot open'
	touch "$root/.dockerenv"
	check 'no libcuda in a container' wrong container-no-libcuda \
		'NVIDIA_DRIVER_CAPABILITIES=compute,utility' 'libcuda.so.1: cannot open'
	mkdir -p "$root/usr/lib64"
	touch "$root/usr/lib64/libcuda.so.1"
	check 'libcuda where the loader does not look' wrong libcuda-not-found \
		'echo /usr/lib64 | sudo tee' '/usr/lib64/libcuda.so.1 is there'
fi
machine
with='env BARWAY_LIBCUDA=libnot-there.so.9'
check 'BARWAY_LIBCUDA names none' wrong libcuda-missing 'unset BARWAY_LIBCUDA' libnot-there.so.9
machine
rm -f "$lib"/libcuda*
: >"$lib/libcuda.so.1"
check 'libcuda is an empty file' wrong libcuda-broken 'install libcuda anew' 'file too short'
machine
FAKENV=cuinit=34
check 'libcuda is a stub' wrong libcuda-stub 'LD_LIBRARY_PATH' 'libcuda.so.580.159.04'
machine
libcuda 575.51.02
FAKENV=cuinit=803
check 'libcuda of another version: 803' wrong libcuda-mismatch reboot 'libcuda is 575.51.02'
FAKENV=cuinit=999
check 'libcuda of another version: 999' wrong libcuda-mismatch reboot 'module is 580.159.04'
touch "$root/.dockerenv"
check 'libcuda of another version in an image' wrong libcuda-mismatch 'out of the image' '(999)'
rm "$root/.dockerenv"
FAKENV=
check 'libcuda of another version that works' finds libcuda-other-version 'libcuda is 575.51.02'
machine
FAKENV=cuinit=999
check 'cuInit fails' wrong cuinit 'sudo dmesg' '(999)'
FAKENV=cuinit=802
check 'no fabric manager' wrong fabric-manager 'systemctl start nvidia-fabricmanager' '(802)'
FAKENV=cuinit=804
check 'forward compatibility' wrong cuda-compat 'remove the package cuda-compat' '(804)'
FAKENV=cuinit=100
check 'CUDA sees no device' wrong cuda-no-device 'nvidia-smi -L' '(100)'
machine
with='env CUDA_VISIBLE_DEVICES=-1'
check 'CUDA sees no device: hidden' wrong cuda-no-device 'unset CUDA_VISIBLE_DEVICES' "is '-1'"
FAKENV=cuinit=-1
check 'cuInit does not come back' wrong stuck 'sudo dmesg' 'cuInit did not come back' -t 1
FAKENV=cuinit=-2
check 'cuInit crashes' wrong crashed 'report it' 'cuInit ended its process: Aborted'
machine
with='env BARWAY_CACHE_BYTES=abc'
check 'a parameter that is no value' wrong bad-parameter 'or unset it' BARWAY_CACHE_BYTES

# ---- providers -----------------------------------------------------------------------------

machine
FAKENV=mig=1
check 'MIG' wrong mig 'sudo nvidia-smi -mig 0' 'MIG is on'
FAKENV=cc=1
check 'confidential computing' wrong confidential-computing cudaMemcpy 'confidential computing is on'
FAKENV=virt=2
check 'vGPU' wrong vgpu 'pass a whole GPU through' 'a vGPU'
FAKENV=dmabuf=0,open_module=0
check 'closed kernel modules' wrong closed-modules 'install the open kernel modules' dma-bufs
FAKENV=driver=600.10
with='env BARWAY_RM_ALLOW_UNKNOWN=0'
check 'an unknown driver' wrong driver-unknown 'unset BARWAY_RM_ALLOW_UNKNOWN' 'driver 600.10'
FAKENV=
with='env BARWAY_PROVIDERS=soft'
check 'providers left out' wrong providers-excluded 'unset BARWAY_PROVIDERS' 'not among the allowed'
FAKENV=tamper=uuid
check 'another refusal' wrong provider 'barway info' 'CUDA says'

# ---- BAR1, memory, mapping -----------------------------------------------------------------

FAKENV=bar1=dynamic,bar1_mb=2
check 'BAR1 full' wrong bar1-full 'nvidia-smi -q -d MEMORY' 'the BAR1 aperture of GPU 0 is'
FAKENV=bar1=dynamic
check 'BAR1 small' says 0 well bar1-small 'Resizable BAR' 'the aperture is 256 MiB'
FAKENV=fb_mb=2
check 'no memory on the GPU' wrong gpu-memory-full 'nvidia-smi shows' 'memory is used up'
FAKENV=lost=1
check 'a lost GPU' wrong gpu-lost 'sudo dmesg' 'the GPU is lost'
FAKENV=tamper=map_wrong_offset
check 'a mapping with wrong data' wrong mapping 'report it' 'map 64 KiB'
FAKENV=
no_context()
{
	for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		with="env BARWAY_FAULT=cuda@$n"
		wrong no-context 'nvidia-smi -q -d COMPUTE' 'make a CUDA context' && return 0
	done
	return 1
}
check 'no context can be made' no_context
machine
pci_device 0000:2b:00.0 0x10de 0x030200 nvidia 0000:1a:02.0
two_gpus()
{
	FAKENV=gpus=2
	run doctor --json
	[ "$code" = 0 ] && [ "$(grep -c '"provider": "rm"' "$tmp/out")" = 2 ] &&
		has out '2 NVIDIA GPUs: 0000:1b:00.0 (nvidia), 0000:2b:00.0 (nvidia)' &&
		run doctor --json -d 2b:00.0 && [ "$code" = 0 ] &&
		[ "$(grep -c '"provider": "rm"' "$tmp/out")" = 1 ] &&
		[ "$(cat "$root/sanity.run")" = 'cuda sanity --quick --json -d 1' ]
}
check 'two GPUs, and one of them' two_gpus

# ---- sanity --------------------------------------------------------------------------------

machine
sanity 1 '{"cases": [{"name": "basics", "verdict": "passed", "reason": "", "ms": 1},
	{"name": "vmm", "verdict": "failed", "reason": "byte 7 is 3, not 4", "ms": 2}],
	"passed": 1, "failed": 1, "waived": 0}'
check 'sanity fails' wrong sanity 'barway sanity -v vmm' 'byte 7 is 3, not 4'
sanity 0 'all fine'
check 'sanity speaks no JSON' wrong sanity-not-run 'barway sanity --quick' 'not JSON'
sanity 0 '{"cases": [], "passed": 3, "failed": 0, "waived": 0}'
check 'sanity does not add up' wrong sanity-not-run '' 'do not add up'
sanity 0 '{"cases": [{"name": "a", "verdict": "failed", "reason": "x", "ms": 1}],
	"passed": 0, "failed": 1, "waived": 0}'
check 'sanity says one thing and ends with another' wrong sanity-not-run '' 'do not add up'
sanity 2 ''
check 'sanity ends with a usage error' wrong sanity-not-run '' 'its exit status is 2'
sanity hang ''
check 'sanity does not end' wrong sanity-not-run '' 'did not end within 1 s' -t 1

without_gpu
real_sanity ''
check 'the real tests, on the soft GPU' says 0 no-gpu no-gpu '' 'no NVIDIA GPU'
check 'the real tests, on the soft GPU: they ran' grep -q '"passed": [1-9]' "$tmp/out"
real_sanity copy@1
check 'the real tests, with a fault injected' wrong sanity 'barway sanity -v ' 'fault injected'
machine
real_sanity cuda@9
check 'the real tests over the fake driver, with a fault' wrong sanity 'barway sanity -v ' \
	'device 0: '

# ---- beside the chain ----------------------------------------------------------------------

machine
mkdir -p "$root/dev"
touch "$root/dev/gdrdrv"
check 'gdrdrv is a file' says 0 well gdrdrv-no-device 'sudo rm -r /dev/gdrdrv' 'a plain file'
rm "$root/dev/gdrdrv"
mkdir "$root/dev/gdrdrv"
check 'gdrdrv is a folder' says 0 well gdrdrv-no-device 'sudo rm -r /dev/gdrdrv' 'a folder'
machine
FAKENV=gdrdrv=1
printf 'Character devices:\n  1 mem\n511 other\n\nBlock devices:\n511 gdrdrv\n' >"$root/proc/devices"
check 'gdrdrv is of another driver' says 0 well gdrdrv-stale 'sudo rm /dev/gdrdrv' \
	'/proc/devices: other'
printf 'Character devices:\n  1 mem\n511 gdrdrv\n' >"$root/proc/devices"
mkdir -p "$root/sys/module/gdrdrv"
echo 2.5 >"$root/sys/module/gdrdrv/version"
check 'gdrdrv is of GDRCopy' finds gdrdrv-foreign 'version 2.5'
check 'gdrdrv is of GDRCopy: nothing to do' has out '"next": null'
machine
with='env BARWAY_DEVICES=soft'
check 'programs use the soft GPU' says 0 well devices-soft 'unset BARWAY_DEVICES' soft
machine
echo 8 >"$gpu/current_link_width"
check 'a narrow link' says 0 well pcie-width 'seat the card anew' 'runs with 8 lanes, both ends can do 16'
machine
echo '2.5 GT/s PCIe' >"$gpu/current_link_speed"
check 'a link that is slow while idle is nothing wrong' well

# ---- info ----------------------------------------------------------------------------------

info_place()
{
	run info
	[ "$code" = 0 ] && plain && narrow 80 && has out 'NUMA node         0' &&
		has out 'NUMA distances    from node 0: 10 to node 0, 21 to node 1' &&
		has out 'PCIe path         0000:1b:00.0: 2.5 GT/s x16, at most 32 GT/s x16' &&
		has out '0000:1a:01.0: 32 GT/s x16, at most 32 GT/s x16 (root port)' &&
		has out 'x16, both ends can do 32 GT/s x16: normal while a GPU is'
}
check 'info: the place of a GPU' info_place
behind_switch() # the middle two steps are the sides of a switch, and no link
{
	port=$root/sys/devices/pci0000:1a/0000:1a:01.0
	mkdir -p "$port/0000:1c:00.0/0000:1d:00.0"
	mv "$port/0000:1b:00.0" "$port/0000:1c:00.0/0000:1d:00.0/"
	ln -sfn "$port/0000:1c:00.0/0000:1d:00.0/0000:1b:00.0" "$gpu"
	for step in 0000:1c:00.0 0000:1c:00.0/0000:1d:00.0; do
		cp "$port"/*link* "$port/$step/"
		ln -sfn "$port/$step" "$root/sys/bus/pci/devices/${step##*/}"
	done
	for step in . 0000:1c:00.0; do
		echo 8 >"$port/$step/current_link_width"
	done
	run info --json
	[ "$code" = 0 ] && [ "$(grep -c '"below_both_ends": true' "$tmp/out")" = 2 ] &&
		[ "$(grep -c '"max_width_lanes": 16' "$tmp/out")" = 4 ] && run info &&
		has out 'the link from 0000:1c:00.0 to 0000:1a:01.0 runs at 32 GT/s' &&
		has out 'x8, both ends can do 32 GT/s x16'
}
check 'info: a GPU behind a switch' behind_switch
no_topology()
{
	rm -rf "$root/sys"
	run info
	[ "$code" = 0 ] && ! has out 'PCIe path' && ! has out 'NUMA distances' && run info --json &&
		has out '"pcie_path": []' && has out '"distances": []'
}
check 'info: a system that says nothing of it' no_topology
unknown_rates()
{
	machine
	echo 'Unknown' >"$gpu/current_link_speed"
	echo 255 >"$gpu/max_link_width"
	rm "$gpu/current_link_width"
	run info
	[ "$code" = 0 ] && has out '0000:1b:00.0: unknown, at most 32 GT/s' && ! has out 'both ends'
}
check 'info: rates that are unknown' unknown_rates

# ---- command line, snapshots, the list -----------------------------------------------------

snapshot() # FILE
{
	if [ -n "$UPDATE" ]; then cp "$tmp/out" "$here/snapshots/$1"; fi
	diff -u "$here/snapshots/$1" "$tmp/out"
}
help()
{
	run doctor "$1"
	[ "$code" = 0 ] && quiet err && plain && narrow 80 && snapshot doctor-help.txt
}
check 'help' help --help
check 'help, short' help -h

refused() # MESSAGE ARGUMENT...
{
	want=$1
	shift
	run doctor "$@"
	said_no 2 "barway doctor: $want"
}
machine
check 'unknown option' refused "unknown option '--frob'; see 'barway doctor --help'" --frob
check 'an argument' refused "unexpected argument 'x'" x
check 'no time' refused "-t: '0' is not a number from 1 to 3600" -t 0
check 'much time' refused "-t: '3601' is not a number from 1 to 3600" -t 3601
check 'no such device' refused '-d: ' -d 99
without_gpu
for device in 7 nonsense ''; do
	check "no such device, and no GPU: '$device'" refused '-d: ' -d "$device"
done

# Keys and types of the JSON: of a machine with everything, one without a GPU, and a broken one.
schemas()
{
	machine
	echo 8 >"$gpu/current_link_width"
	mkdir -p "$root/dev"
	touch "$root/dev/gdrdrv"
	run doctor --json
	cp "$tmp/out" "$tmp/doctor-1"
	run info --json --params
	cp "$tmp/out" "$tmp/info-1"
	without_gpu
	run doctor --json
	cp "$tmp/out" "$tmp/doctor-2"
	with='env BARWAY_DEVICES=soft'
	run info --json --params
	cp "$tmp/out" "$tmp/info-2"
	with='env BARWAY_DEVICES=cuda'
	run info --json --params
	cp "$tmp/out" "$tmp/info-3"
	with=
	machine
	rm "$gpu"/*link*
	sanity 2 ''
	run doctor --json
	cp "$tmp/out" "$tmp/doctor-3"
	run info --json --params
	cp "$tmp/out" "$tmp/info-4"
	sanity 1 '{"cases": [{"name": "a", "verdict": "failed", "reason": "x"}],
		"passed": 0, "failed": 1, "waived": 0}'
	run doctor --json
	cp "$tmp/out" "$tmp/doctor-4"
}
schema() # NAME
{
	python3 "$here/doctor_test_schema.py" "$here/snapshots/$1-schema.txt" "$tmp/$1"-? >"$tmp/out"
}
if command -v python3 >/dev/null 2>&1; then
	schemas
	for file in "$tmp"/doctor-?; do # what info says is looked at below by itself
		python3 -c "import json, sys; top = json.load(open(sys.argv[1])); \
top['info'] = {}; json.dump(top, open(sys.argv[1], 'w'))" "$file" || rm "$file"
	done
	check 'JSON of doctor' schema doctor
	check 'JSON of info' schema info
else
	skip 'JSON schemas' 'python3 is not there'
fi

every_id() # of the list is in the page, and was played through
{
	run doctor --list
	[ "$code" = 0 ] && plain && narrow 80 || return 1
	missing=
	for id in $(sed -n 's/^\([a-z0-9-]*\) (.*/\1/p' "$tmp/out"); do
		grep -qF "| \`$id\` |" "$here/../../docs/doctor.md" ||
			missing="$missing $id(docs/doctor.md)"
		case $seen in *" $id "*) ;; *) missing="$missing $id(never found)" ;; esac
	done
	echo "missing:$missing" >"$tmp/err"
	[ -z "$missing" ] && [ "$(grep -c '^[a-z]' "$tmp/out")" -gt 40 ] || return 1
	listed=$(grep -c '^[a-z]' "$tmp/out")
	run doctor --list --json
	[ "$code" = 0 ] && has out '"schema": "barway-doctor-list-1"' &&
		[ "$(grep -c '"id": ' "$tmp/out")" = "$listed" ]
}
check 'every diagnosis' every_id

total
