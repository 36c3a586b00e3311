#!/bin/busybox sh
# What a test's guest runs first: it sets up little and runs commands, a line at a time, from its
# second serial port; the answer ends with "=" and the exit status. Background work reports over the
# third port what is safe on disk.
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /mnt /etc
/bin/busybox --install -s /bin
export PATH=/bin:/sbin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /run
while read -r module; do
	[ -e /run/booted ] || insmod "/modules/$module.ko" 2>/dev/null
done </modules/order

# The golden image has the same script: this is the way there.
if grep -q boot=disk /proc/cmdline && [ ! -e /golden ]; then
	mount -t ext4 /dev/vda /mnt || echo "no golden image"
	umount /run /sys /proc /dev
	exec switch_root /mnt /init
fi

# disk SERIAL: its device, whatever order they were found in.
disk() {
	for block in /sys/block/vd*; do
		[ "$(cat "$block/serial")" = "$1" ] && echo "/dev/${block##*/}" && return 0
	done
	return 1
}

# work NAME COMMAND...: its output goes to /run/NAME.log; its failure is reported at once.
work() {
	name=$1
	shift
	"$@" >"/run/$name.log" 2>&1 && return 0
	echo "failed: $name: $(tail -n 4 "/run/$name.log" | tr '\n' ' ')" >/dev/ttyS2
	return 1
}

# content NUMBER: what is in this file: lines of 32 bytes that say where they belong.
content() {
	awk -v file="$1" 'BEGIN {
		for (line = 0; line <= file * 7919 % 1900; line++)
			printf "line %07d of file %07d ....\n", line, file
	}'
}

# files FOLDER: writes files until /run/stop exists. Each is reported when it and its checksum are
# on the disk. After a crash the last one may be incomplete: it is written again.
files() {
	cd "$1" || return 1
	touch sums
	number=$(($(wc -l <sums) + 1))
	while [ ! -e /run/stop ]; do
		content "$number" >"f$number" || return 1
		sha256sum "f$number" >>sums || return 1
		sync || return 1
		echo "file $number" >/dev/ttyS2
		number=$((number + 1))
	done
}

# rotten: shows what is wrong with the files that are.
rotten() {
	for file in $(sed -n 's/: FAILED$//p' /run/checked); do
		content "${file#f}" >/run/right
		ls -l "$file" /run/right
		echo "$(cmp -l /run/right "$file" | wc -l) bytes of $file differ, from"
		cmp /run/right "$file"
		cmp -l /run/right "$file" | head -n 1
		cmp -l /run/right "$file" | tail -n 1
		at=$(cmp -l /run/right "$file" | head -n 1 | awk '{ print $1 - 1 }')
		dd if="$file" bs=1 skip="$at" count=96 2>/dev/null | hexdump -C
	done
}

# intact FOLDER FILES: the first so many files are there and are what was written.
intact() (
	cd "$1" || return 1
	head -n "$2" sums >/run/sums
	[ "$(wc -l </run/sums)" = "$2" ] || { echo "only $(wc -l </run/sums) of $2 files"; return 1; }
	[ "$2" = 0 ] || sha256sum -c /run/sums >/run/checked 2>&1 || { rotten; return 1; }
	# Files after the last reported one may be torn.
	cp /run/sums sums
)

# The guests of the guide's recipes get no commands: they try each disk by themselves.
if grep -q selftest /proc/cmdline; then
	number=0
	for block in /sys/block/vd*; do
		device=/dev/${block##*/}
		head -c 2097152 /dev/urandom >/run/data
		dd if=/run/data of="$device" bs=64k oflag=direct conv=fsync 2>/dev/null || break
		dd if="$device" of=/run/back bs=64k count=32 iflag=direct 2>/dev/null || break
		cmp /run/data /run/back || break
		number=$((number + 1))
	done
	echo "tested $number disks" >/dev/console
	poweroff -f
fi

stty -F /dev/ttyS1 raw -echo
stty -F /dev/ttyS2 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo =ready
while read -r line; do
	eval "$line" </dev/null
	echo "=$?"
done
poweroff -f
