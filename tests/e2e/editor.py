"""An editor of one namespace who does at random all that the role `edit` lets him, and tries what it does not."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from gemini.kube import names
from tests.e2e.api import Api, ApiError, Object
from tests.e2e.test_extender import CORE, GIB, MEMORY, RATIO, sharepod

CARDS, CARD_BYTES = 4, 80 * GIB  # of each node
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
REFUSALS = (400, 403, 404, 405, 409, 413, 415, 422, 429, 500)


@dataclass
class Outcome:
    """`tried` and `let`: what the editor did, and how much of it the API server let him do."""

    tried: Counter[str] = field(default_factory=Counter)
    let: Counter[str] = field(default_factory=Counter)
    bound: int = 0  # pods of his
    peak_core: int = 0
    peak_memory: int = 0
    rewritten: list[str] = field(default_factory=list)  # records that changed after the binding
    visits: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # visitor -> from its creation to Ready
    wrong: list[str] = field(default_factory=list)  # what befell the others

    def good(self) -> bool:
        within = self.peak_core <= 100 and self.peak_memory <= CARD_BYTES
        return within and not self.rewritten and not self.wrong and bool(self.visits) and bool(self.bound)


class Editor:
    """One thread of his. `others`: uids and records that he knows, though they are none of his."""

    def __init__(self, api: Api, namespace: str, other: str, others: list[Object], seed: int, outcome: Outcome) -> None:
        self._api, self._namespace, self._other, self._others = api, namespace, other, others
        self._random, self._outcome, self._number, self._seed = random.Random(seed), outcome, 0, seed
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._acts = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("act_")]

    def work(self, until: float) -> None:
        while time.monotonic() < until:
            act = self._random.choice(self._acts)
            kind = act.__name__.removeprefix("act_")
            self._outcome.tried[kind] += 1
            try:
                act()
                self._outcome.let[kind] += 1
            except ApiError as error:
                if error.status not in REFUSALS:
                    raise
            except OSError:
                pass

    # ---- making and ending

    def act_create(self) -> None:
        self._api.post(self._pods, self._pod())

    def act_create_again(self) -> None:
        self._api.post(self._pods, self._pod())

    def act_create_with_a_record(self) -> None:
        pod = self._pod()
        pod["metadata"].setdefault("annotations", {}).update(self._forged())
        self._api.post(self._pods, pod)

    def act_create_on_a_node(self) -> None:
        pod = sharepod(self._name())
        pod["metadata"]["annotations"] = self._ask()
        pod["spec"]["nodeName"] = self._random.choice(self._others)["spec"]["nodeName"]
        self._api.post(self._pods, pod)

    def act_create_in_any_words_on_a_node(self) -> None:
        """In another project's, it is left as it is: a pod of that project's nodes, as far as admission can tell."""
        pod = self._pod()
        pod["spec"]["nodeName"] = self._random.choice(self._others)["spec"]["nodeName"]
        self._api.post(self._pods, pod)

    def act_create_plain_on_a_node(self) -> None:
        pod = sharepod(self._name())
        pod["spec"]["nodeName"] = self._random.choice(self._others)["spec"]["nodeName"]
        self._api.post(self._pods, pod)

    def act_create_plain_with_slots(self) -> None:
        pod = sharepod(self._name())
        pod["spec"]["containers"][0]["resources"] = {"limits": {self._random.choice([MEMORY, RATIO]): "50"}}
        self._api.post(self._pods, pod)

    def act_deploy(self) -> None:
        pod = self._pod()
        template = {"metadata": {**pod["metadata"], "labels": {**pod["metadata"].get("labels", {}), "app": "d"}}}
        template["metadata"].pop("name")
        pod["spec"].pop("terminationGracePeriodSeconds")
        spec = {"replicas": self._random.randint(1, 4), "selector": {"matchLabels": {"app": "d"}}}
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments"
        body = {"metadata": {"name": self._name()}, "spec": {**spec, "template": {**template, "spec": pod["spec"]}}}
        self._api.post(path, body)

    def act_end_deployments(self) -> None:
        self._api.delete(f"/apis/apps/v1/namespaces/{self._namespace}/deployments", 0)

    def act_delete(self) -> None:
        self._api.delete(self._mine(), 0)

    def act_delete_slowly(self) -> None:
        self._api.delete(self._mine(), 30)

    def act_delete_all(self) -> None:
        if self._random.random() < 0.1:
            self._api.delete(self._pods, 0)

    def act_evict(self) -> None:
        path = self._mine()
        self._api.post(f"{path}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction",
                                            "metadata": {"name": path.rpartition("/")[2]}})  # fmt: skip

    def act_budget(self) -> None:
        selector: Object = self._random.choice([{}, {"matchLabels": {"app": "d"}}])
        path = f"/apis/policy/v1/namespaces/{self._namespace}/poddisruptionbudgets"
        self._api.post(path, {"metadata": {"name": self._name()}, "spec": {"maxUnavailable": 0, "selector": selector}})

    # ---- rewriting

    def act_patch_record(self) -> None:
        self._api.patch(self._mine(), {"metadata": {"annotations": self._forged()}})

    def act_remove_record(self) -> None:
        gone = dict.fromkeys(self._random.sample(names.RECORD_KEYS, 3))
        self._api.patch(self._mine(), {"metadata": {"annotations": gone}})

    def act_patch_ask(self) -> None:
        self._api.patch(self._mine(), {"metadata": {"annotations": self._ask()}})

    def act_patch_labels(self) -> None:
        labels = {names.SHARED_REQUEST: "0.01", names.SHARED_LIMIT: "1.0", names.ALIYUN_GPU_COUNT: "8",
                  f"{names.DOMAIN}/gpu-request": "0.1", "app": "x"}  # fmt: skip
        chosen = self._random.choice(list(labels))
        self._api.patch(self._mine(), {"metadata": {"labels": {chosen: labels[chosen]}}})

    def act_put(self) -> None:
        path = self._mine()
        pod = self._api.get(path)
        annotations = pod["metadata"].setdefault("annotations", {})
        if self._random.random() < 0.5:
            annotations.update(self._forged())
        else:
            annotations.clear()
        self._api.put(path, pod)

    def act_apply(self) -> None:
        path = self._mine()
        body = {"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": path.rpartition("/")[2], "annotations": self._forged()}}  # fmt: skip
        self._api.call("PATCH", path, body, {"fieldManager": "e", "force": "true"}, APPLY)

    def act_json_patch(self) -> None:
        key = self._random.choice(names.RECORD_KEYS).replace("/", "~1")
        operation = {"op": self._random.choice(["remove", "replace"]), "path": f"/metadata/annotations/{key}"}
        self._api.call("PATCH", self._mine(), [{**operation, "value": "{}"}], content_type=JSON_PATCH)  # type: ignore[arg-type]

    def act_subresource(self) -> None:
        part = self._random.choice(["status", "ephemeralcontainers", "resize", "binding"])
        change = {"metadata": {"annotations": self._forged()}}
        if part == "binding":
            path = self._mine()
            target = {"kind": "Node", "name": self._random.choice(self._others)["spec"]["nodeName"]}
            self._api.post(f"{path}/binding", {"metadata": {"name": path.rpartition("/")[2]}, "target": target})
        else:
            self._api.patch(f"{self._mine()}/{part}", change)

    def act_debug(self) -> None:
        container = {"name": self._name(), "image": "x", "terminationMessagePolicy": "File"}
        self._api.patch(f"{self._mine()}/ephemeralcontainers", {"spec": {"ephemeralContainers": [container]}})

    def act_spec(self) -> None:
        change = self._random.choice([
            {"containers": [{"name": "main", "image": "y"}]}, {"activeDeadlineSeconds": 100},
            {"tolerations": [{"operator": "Exists"}]}, {"nodeName": "elsewhere"},
            {"containers": [{"name": "main", "resources": {"limits": {CORE: "1"}}}]},
        ])  # fmt: skip
        self._api.call("PATCH", self._mine(), {"spec": change}, content_type="application/strategic-merge-patch+json")

    def act_elsewhere(self) -> None:
        """Another tenant's pods, and what is the cluster's: none of it may be let."""
        path = f"/api/v1/namespaces/{self._other}/pods/{self._random.choice(self._others)['metadata']['name']}"
        self._random.choice([
            lambda: self._api.patch(path, {"metadata": {"annotations": {names.ALLOCATION: "{}"}}}),
            lambda: self._api.delete(path, 0),
            lambda: self._api.post(f"{path}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction",
                                                        "metadata": {"name": path.rpartition("/")[2]}}),
            lambda: self._api.patch("/apis/resource.k8s.io/v1/deviceclasses/gemini.io", {"metadata": {"labels": {}}}),
        ])()  # fmt: skip

    # ---- parts

    def _name(self) -> str:
        self._number += 1
        return f"e{self._seed}-{self._number}"

    def _mine(self) -> str:
        found = self._api.get(self._pods)["items"]
        if not found:
            raise ApiError(404, {"message": "he has no pod"}, "GET")
        return f"{self._pods}/{self._random.choice(found)['metadata']['name']}"

    def _pod(self) -> Object:
        pick = self._random
        pod = sharepod(self._name())
        container = pod["spec"]["containers"][0]
        way = pick.randrange(9)
        if way < 4:
            pod["metadata"]["annotations"] = self._ask()
        elif way == 4:
            pod["metadata"]["labels"] = {names.SHARED_REQUEST: "0.2", names.SHARED_LIMIT: "0.5"}
        elif way < 8:
            amounts: Object = pick.choice([
                {CORE: pick.choice(["1", "30", "100", "200"])}, {CORE: "20", MEMORY: "5368709120"},
                {CORE: "10", RATIO: "20"}, {"nvidia.com/gpu": "1"}, {"kubernetes.io/gpu": "50"},
                {"aliyun.com/gpu-mem": "1024"},
                {"koordinator.sh/gpu-core": "40", "koordinator.sh/gpu-memory-ratio": "40"},
            ])  # fmt: skip
            container["resources"] = {"limits": amounts}
        else:
            group = {names.POD_GROUP: pick.choice("ab"), names.POD_GROUP_SIZE: str(pick.randint(1, 4))}
            pod["metadata"]["annotations"] = {**self._ask(), **group}
        if pick.random() < 0.1:
            pod["spec"]["containers"].append({"name": "side", "image": "x"})
        if pick.random() < 0.1:
            pod["spec"]["initContainers"] = [{"name": "first", "image": "x"}]
        if pick.random() < 0.1:
            pod["spec"]["priorityClassName"] = "system-node-critical"
        return pod

    def _ask(self) -> Object:
        pick = self._random
        said = {names.GPU_REQUEST: pick.choice(["0", "0.01", "0.05", "0.3", "0.5", "1"])}
        if pick.random() < 0.5:
            said[names.GPU_LIMIT] = "1"
        if pick.random() < 0.6:
            said[names.GPU_MEMORY] = pick.choice(["1", "1Gi", "10Gi", "80Gi"])
        elif pick.random() < 0.3:
            said[names.GPU_MEMORY_RATIO] = pick.choice(["1", "30", "100"])
        if pick.random() < 0.2:
            said[names.GPU_COUNT] = str(pick.randint(1, 4))
        return said

    def _forged(self) -> Object:
        pick = self._random
        theirs = pick.choice(self._others)
        whole = {"minor": pick.randrange(CARDS), "uuid": json.loads(theirs["metadata"]["annotations"][names.ALLOCATION])
                 ["gpu"][0]["uuid"], "resources": {CORE: 100, MEMORY: CARD_BYTES}}  # fmt: skip
        record = pick.choice(["{}", "", "null", "[]", json.dumps({"gpu": []}), json.dumps({"gpu": [whole] * CARDS}),
                              theirs["metadata"]["annotations"][names.ALLOCATION]])  # fmt: skip
        return pick.choice([
            {names.ALLOCATION: record}, {names.EXCHANGE: theirs["metadata"]["uid"]}, {names.ASSIGNED: "true"},
            {names.ALLOCATION: record, names.EXCHANGE: theirs["metadata"]["uid"], names.ASSUME_TIME: "1"},
            {names.ALIYUN_INDEX: "0", names.ALIYUN_POD: "1", names.ALIYUN_ASSIGNED: "true"},
        ])  # fmt: skip
