"""Many volumes with a day of history: what is sent, when it is painted, how it moves while it is live.

Arguments: a folder, the address, a volume. Times are printed, for machines differ; bytes are limited.
"""

import sys
import time

from browser import Browser
from daemon import views

folder, address, volume = sys.argv[1:]
BYTES_MAX = 300_000
LIVE_S = 3

WATCH = """window.longest = 0; window.frames = 0;
(() => { let last; const look = at => {
    if (last !== undefined) { longest = Math.max(longest, at - last); frames += 1; }
    last = at; requestAnimationFrame(look);
}; requestAnimationFrame(look); })();
window.tasks = [];
new PerformanceObserver(list => list.getEntries().forEach(one => tasks.push(one.duration)))
    .observe({type: "longtask"});"""

wrong = []
with Browser(folder) as browser:
    for path in ["/ui/?range=24h", *views(volume), f"/ui/volumes/{volume}?range=24h"]:
        page = browser.page()
        page.send("Network.setCacheDisabled", cacheDisabled=True)
        page.open(address + path)
        paint = page.wait(
            "it is painted",
            "performance.getEntriesByName('first-contentful-paint').map(one => one.startTime)[0]",
        )
        # What its script asks for at once counts, too.
        time.sleep(1)
        sent = page.bytes
        size = page.evaluate("document.documentElement.outerHTML.length")
        parts = page.evaluate("document.getElementsByTagName('*').length")
        page.evaluate(WATCH)
        time.sleep(LIVE_S)
        longest, frames, tasks = page.evaluate("[longest, frames, tasks]")
        live = page.bytes - sent
        print(
            f"{path}: {sent} bytes, {size} of HTML, {parts} elements; first paint {paint:.0f} ms; live: "
            f"{live / LIVE_S:.0f} bytes/s, longest frame {longest:.0f} ms of {frames}, "
            f"long tasks {[round(task) for task in tasks]}"
        )
        if sent > BYTES_MAX:
            wrong.append(f"{path}: {sent} bytes, more than {BYTES_MAX}")
        wrong += [f"{path}: {one}" for one in page.complaints]
        page.close()
for one in wrong:
    print(one)
sys.exit(bool(wrong))
