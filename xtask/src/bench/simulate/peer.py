"""libCacheSim on one file: prints misses, references, CPU seconds and the peak of memory in KiB.

Called by `cargo xtask bench simulate`: peer.py POLICY FILE BLOCKS. Opening and reading the file is
part of the time, starting Python is not.
"""

import resource
import sys
import time

import libcachesim

POLICIES = {"lru": "LRU", "clock": "Clock", "sieve": "Sieve", "s3-fifo": "S3FIFO"}

policy, path, blocks = sys.argv[1], sys.argv[2], int(sys.argv[3])
start = time.process_time()
reader = libcachesim.TraceReader(
    path,
    libcachesim.TraceType.ORACLE_GENERAL_TRACE,
    libcachesim.ReaderInitParam(ignore_obj_size=True),
)
cache = getattr(libcachesim, POLICIES[policy])(cache_size=blocks)
miss_ratio, _ = cache.process_trace(reader)
seconds = time.process_time() - start
references = reader.get_num_of_req()
peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(round(miss_ratio * references), references, seconds, peak_kib)
