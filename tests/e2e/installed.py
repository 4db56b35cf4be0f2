"""The webhooks as an installation has them: asked about pods that name a share, and about who binds a pod."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import yaml

from tests.e2e.conftest import ROOT
from tests.e2e.plane import Plane

WRITTEN = ROOT / "deploy/kustomize/cluster/webhookconfigurations.yaml"
SECOND_ALONE = "not-by-the-clusters-scheduler"  # of scheduler.mode: second
EXTENDER = "system:serviceaccount:gemini:gemini-extender"


@contextmanager
def installed_hooks(plane: Plane, url: str, extender: str, second: bool) -> Iterator[None]:
    """`url` is where the webhook listens, `extender` the user that the extender is here, `second` whether
    sharepods have a scheduler of their own."""
    with ExitStack() as stack:
        for configuration in yaml.safe_load_all(WRITTEN.read_text().replace(EXTENDER, extender)):
            validating = configuration["kind"].startswith("Validating")
            for hook in configuration["webhooks"]:
                name, path = hook.pop("name").replace(".", "-"), hook.pop("clientConfig")["service"]["path"]
                asked = [one for one in hook.pop("matchConditions", ()) if second or one["name"] != SECOND_ALONE]
                stack.enter_context(plane.webhook(name, f"{url}{path}", validating, matchConditions=asked, **hook))
        yield
