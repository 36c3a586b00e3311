"""Pictures of every view: narrow, usual and wide, light and dark.

Arguments: a folder, the address, a volume, where the pictures go.
"""

import os
import sys

from browser import Browser
from daemon import views

folder, address, volume, to = sys.argv[1:]

with Browser(folder) as browser:
    page = browser.page()
    for path in views(volume):
        name = path.removeprefix("/ui/").split("/")[0] or "overview"
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            for width, height in ((390, 844), (1280, 900), (2560, 1440)):
                page.size(width, height)
                page.open(address + path)
                # A page that is wider than its window has to be moved to and fro to be read.
                over = page.evaluate("document.documentElement.scrollWidth") - width
                if over > 0:
                    print(f"{path} at {width}: {over} pixels too wide")
                page.shoot(os.path.join(to, f"{name}-{width}-{scheme}.png"))
