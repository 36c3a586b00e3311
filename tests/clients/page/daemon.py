"""The daemon as its command line and its control API show it, and which views its page has."""

import json
import subprocess
import urllib.parse

VIEWS = ["", "shares", "volumes/{}", "backends", "ssd", "recovery", "events", "what-if"]


def views(volume):
    """Paths of all views, and of one volume."""
    return ["/ui/" + view.format(urllib.parse.quote(volume, safe="")) for view in VIEWS]


class Daemon:
    """A daemon at an address, asked over its control socket."""

    def __init__(self, address, binary, socket):
        self.address, self.binary, self.socket = address, binary, socket

    def command(self, *args):
        """What one of the binary's commands prints."""
        command = [self.binary, *args, "--socket", self.socket]
        return subprocess.run(command, check=True, capture_output=True, timeout=60, text=True).stdout

    def status(self):
        """`cinnabar status --json`."""
        return json.loads(self.command("status", "--json"))

    def volume(self, name):
        """What the status has of a volume."""
        return next(volume for volume in self.status()["volumes"] if volume["name"] == name)

    def planned(self, name):
        """What a plan made now has for a volume."""
        plan = json.loads(self.command("policy", "plan", "--json"))
        return next(row for row in plan["volumes"] if row["volume"] == name)
