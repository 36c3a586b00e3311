"""What an operator does from the page is done: a share is pinned by drag and by keyboard, a mode changed, and so on.

Arguments: a folder, the address, the binary, the control socket, a volume, the token.
"""

import json
import shlex
import subprocess
import sys

from browser import Browser, wait
from daemon import Daemon, views

folder, address, binary, socket, volume, token = sys.argv[1:]
daemon = Daemon(address, binary, socket)
SLIDER = "[role=slider]"


def text(selector):
    return page.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent.trim()")


def number(selector, attribute):
    return float(page.evaluate(f"document.querySelector({json.dumps(selector)}).getAttribute('{attribute}')"))


def size():
    return page.evaluate("document.getElementById('pin-size').value")


def is_open(dialog):
    return page.evaluate(f"document.getElementById('{dialog}').open")


def pinned():
    return daemon.planned(volume).get("pinned_bytes")


def submit(action):
    """Presses the button of a form; what it did before is not what it does now."""
    page.evaluate(f"document.querySelector('#act-{action} .result').textContent = ''")
    page.click(f"#act-{action} button[type=submit]")


def result(action):
    shown = f"document.querySelector('#act-{action} .result').textContent.trim()"
    return page.wait(f"{action} has a result", f"!{shown}.startsWith('Under way') && {shown}")


def tab_to(selector):
    """Goes there as one does without a mouse."""
    at = f"document.activeElement?.matches({json.dumps(selector)})"
    for _ in range(200):
        page.press("Tab")
        if page.evaluate(at):
            return
    raise AssertionError(f"{selector} can't be reached by Tab")


def drag_the_share():
    left, top, width, height = wait("there is a slider", lambda: page.box(SLIDER))
    now, most = number(SLIDER, "aria-valuenow"), number(SLIDER, "aria-valuemax")
    field = size()
    # To where there is room.
    by = 80 if now < most / 2 else -80
    start = (left + width / 2, top + height / 2)
    page.drag(start, (start[0] + by, start[1]))
    moved = number(SLIDER, "aria-valuenow")
    assert (moved > now) == (by > 0) and moved != now, f"dragged by {by} pixels: {now} became {moved}"
    assert size() != field, f"the field still says {field}"


def pin_by_drag():
    drag_the_share()
    submit("pin")
    page.wait("the token is asked for", "document.getElementById('token').open")
    page.type("not-the-token-but-long-enough")
    page.click("#token-ok")
    refused = result("pin")
    assert refused.startswith("Refused"), refused
    assert pinned() is None, f"{refused}: it was pinned with a wrong token"
    submit("pin")
    page.wait("the token is asked for again", "document.getElementById('token').open")
    page.type(token)
    page.press("Enter")
    bytes_ = wait("it is pinned", pinned)
    shown = text("#act-pin .command")
    assert size() in shown, f"{shown} is not of {size()}"
    print(f"dragged to {size()}: {bytes_} bytes; wrong token: {refused}")
    return bytes_, shown


def same_by_command(bytes_, shown):
    submit("unpin")
    result("unpin")
    assert not is_open("token"), "the token is asked for twice"
    wait("it is not pinned", lambda: pinned() is None)
    command = shlex.split(shown)
    assert command[0] == "cinnabar", shown
    subprocess.run([binary, *command[1:]], check=True, capture_output=True, timeout=60)
    assert pinned() == bytes_, f"{shown} pins {pinned()}, the page {bytes_}"


def pin_by_keyboard():
    page.open(address + path)
    page.evaluate("document.body.focus()")
    tab_to(SLIDER)
    now, field = number(SLIDER, "aria-valuenow"), size()
    key = "ArrowRight" if now < number(SLIDER, "aria-valuemax") / 2 else "ArrowLeft"
    page.press(key, times=5)
    moved = number(SLIDER, "aria-valuenow")
    assert (moved > now) == (key == "ArrowRight") and moved != now, f"{key}: {now} became {moved}"
    assert page.evaluate(f"document.querySelector('{SLIDER}').getAttribute('aria-valuetext')"), "no words"
    assert size() != field, f"the field still says {field}"
    before = pinned()
    tab_to("#act-pin button[type=submit]")
    page.press("Enter")
    bytes_ = wait("it is pinned otherwise", lambda: pinned() != before and pinned())
    assert not is_open("token"), "the token is asked for twice"
    print(f"moved by keys to {size()}: {bytes_} bytes")


def pin_by_chart():
    """The share is marked in the curve as well, and can be taken there."""
    mark = "#chart-volume-curve [data-marker=share]"
    # A chart is drawn again when there is news; what was taken hold of before is not there any more.
    page.evaluate("document.querySelector('#chart-volume-curve svg').dataset.old = 1")
    page.wait("the chart is drawn again", "!document.querySelector('#chart-volume-curve svg').dataset.old", 40)
    _, top, _, height = page.box(mark)
    field = size()
    # Its line is where its group was put, its label beside it.
    line = page.evaluate(f"document.querySelector('{mark}').getScreenCTM().e")
    start = (line, top + height / 2)
    by = 60 if number(SLIDER, "aria-valuenow") < number(SLIDER, "aria-valuemax") / 2 else -60
    page.drag(start, (start[0] + by, start[1]))
    assert size() != field, f"dragged in the chart, but the field still says {field}"


def all_of_it():
    """The end of the slider is a size that can be pinned."""
    page.evaluate(f"document.querySelector('{SLIDER}').focus()")
    page.press("End")
    submit("pin")
    said = result("pin")
    assert said.startswith("Done"), f"{size()}: {said}"


def change_mode():
    page.evaluate("document.querySelector('#act-mode select').value = 'write-around'")
    submit("mode")
    wait("its mode is another one", lambda: daemon.volume(volume)["mode"] == "write-around")
    result("mode")


def flush():
    submit("flush")
    said = result("flush")
    assert said.startswith("Done"), said


def invalidate():
    held = daemon.volume(volume)["cached_blocks"]
    assert held > 0
    submit("invalidate")
    page.wait("it asks first", "document.getElementById('confirm').open")
    page.press("Escape")
    page.wait("it was left", "!document.getElementById('confirm').open")
    assert daemon.volume(volume)["cached_blocks"] == held
    submit("invalidate")
    page.click("#confirm-ok")
    wait("nothing is held", lambda: daemon.volume(volume)["cached_blocks"] == 0)


with Browser(folder) as browser:
    path = views(volume)[2]
    page = browser.page(address + path)
    page.wait("its script runs", "!document.querySelector('#act-pin button').disabled")
    pin = pin_by_drag()
    # The browser tells of the answer to the wrong token.
    expected = list(page.complaints)
    assert all("401" in one for one in expected), expected
    same_by_command(*pin)
    pin_by_keyboard()
    all_of_it()
    page.open(address + path)
    pin_by_chart()
    change_mode()
    flush()
    invalidate()
    assert page.complaints == expected, page.complaints
