"""Pods of this node that are to have another share while they run: the daemon is brought to what is booked for them.

What stands in the Resize as enforced is never less than what the daemon may be giving: before it is told of more, that
is written; after it was told of less. So whoever ends in between, the object says the most that there may be, and the
next one goes on from it (gemini/kube/resize.py). Less memory than a pod has in use waits until it has freed some; the
object says so, and nothing of the change is done before.

Each step is compare and set on the object as it was read, so that what the extender books meanwhile is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from gemini.kube.answer import ApiFault, Object, Refused
from gemini.kube.resize import MOST_TEXT, Amounts, Resize
from gemini.plugin.claims import Claim, PodClaims
from gemini.plugin.daemon import DaemonFault
from gemini.plugin.tenancy import Tenancy, Tenants, amounts_of, tenant_spec, with_amounts
from gemini.plugin.view import Refusal, View

AGAIN_SECONDS = 2.0  # after which what could not be done is tried anew
log = logging.getLogger("gemini.plugin")


class Resizing:
    """Those of one node."""

    def __init__(self, view: View, daemon: Tenants, tenancy: Tenancy) -> None:
        self._view, self._daemon, self._tenancy = view, daemon, tenancy
        self._woken = asyncio.Event()
        view.resized = self._woken.set

    async def run(self) -> None:
        told = ""
        while True:
            self._woken.clear()
            try:
                done = await self.carry_out()
                told = ""
            except (DaemonFault, Refusal, ApiFault) as error:
                done = False
                if str(error) != told:
                    log.warning("resize error=%s", error)
                told = str(error)
            except Exception:
                done = False
                log.exception("resize failed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), None if done else AGAIN_SECONDS)

    async def carry_out(self) -> bool:
        """Whether nothing is left to do. What fails for one pod keeps no other from its share; the first such fault is
        raised when all have had their turn: DaemonFault, Refusal, ApiFault."""
        done = True
        fault: Exception | None = None
        for pod in list(self._view.pods.values()):
            resize = self._view.resize_of(pod)
            if resize is None or resize.booked is None or (resize.settled and resize.enforced == resize.booked):
                continue
            if pod.fault or len({claim.tenant for claim in pod.claims}) != 1:
                continue  # the extender books nothing for such a pod
            async with self._tenancy.changing:
                try:
                    done &= await self._one(pod, resize)
                except Refused as error:
                    if error.status not in (404, 409):
                        fault = fault or error
                        continue
                    await self._read(resize)
                    done = False
                except (DaemonFault, Refusal, ApiFault) as error:
                    fault = fault or error
        if fault is not None:
            raise fault
        return done

    async def _one(self, pod: PodClaims, resize: Resize) -> bool:
        booked, claim = resize.booked, pod.claims[0]
        assert booked is not None
        enforced = resize.enforced or amounts_of(claim)
        there = await self._daemon.tenants()
        tenants = {name for _, name in self._view.of_pod(pod)} & there.keys()
        if not tenants:  # it begins, or begins anew, with what stands there then
            await self._write(resize, booked, True)
            return True
        most = enforced.most(booked)
        if most != enforced:
            resize = await self._write(resize, most, False)
        for name in sorted(tenants):
            try:
                await self._daemon.change(tenant_spec(with_amounts(claim, booked), name))
            except DaemonFault as fault:
                if not fault.clash:
                    raise
                await self._wait(resize, claim, str(fault))
                return False
            log.info("resized tenant=%s pod=%s/%s to=%s", name, pod.namespace, pod.name, booked.written())
        await self._write(resize, booked, True)
        return True

    async def _wait(self, resize: Resize, claim: Claim, why: str) -> None:
        why = why[:MOST_TEXT]
        if resize.waits != why:
            log.info("resize pod=%s/%s waits: %s", resize.namespace, resize.name, why)
            await self._write(resize, resize.enforced or amounts_of(claim), False, why)

    async def _write(self, resize: Resize, enforced: Amounts, settled: bool, waits: str | None = None) -> Resize:
        """The object as it is then. Raises ApiFault."""
        status: Object = {"enforced": enforced.written(), "settled": settled, "waits": waits}
        given = await self._view.kubernetes.answer_resize(resize.namespace, resize.name, resize.version, status)
        self._view.put_resize(given)
        return self._view.resizes.get(resize.pod, resize)

    async def _read(self, resize: Resize) -> None:
        """It has changed, or gone, and the watch has not told yet."""
        with contextlib.suppress(ApiFault):
            self._view.put_resize(await self._view.kubernetes.resize(resize.namespace, resize.name))
