"""Chromium by its own protocol (CDP), over a pipe: no port is opened, and no package is needed.

`Browser` is the process, `Page` one of its tabs. A page remembers what it complained of: errors on the console,
exceptions that no script caught, and what its policy (CSP) forbade.
"""

import base64
import fcntl
import itertools
import json
import os
import shutil
import signal
import threading
import time

# Until an answer of the browser counts as none, and a condition as not met.
LIMIT_S = 60
# A machine under load takes its time for a page with many charts.
LOAD_LIMIT_S = 90
POLL_S = 0.05

FLAGS = [
    "--headless=new",
    # Root has no sandbox; only pages of the test itself are opened.
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
]


class Failed(Exception):
    """What the browser refused, or did not do in time."""


def wait(what, condition, limit=LIMIT_S):
    """Waits until `condition` gives something true, and gives that."""
    end = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"not within {limit} s: {what}")
        time.sleep(POLL_S)


class Browser:
    """A headless Chromium with a profile of its own below `folder`."""

    def __init__(self, folder, *flags):
        path = shutil.which("chromium")
        if path is None:
            raise Failed("chromium is not installed (Debian's package chromium)")
        read, to_browser = os.pipe()
        from_browser, write = os.pipe()
        # Above those that the browser takes them for.
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (read, write)]
        profile = os.path.join(folder, "profile")
        argv = [path, *FLAGS, f"--user-data-dir={profile}", *flags, "about:blank"]
        environment = dict(os.environ, HOME=folder, TMPDIR=folder, no_proxy="*")
        log = os.open(
            os.path.join(folder, "chromium.log"),
            os.O_CREAT | os.O_APPEND | os.O_WRONLY,
            0o600,
        )
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
            (os.POSIX_SPAWN_DUP2, ours[0], 3),
            (os.POSIX_SPAWN_DUP2, ours[1], 4),
        ]
        self.pid = os.posix_spawn(path, argv, environment, file_actions=actions)
        for fd in (read, write, log, *ours):
            os.close(fd)
        self._to, self._from = to_browser, from_browser
        self._numbers = itertools.count(1)
        self._lock = threading.Condition()
        self._answers, self._pages, self._gone = {}, {}, False
        threading.Thread(target=self._listen, daemon=True).start()
        self.send("Browser.getVersion")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _listen(self):
        rest = b""
        while chunk := os.read(self._from, 1 << 20):
            *messages, rest = (rest + chunk).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        with self._lock:
            self._gone = True
            self._lock.notify_all()

    def _take(self, message):
        with self._lock:
            if "id" in message:
                self._answers[message["id"]] = message
            elif page := self._pages.get(message.get("sessionId")):
                page._take(message["method"], message["params"])
            self._lock.notify_all()

    def send(self, method, session=None, limit=LIMIT_S, **params):
        """Asks for something, and waits for the answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        with self._lock:
            there = lambda: number in self._answers or self._gone
            if not self._lock.wait_for(there, limit) or number not in self._answers:
                raise Failed(f"{method}: the browser does not answer")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def page(self, url=None):
        """Another tab."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, session["sessionId"], target)
        with self._lock:
            self._pages[page.session] = page
        page._begin()
        if url:
            page.open(url)
        return page

    def close(self):
        """Ends the process, and only it."""
        try:
            self.send("Browser.close", limit=10)
        except (Failed, OSError):
            pass
        end = time.monotonic() + 10
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            time.sleep(POLL_S)


class Page:
    """A tab."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.complaints, self.requests = [], []
        self._sent = {}
        self._loaded = 0

    def _begin(self):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.size(1280, 900)

    def _take(self, method, params):
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            self.complaints.append(f"exception: {text}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert", "warning"):
            words = [str(arg.get("value", arg.get("description", ""))) for arg in params["args"]]
            self.complaints.append(f"console: {' '.join(words)}")
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.complaints.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Network.dataReceived":
            number = params["requestId"]
            self._sent[number] = self._sent.get(number, 0) + params["encodedDataLength"]
        elif method == "Network.loadingFinished":
            # With the headers, and what came before anything was told.
            self._sent[params["requestId"]] = params["encodedDataLength"]

    @property
    def bytes(self):
        """What it was sent so far, as it came over the network."""
        return sum(self._sent.values())

    def send(self, method, **params):
        """Asks the tab for something."""
        return self.browser.send(method, self.session, **params)

    def open(self, url):
        """Goes there, and waits until it is loaded."""
        before = self._loaded
        went = self.send("Page.navigate", url=url)
        if went.get("errorText"):
            raise Failed(f"{url}: {went['errorText']}")
        if went.get("loaderId"):
            wait(f"{url} is loaded", lambda: self._loaded > before, LOAD_LIMIT_S)

    def evaluate(self, script):
        """Runs an expression, waits for it if it is a promise, and gives its value."""
        done = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            raise Failed(f"{script[:200]}: {text}")
        return done["result"].get("value")

    def wait(self, what, script, limit=LIMIT_S):
        """Waits until an expression is true there, and gives its value."""
        return wait(what, lambda: self.evaluate(script), limit)

    def size(self, width, height):
        """Gives it a size, in pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme):
        """Asks for `light` or `dark`, as a setting of the desktop would."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def shoot(self, file, whole=True):
        """Takes a picture."""
        taken = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(file, "wb") as out:
            out.write(base64.b64decode(taken["data"]))

    def box(self, selector):
        """Where an element is: left, top, width, height, after scrolling to it."""
        return self.evaluate(
            f"""(() => {{
            const found = document.querySelector({json.dumps(selector)});
            if (!found) return null;
            found.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = found.getBoundingClientRect();
            return [box.left, box.top, box.width, box.height];
            }})()"""
        )

    def mouse(self, kind, x, y, buttons=0):
        """A movement, or a button."""
        button = "left" if kind != "mouseMoved" or buttons else "none"
        self.send(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button=button,
            buttons=buttons,
            clickCount=int(kind != "mouseMoved"),
        )

    def drag(self, start, end, steps=12):
        """Takes what is at `start`, and lets go of it at `end`."""
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, buttons=1)
        for step in range(1, steps + 1):
            part = step / steps
            at = [a + (b - a) * part for a, b in zip(start, end)]
            self.mouse("mouseMoved", *at, buttons=1)
        self.mouse("mouseReleased", *end)

    def click(self, selector):
        """Clicks into the middle of an element."""
        box = wait(f"{selector} is there", lambda: self.box(selector))
        at = (box[0] + box[2] / 2, box[1] + box[3] / 2)
        self.mouse("mouseMoved", *at)
        self.mouse("mousePressed", *at, buttons=1)
        self.mouse("mouseReleased", *at)

    def press(self, key, times=1, modifiers=0):
        """Presses a key by its name, such as `ArrowRight`, `Tab` or `Enter`."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, " ": 32}
        codes |= {"PageUp": 33, "PageDown": 34}
        texts = {"Enter": "\r", " ": " "}
        for _ in range(times):
            event = {
                "key": key,
                "code": "Space" if key == " " else key,
                "windowsVirtualKeyCode": codes[key],
                "modifiers": modifiers,
            }
            down = {"type": "keyDown", "text": texts[key]} if key in texts else {"type": "rawKeyDown"}
            self.send("Input.dispatchKeyEvent", **down, **event)
            self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        """Writes into what has the focus."""
        self.send("Input.insertText", text=text)

    def close(self):
        """Closes the tab."""
        self.browser.send("Target.closeTarget", targetId=self.target)
