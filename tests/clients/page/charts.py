"""Charts over a day: each has a table, an SVG and a CSV; a pointer shows values and zooms; a link reproduces a view.

Arguments: a folder, the address, a volume.
"""

import re
import sys

from browser import Browser
from daemon import views

folder, address, volume = sys.argv[1:]

# Of each chart: its id, what its links answer with, rows of its CSV and of its table.
CHARTS = """Promise.all([...document.querySelectorAll("figure.plot")].map(async figure => {
    const get = async end => {
        const got = await fetch(figure.querySelector(`a[href*=".${end}?"]`).href);
        return [got.status, got.headers.get("content-type"), await got.text()];
    };
    const [svg, csv] = [await get("svg"), await get("csv")];
    return [figure.id, svg, csv, figure.querySelectorAll("details tbody tr").length];
}))"""
OVER_TIME = 'figure.plot svg[data-unit-x="ms"]'


def check_links(page):
    charts = page.evaluate(CHARTS)
    assert charts
    for name, svg, csv, rows in charts:
        assert svg[0] == csv[0] == 200, f"{name}: {svg[0]} {csv[0]}"
        assert svg[1].startswith("image/svg+xml") and csv[1].startswith("text/csv"), (svg[1], csv[1])
        assert svg[2].startswith(("<svg", "<?xml")), f"{name}: {svg[2][:80]}"
        lines = csv[2].strip().split("\r\n")
        values = [value for line in lines[1:] for value in line.split(",")[1:]]
        if 'data-unit-x="ms"' in svg[2] and any(value not in ("", "0") for value in values):
            assert 0 < rows <= len(lines) - 1, f"{name}: {rows} rows of {len(lines) - 1}"
    print(f"{page.evaluate('location.pathname')}: {len(charts)} charts")


def check_pointer(page):
    left, top, width, height = page.box(OVER_TIME)
    page.mouse("mouseMoved", left + width * 0.5, top + height * 0.5)
    tip = page.wait("values are shown", "document.querySelector('.tip')?.textContent")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n.+: ", tip), tip
    page.evaluate("window.before = true")
    page.drag((left + width * 0.4, top + height * 0.5), (left + width * 0.6, top + height * 0.5))
    # What was found on the page before is not there any more.
    page.wait("it has zoomed", "!window.before && document.readyState === 'complete'")
    search = page.evaluate("location.search")
    found = re.fullmatch(r"\?from=(\d+)&to=(\d+)", search)
    assert found, search
    span_h = (int(found[2]) - int(found[1])) / 3_600_000
    # A fifth of the chart, most of which is the axis, of a day.
    assert 4 < span_h < 7, f"{span_h} h"
    return page.evaluate("location.href"), span_h


with Browser(folder) as browser:
    page = browser.page()
    for path in ("/ui/", "/ui/shares", views(volume)[2], "/ui/ssd"):
        page.open(f"{address}{path}?range=24h")
        check_links(page)
    page.open(f"{address}{views(volume)[2]}?range=24h")
    link, span_h = check_pointer(page)
    print(f"zoomed to {span_h:.1f} h: {link}")
    # What is drawn of a time that is over stays.
    drawn = "document.querySelector('figure.plot svg').outerHTML"
    first = page.evaluate(drawn)
    other = browser.page(link)
    assert other.evaluate(drawn) == first, "the link shows something else"
    assert not page.complaints + other.complaints, page.complaints + other.complaints
