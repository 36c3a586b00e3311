"""The control API by the client that a generator has made of its description.

Arguments: the address, the token. Each answer has been parsed into the generated classes, which fails
if it is not as described.
"""

import sys
import time

from control_api import AuthenticatedClient, Client
from control_api.api.cache import abandon_cache
from control_api.api.daemon import describe, ready, status, version
from control_api.api.history import samples
from control_api.api.policy import explain, history, pin, plan, unpin
from control_api.api.volumes import (
    add_volume,
    change_volume,
    flush_volume,
    invalidate_volume,
    list_volumes,
    remove_volume,
)
from control_api.models.change_input import ChangeInput
from control_api.models.error_body import ErrorBody
from control_api.models.invalidate_input import InvalidateInput
from control_api.models.pin_input import PinInput
from control_api.models.volume_input import VolumeInput

address, token = sys.argv[1:]
reader = Client(base_url=address, raise_on_unexpected_status=True)
writer = AuthenticatedClient(
    base_url=address, token=token, raise_on_unexpected_status=True
)


def ok(response, code=200):
    assert response.status_code == code, response
    assert not isinstance(response.parsed, ErrorBody), response
    return response.parsed


def refused(response, code):
    assert response.status_code == code, response
    assert isinstance(response.parsed, ErrorBody), response
    assert response.parsed.error and isinstance(response.parsed.hint, str), response


# Reading needs no token.
assert ok(ready.sync_detailed(client=reader)).ready
assert ok(version.sync_detailed(client=reader)).format_version > 0
assert describe.sync_detailed(client=reader).status_code == 200
assert ok(status.sync_detailed(client=reader)).volumes[0].name == "vm1"
assert [volume.name for volume in ok(list_volumes.sync_detailed(client=reader))] == ["vm1"]

# Changing does.
change = ChangeInput(mode="write-around")
unauthorised = AuthenticatedClient(base_url=address, token="wrong" * 4)
refused(change_volume.sync_detailed("vm1", client=unauthorised, body=change), 401)
assert ok(list_volumes.sync_detailed(client=reader))[0].mode == "write-through"
assert ok(change_volume.sync_detailed("vm1", client=writer, body=change)).mode == "write-around"
refused(change_volume.sync_detailed("vm9", client=writer, body=change), 404)
refused(change_volume.sync_detailed("vm1", client=writer, body=ChangeInput()), 422)

new = VolumeInput(name="vm 2", backend="file:vm2.raw", nbd="unix:vm2.sock")
assert ok(add_volume.sync_detailed(client=writer, body=new), 201).name == "vm 2"
refused(add_volume.sync_detailed(client=writer, body=new), 409)
assert flush_volume.sync_detailed("vm 2", client=writer).status_code == 204
body = InvalidateInput(offset=0, len_=4096)
assert invalidate_volume.sync_detailed("vm 2", client=writer, body=body).status_code == 204
assert remove_volume.sync_detailed("vm 2", client=writer, force=True).status_code == 204
refused(remove_volume.sync_detailed("vm 2", client=writer), 404)

# Plans.
assert ok(plan.sync_detailed(client=reader)).volumes[0].volume == "vm1"
pinned = ok(pin.sync_detailed("vm1", client=writer, body=PinInput(size="50%")))
assert pinned.volumes[0].pinned_bytes > 0
assert len(ok(history.sync_detailed(client=reader)).plans) == 1
assert ok(explain.sync_detailed("vm1", client=reader)).plan.volumes[0].volume == "vm1"
then = int(time.time() * 1000) + 1
assert ok(explain.sync_detailed("vm1", client=reader, at_ms=then)).plan.made_ms <= then
refused(explain.sync_detailed("vm1", client=reader, at_ms=1), 404)
ok(unpin.sync_detailed("vm1", client=writer))

# What happened.
report = ok(samples.sync_detailed(client=reader))
assert (report.step_s, report.volumes) == (10, ["vm1"]), report
assert ok(samples.sync_detailed(client=reader, volume="vm1", step=300, since=1)).step_s == 300
refused(samples.sync_detailed(client=reader, volume="vm9"), 404)
refused(samples.sync_detailed(client=reader, step=60), 422)

assert ok(abandon_cache.sync_detailed(client=writer)).health
