"""Every view opens without a complaint, in light and dark; numbers are those of the status; all can be read.

Arguments: a folder, the address, the binary, the control socket, volumes: all views are looked at with the first one.
In the environment `AXE`: axe-core's script.
"""

import os
import sys
import urllib.parse

from browser import Browser, wait
from daemon import Daemon, views

folder, address, binary, socket, volume, *others = sys.argv[1:]
daemon = Daemon(address, binary, socket)

# Numbers that the page has beside those of the status: rates, which no status has.
FACTS = """Object.fromEntries([...document.querySelectorAll("data[id^='cache:'], data[id^='v:']")]
    .filter(fact => !fact.id.includes(":now_")).map(fact => [fact.id, fact.value]))"""
# The first that is not transparent.
BACKGROUND = """[document.body, document.documentElement]
    .map(part => getComputedStyle(part).backgroundColor).find(colour => colour !== "rgba(0, 0, 0, 0)")"""


def expected(status, fact):
    """What the status has under the id of a number on the page."""
    of, key = fact.rsplit(":", 1)
    if of == "cache":
        return status["cache"][key]
    name = urllib.parse.unquote(of.removeprefix("v:"))
    row = next(row for row in status["volumes"] if row["name"] == name)
    return (row | row.get("write_back", {}))[key]


def same_instant(page):
    """The numbers of a view and a status between which nothing has changed."""

    def look():
        before = page.evaluate(FACTS)
        status = daemon.status()
        return (before, status) if page.evaluate(FACTS) == before else None

    return wait("the numbers stand still", look)


def differing(page):
    """Numbers on a view that are not those of the status, and how many there are."""
    facts, status = same_instant(page)
    pairs = {fact: (shown, expected(status, fact)) for fact, shown in facts.items()}
    as_text = lambda value: value if isinstance(value, str) else str(value)
    return {fact: pair for fact, pair in pairs.items() if pair[0] != as_text(pair[1])}, len(facts)


def check_numbers(page, path, least):
    """A view that is open, and is kept live, comes to show what the status has."""
    last = None

    def equal():
        nonlocal last
        last, count = differing(page)
        assert count >= least, f"{path}: {count} numbers only"
        return not last

    try:
        wait(f"{path} shows what the status has", equal, 20)
    except Exception:
        print(f"{path}: shown, expected: {last}")
        raise


# Names in tables that are so narrow that short words are broken.
BROKEN = """[...document.querySelectorAll("tbody th:first-child")].filter(name =>
    name.getClientRects().length && name.clientWidth < 80 && name.innerText.length > 4).map(name => name.innerText)"""


def check_narrow(page, path):
    """On a telephone nothing has to be moved to and fro, but for tables."""
    page.size(390, 844)
    page.open(address + path)
    over = page.evaluate("document.documentElement.scrollWidth") - 390
    broken = page.evaluate(BROKEN)
    page.size(1280, 900)
    return [f"{path}: {over} pixels too wide"] * (over > 0) + [f"{path}: broken: {name!r}" for name in broken[:3]]


def violations(page):
    """What axe-core finds that keeps people from using a page."""
    if "AXE" not in os.environ:
        return []
    if not page.evaluate("typeof axe === 'object'"):
        with open(os.environ["AXE"], encoding="utf-8") as script:
            page.evaluate(script.read() + "\n;0")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(done => done.violations)")
    return [
        f"{one['impact']}: {one['id']}: {one['help']}: {node['target']} {node['html'][:160]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


wrong = []
with Browser(folder) as browser:
    page = browser.page()
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        for path in [*views(volume), *(views(other)[2] for other in others)]:
            page.open(address + path)
            assert page.evaluate("document.querySelectorAll('h1').length") == 1, f"{path}: no heading"
            background = page.evaluate(BACKGROUND) or "rgb(255, 255, 255)"
            light = sum(map(float, background.strip("rgba()").split(",")[:3])) > 3 * 128
            if light != (scheme == "light"):
                wrong.append(f"{path} ({scheme}): its background is {background}")
            wrong += [f"{path} ({scheme}): {one}" for one in violations(page)]
            wrong += [f"{path} ({scheme}): {one}" for one in page.complaints]
            elsewhere = [url for url in page.requests if not url.startswith((address + "/", "data:"))]
            wrong += [f"{path}: it loads {url}" for url in elsewhere]
            page.complaints.clear()
            page.requests.clear()
    for path in [*views(volume), *(views(other)[2] for other in others)]:
        wrong += check_narrow(page, path)
    for path, least in (("/ui/", 8), (views(volume)[2], 20)):
        page.open(address + path)
        check_numbers(page, path, least)
    print("accessibility:", "checked" if "AXE" in os.environ else "not checked, axe-core is missing")
for one in wrong:
    print(one)
sys.exit(bool(wrong))
