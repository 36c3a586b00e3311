"""A page of another site in the operator's browser can neither read, frame nor change anything.

Arguments: a folder, the address, a volume, the binary, the control socket, the token.
"""

import http.server
import json
import sys
import threading

from browser import Browser
from daemon import Daemon

folder, address, volume, binary, socket, token = sys.argv[1:]
port = address.rsplit(":", 1)[1]
daemon = Daemon(address, binary, socket)

PAGE = b"<!doctype html><title>hostile</title><h1>hostile</h1>"


class Hostile(http.server.BaseHTTPRequestHandler):
    """Serves one page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        pass


def state():
    """What a change would change."""
    status = daemon.status()
    keys = ("name", "mode", "invalidated_blocks", "cached_blocks", "state", "flushes")
    volumes = [[row[key] for key in keys] for row in status["volumes"]]
    return volumes, status["cache"]["state"], daemon.planned(volume).get("pinned_bytes")


READS = ["/v1/status", "/v1/volumes", "/metrics", "/ui/", f"/ui/volumes/{volume}", "/v1/openapi.json"]
# What a page may take from elsewhere unless it is forbidden.
PARTS = [("script", "/ui/page.js"), ("link", "/ui/page.css"), ("img", "/ui/chart/hits.svg")]
CHANGES = [
    ("POST", "/v1/cache/abandon", ""),
    ("POST", f"/v1/volumes/{volume}/invalidate", "{}"),
    ("POST", f"/v1/volumes/{volume}/flush", ""),
    ("PATCH", f"/v1/volumes/{volume}", '{"mode":"pass-through"}'),
    ("PUT", f"/v1/policy/pins/{volume}", '{"size":"25%"}'),
    ("DELETE", f"/v1/volumes/{volume}?force=true", ""),
]


def fetched(page, path, **options):
    """What a script of the page gets: a status and a text, or what it fails with."""
    return page.evaluate(
        f"""fetch({json.dumps(path)}, {json.dumps(options)}).then(
            async got => got.type === "opaque" ? "opaque" : [got.status, await got.text()],
            failed => "failed: " + failed.name)"""
    )


def reads_nothing(page):
    for path in READS:
        for mode in ("cors", "no-cors"):
            got = fetched(page, address + path, mode=mode)
            assert got == "opaque" or str(got).startswith("failed"), f"{mode} {path}: {got}"
    for path in ("/v1/events", "/ui/live"):
        heard = page.evaluate(
            f"""new Promise(done => {{
            const source = new EventSource({json.dumps(address + path)});
            source.onopen = () => done("open");
            source.onmessage = () => done("message");
            source.onerror = () => done("error");
            }})"""
        )
        assert heard == "error", f"{path}: {heard}"
    # Neither can its parts be put to use here.
    for kind, path in PARTS:
        loaded = page.evaluate(
            f"""new Promise(done => {{
            const part = document.createElement({json.dumps(kind)});
            part.onload = () => done(true);
            part.onerror = () => done(false);
            if (part.localName === "link") {{
                part.rel = "stylesheet";
                part.href = {json.dumps(address + path)};
            }} else {{
                part.src = {json.dumps(address + path)};
            }}
            document.body.append(part);
            }})"""
        )
        assert not loaded, f"{path} was loaded as {kind}"


def framed(page, url):
    """What a frame of this address shows in the page, as people would read it."""
    page.evaluate(
        f"""new Promise(done => {{
        const frame = document.createElement("iframe");
        frame.onload = () => done();
        setTimeout(done, 3000);
        frame.src = {json.dumps(url)};
        document.body.append(frame);
        }})"""
    )
    text = "document.documentElement.innerText"
    shown = []
    # A frame of the same site is in the page's process, one of another site is a target of its own.
    for child in page.send("Page.getFrameTree")["frameTree"].get("childFrames", []):
        world = page.send("Page.createIsolatedWorld", frameId=child["frame"]["id"])
        done = page.send("Runtime.evaluate", expression=text, contextId=world["executionContextId"])
        shown.append(done["result"]["value"])
    for target in page.browser.send("Target.getTargets")["targetInfos"]:
        if target["type"] == "iframe":
            to = {"targetId": target["targetId"], "flatten": True}
            session = page.browser.send("Target.attachToTarget", **to)["sessionId"]
            done = page.browser.send("Runtime.evaluate", session, expression=text)
            shown.append(done["result"]["value"])
    page.evaluate("document.querySelectorAll('iframe').forEach(frame => frame.remove())")
    return shown


def frames_nothing(page, own):
    assert framed(page, own) == ["hostile"], "what is framed is not seen by this test"
    for path in ("/ui/", f"/ui/volumes/{volume}", "/ui/chart/hits.svg"):
        for shown in framed(page, address + path):
            assert volume not in shown and "Cinnabar" not in shown, f"{path} is framed: {shown}"


def changes_nothing(page):
    before = state()
    for method, path, body in CHANGES:
        for headers in ({}, {"Content-Type": "application/json"}, {"Authorization": f"Bearer {token}"}):
            options = {"method": method, "headers": headers, "credentials": "include"}
            if body:
                options["body"] = body
            got = fetched(page, address + path, **options)
            assert str(got).startswith("failed"), f"{method} {path}: {got}"
            if method == "POST":
                fetched(page, address + path, **options, mode="no-cors")
    # Forms need no leave of the other side.
    for method, path, _ in CHANGES:
        if method == "POST":
            page.evaluate(
                f"""new Promise(done => {{
                const frame = Object.assign(document.createElement("iframe"), {{name: "into"}});
                const form = document.createElement("form");
                Object.assign(form, {{method: "post", target: "into", action: {json.dumps(address + path)}}});
                const field = Object.assign(document.createElement("input"), {{name: "token", value: {json.dumps(token)}}});
                form.append(field);
                document.body.append(frame, form);
                frame.onload = () => done();
                setTimeout(done, 3000);
                form.submit();
                }}).then(() => document.querySelectorAll("iframe, form").forEach(part => part.remove()))"""
            )
    after = state()
    assert after == before, f"{before} became {after}"


def own_page_can(browser):
    """Without this, a daemon that refuses all would pass."""
    page = browser.page(f"{address}/ui/")
    status, text = fetched(page, "/v1/status")
    assert status == 200 and volume in text
    path = f"/v1/policy/pins/{volume}"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    got = fetched(page, path, method="PUT", headers=headers, body='{"size":"25%"}')
    assert got[0] == 200, got
    page.close()


def rebinding(browser):
    """A name that led to the attacker's server a moment ago, and leads to this host now."""
    page = browser.page()
    for name in ("attacker.example", "localhost.attacker.example"):
        page.open(f"http://{name}:{port}/ui/")
        shown = page.evaluate("document.documentElement.innerText")
        assert volume not in shown, shown
        for path in READS:
            got = fetched(page, path)
            assert got[0] in (400, 403, 421) and volume not in got[1], f"{name}{path}: {got}"
        before = state()
        for method, path, body in CHANGES:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            options = {"method": method, "headers": headers}
            if body:
                options["body"] = body
            got = fetched(page, path, **options)
            assert got[0] in (400, 403, 421), f"{name} {method} {path}: {got}"
        assert state() == before
    page.close()


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
with Browser(folder, "--host-resolver-rules=MAP *.example 127.0.0.1") as browser:
    other = server.server_address[1]
    # Another port of the same host is the same site, which browsers trust more; another name is not.
    for origin in (f"http://127.0.0.1:{other}", f"http://attacker.example:{other}"):
        page = browser.page(origin)
        reads_nothing(page)
        frames_nothing(page, origin)
        changes_nothing(page)
        page.close()
    rebinding(browser)
    own_page_can(browser)
server.shutdown()
