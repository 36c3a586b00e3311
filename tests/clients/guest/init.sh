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

# commits DATABASE LAST FIRST_MODE: transactions 1 to LAST. Each is reported when it is durable, which
# it is when COMMIT returns; but with the journal in mode DELETE, when the next one returns, for at
# synchronous=FULL the removal of the journal is not synced by itself.
commits() {
	awk -v last="$2" -v first_mode="$3" 'BEGIN {
		split("DELETE WAL TRUNCATE WAL PERSIST", modes)
		print ".bail on\nPRAGMA synchronous=FULL;\nPRAGMA wal_autocheckpoint=10;"
		for (id = 1; id <= last; id++) {
			mode = modes[(int((id - 1) / 6) + first_mode) % 5 + 1]
			if (id % 6 == 1) print "PRAGMA journal_mode=" mode ";"
			size = 10 + id * 37 % 90 + (id % 7 == 0 ? 1500 : 0)
			print "BEGIN IMMEDIATE;"
			printf "INSERT INTO commits VALUES(%d, %d, %d, ", id, id * 7919 % 10007, size
			printf "replace(hex(zeroblob(%d)), \04700\047, printf(\047%%06d.\047, %d)));\n", size, id
			printf "UPDATE commits SET hash = hash + 10007 WHERE id = %d;\n", int(id * 0.6) + 1
			printf "UPDATE total SET n = %d;\nCOMMIT;\n", id
			printf "SELECT \047commit \047 || %d;\n", mode == "DELETE" ? id - 1 : id
		}
	}' >/run/sql
	sqlite3 -batch "$1" </run/sql >/dev/ttyS2 || return 1
	sync && echo "commit $2" >/dev/ttyS2 || return 1
	# A job that ends while the shell reads a line costs it the part that it has read.
	while [ ! -e /run/stop ]; do usleep 100000; done
}

# churn FOLDER: files come, are renamed, overwritten in place and go, and are never synced: the kernel
# writes them when it likes, soon.
churn() {
	mkdir -p "$1" && cd "$1" || return 1
	echo 10 >/proc/sys/vm/dirty_writeback_centisecs
	echo 20 >/proc/sys/vm/dirty_expire_centisecs
	number=0
	while [ ! -e /run/stop ]; do
		number=$((number + 1))
		content "$number" >new && mv new "f$((number % 40))" || return 1
		content "$number" >>log || return 1
		content "$number" | dd of=log bs=4096 seek=$((number * 7 % 30)) conv=notrunc 2>/dev/null || return 1
		[ $((number % 3)) != 0 ] || rm -f "f$((number / 3 % 40))" || return 1
		[ $((number % 50)) != 0 ] || : >log || return 1
		usleep 50000
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
