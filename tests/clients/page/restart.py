"""A page goes on when the daemon was restarted under it.

Arguments: a folder, the address, a volume. The file `opened` in the folder says that the page is live; `restarted`,
made by the caller, that the daemon is another process.
"""

import os
import sys

from browser import Browser, wait

folder, address, volume = sys.argv[1:]
READS = f'document.getElementById("v:{volume}:blocks_read").value'

with Browser(folder) as browser:
    page = browser.page(f"{address}/ui/volumes/{volume}")
    before = page.wait("what was read is shown", f"Number({READS}) > 0 && {READS}", 30)
    page.evaluate("window.notReloaded = true")
    open(os.path.join(folder, "opened"), "x").close()
    wait("the daemon is restarted", lambda: os.path.exists(os.path.join(folder, "restarted")), 120)
    # A daemon counts from 0: the page shows the new one's numbers, without being loaded again.
    page.wait("the new daemon's numbers are shown", f"{READS} === '1'", 60)
    assert page.evaluate("window.notReloaded"), "it was loaded again"
    exceptions = [one for one in page.complaints if one.startswith("exception")]
    assert not exceptions, exceptions
    print(f"{before} blocks before, 1 behind the restart")
