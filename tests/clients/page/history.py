"""Makes a history of a day, as the daemon keeps it in `history.bin` (crates/cinnabar-config/src/history/codec.rs).

Arguments: the file, how many volumes. Their names are `vm000`, `vm001` and so on.
"""

import math
import os
import struct
import sys
import time

path, count = sys.argv[1], int(sys.argv[2])
VERSION = 1
# Seconds of a point, and how many are kept.
STEPS = [(10, 360), (300, 288)]

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def number(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def series(name, seed, now):
    """A volume that is busy at another time of the day than its neighbours."""
    out = bytearray(number(len(name)) + name.encode())
    for seconds, points in STEPS:
        out += number(seconds) + number(points)
        before = 0
        for point in range(points):
            at = now - (points - 1 - point) * seconds
            busy = 1.1 + math.sin(at / 86400 * 2 * math.pi + seed)
            # So many different numbers that no chart of them is flat.
            jitter = 1 + (point * 7919 + seed * 104729) % 97 / 97
            reads = int(busy * jitter * 40 * seconds)
            hits = int(reads * (0.5 + 0.4 * math.sin(seed + point / 50)))
            misses = reads - hits
            held = int(400 * busy)
            numbers = [at - before, seconds * 1000, reads, reads // 3, reads, hits, reads // 3, misses]
            numbers += [reads // 3, misses, held, held + 50, 200 + int(900 * misses / max(reads, 1))]
            numbers += [9000, 400, 2500]
            before = at
            out += b"".join(map(number, numbers))
    return out


now = int(time.time()) // 300 * 300
body = bytearray(number(count + 1))
body += series("", 1, now)
for volume in range(count):
    body += series(f"vm{volume:03}", volume, now)
head = b"CINNHIST" + struct.pack("<IQI", VERSION, len(body), crc32c(body))
with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
    file.write(head + body)
