"""Live views while guests are at work: numbers of one instant, those of the status, and how it moves.

Arguments: a folder, the address, the binary, the control socket, a volume with many requests. Times of frames are
printed, for machines differ.
"""

import sys
import time
import urllib.parse

from browser import Browser, wait
from daemon import Daemon, views

folder, address, binary, socket, volume = sys.argv[1:]
daemon = Daemon(address, binary, socket)
LOOKS = 5
# Counters of a volume: the status is asked before the page shows its sample, and after it.
COUNTERS = ["reads", "writes", "blocks_read", "blocks_written", "read_hits", "misses", "write_hits",
            "backend_reads", "backend_writes", "backend_read_bytes", "backend_write_bytes"]

FACTS = f"""Object.fromEntries([...document.querySelectorAll("data[id^='v:']")]
    .filter(fact => !fact.id.includes(":now_")).map(fact => [fact.id.split(":").pop(), fact.value]))"""
WATCH = """window.longest = 0; window.frames = 0; window.tasks = [];
(() => { let last; const look = at => {
    if (last !== undefined) { longest = Math.max(longest, at - last); frames += 1; }
    last = at; requestAnimationFrame(look);
}; requestAnimationFrame(look); })();
new PerformanceObserver(list => list.getEntries().forEach(one => tasks.push(one.duration)))
    .observe({type: "longtask"});"""


def sample_after(page, moment):
    """The numbers of a sample that was taken later than this, in s."""
    look = f"[Number(document.getElementById('now').dateTime), {FACTS}]"

    def later():
        taken_ms, facts = page.evaluate(look)
        return facts if taken_ms > moment * 1000 else None

    return wait("the page moves", later)


def check_sample(page):
    """A sample that was taken between two looks at the status; what is wrong with it."""
    low = daemon.volume(volume)
    # A moment more: a sample's time may be taken a little later than its numbers.
    facts = sample_after(page, time.time() + 0.5)
    high = daemon.volume(volume)
    wrong = [
        f"{key}: {facts[key]}, not from {low[key]} to {high[key]}"
        for key in COUNTERS
        if not low[key] <= int(facts[key]) <= high[key]
    ]
    if int(facts["blocks_read"]) != int(facts["read_hits"]) + int(facts["misses"]):
        wrong.append(f"not of one instant: {facts}")
    return wrong, int(facts["reads"])


wrong = []
with Browser(folder) as browser:
    page = browser.page()
    page.open(address + "/ui/volumes/" + urllib.parse.quote(volume, safe=""))
    seen = set()
    for _ in range(LOOKS):
        found, reads = check_sample(page)
        wrong += found
        seen.add(reads)
    assert len(seen) == LOOKS, f"the volume is idle: {seen}"
    for path in views(volume):
        page.open(address + path)
        page.evaluate(WATCH)
        time.sleep(2)
        longest, frames, tasks = page.evaluate("[longest, frames, tasks]")
        print(f"{path}: longest frame {longest:.0f} ms of {frames}, long tasks {[round(task) for task in tasks]}")
    wrong += page.complaints
for one in wrong:
    print(one)
sys.exit(bool(wrong))
