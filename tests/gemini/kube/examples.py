"""Every example manifest of HAMi's, Volcano's and KAI's public documentation that asks for a share of a card: what its
pods say, and what becomes of it.

The manifests are not kept here: what they say is, in keys and values, and where each of them stands. A row is what one
or several say. `UPSTREAM` has the commit of each repository; a file that is not in that has its own behind an `@`, and
`#` tells the examples of one page apart. Not in it are examples for cards of other makers, and those that ask NVIDIA's
own device plugin for whole cards (`nvidia.com/gpu` under Volcano's or KAI's scheduler).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
UPSTREAM = {
    "hami": ("Project-HAMi/HAMi", "4707fb02c91c545bc7343ce26dba4c32919f9a3e"),
    "hami-site": ("Project-HAMi/website", "0d64adad4e9da89c3626c2e35ef9cc466ef62dbc"),
    "vgpu": ("Project-HAMi/volcano-vgpu-device-plugin", "4fb76ba16a1744b161e9e2fbfc0b9ec3a546dd9b"),
    "devices": ("volcano-sh/devices", "95b591b6787c7ae97fb340a6d7832ffcc3d29083"),
    "volcano": ("volcano-sh/volcano", "ed72c7c815a9fd547a787134676f73d42e9d049c"),
    "volcano-site": ("volcano-sh/website", "0ef50ca74346b4ef89576f9d864089b5b6b341df"),
    "kai": ("NVIDIA/KAI-Scheduler", "72de64fc8eca10fa8cca26a20156178f3edbe092"),
}
UUIDS = ("GPU-03f69c50-207a-2038-9b45-23cac89cb67d", "GPU-03f69c50-207a-2038-9b45-23cac89cb67e")


def hami(**amounts: Any) -> Object:
    return {f"nvidia.com/{key.replace('_', '-')}": value for key, value in amounts.items()}


def vgpu(**amounts: Any) -> Object:
    return {f"volcano.sh/vgpu-{key}": value for key, value in amounts.items()}


@dataclass(frozen=True)
class Example:
    """`asks`: of each pod, what each of its containers asks for. `becomes`: of each pod our annotations without their
    domain and the container's name where it is the only one, else a part of the line that refuses it."""

    source: str  # of `gemini migrate --from`
    paths: tuple[str, ...]
    asks: tuple[tuple[Object, ...], ...]
    becomes: tuple[dict[str, str], ...] | str
    annotations: Object = field(default_factory=dict)
    scheduler: str | None = None
    kind: str = "Pod"
    replicas: int = 1
    first: str = "containers"  # where the first of its containers stands
    mounts: str = ""  # a folder of the node's
    left: bool = False  # admission has nothing to do with it: the pod is another device plugin's

    @property
    def name(self) -> str:
        """Of the test."""
        return self.paths[0].replace("/", "-")

    def pods(self) -> list[Object]:
        return [self._pod(asks) for asks in self.asks]

    def _pod(self, asks: tuple[Object, ...]) -> Object:
        boxes: list[Object] = [
            {"name": f"c{i}", "image": "x", **({"resources": {"limits": dict(one)}} if one else {})}
            for i, one in enumerate(asks)
        ]
        spec: Object = {"containers": boxes, "terminationGracePeriodSeconds": 0}
        if self.first != "containers":
            spec |= {self.first: boxes[:1], "containers": boxes[1:]}
        if self.scheduler is not None:
            spec["schedulerName"] = self.scheduler
        if self.mounts:
            boxes[0]["volumeMounts"] = [{"name": "theirs", "mountPath": self.mounts}]
            spec["volumes"] = [{"name": "theirs", "hostPath": {"path": self.mounts, "type": "DirectoryOrCreate"}}]
        return {"metadata": {"annotations": dict(self.annotations)}, "spec": spec}

    def manifests(self, name: str) -> list[Object]:
        """Its objects, whose pods have the label `example` with that name."""
        made = []
        for number, pod in enumerate(self.pods()):
            own = f"{name}-{number}"
            pod["metadata"]["labels"] = {"example": name}
            head: Object = {"metadata": {"name": own}}
            if self.kind == "Pod":
                made.append({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**pod["metadata"], "name": own}})
            elif self.kind == "Job":
                body = {"template": {**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}}}
                made.append({"apiVersion": "batch/v1", "kind": "Job", **head, "spec": body})
            else:
                selector = {"matchLabels": {"example": name}}
                body = {"replicas": self.replicas, "selector": selector, "template": pod}
                made.append({"apiVersion": "apps/v1", "kind": self.kind, **head, "spec": body})
        return made


def one(asks: Object) -> tuple[tuple[Object, ...], ...]:
    """One pod of one container."""
    return ((asks,),)


def share(request: int, memory: str = "", limit: int | None = None, **more: str) -> dict[str, str]:
    """Of ours: percent of the time, and MiB, or a percentage, of memory."""
    said = {"gpu-request": f"{request}%", **({} if limit is None else {"gpu-limit": f"{limit}%"})}
    if memory:
        said["gpu-memory-ratio" if memory.endswith("%") else "gpu-memory"] = memory.removesuffix("%")
    return said | {key.replace("_", "-"): value for key, value in more.items()}


MIG = "vgpu-mode: mig is no way of Gemini's to share a card; remove it"
EXAMPLES = [
    # ---- HAMi
    Example("hami", ("hami:examples/nvidia/default_use.yaml", "hami-site:docs/developers/scheduler-event-log.md"),
            one(hami(gpu=1, gpumem=3000, gpucores=30)), (share(30, "3000Mi", 30),)),
    Example("hami", ("hami:examples/nvidia/default_use_legacy.yaml",
                     "hami-site:docs/userguide/nvidia-device/examples/use-exclusive-card.md"),
            one(hami(gpu=2)), (share(100, gpu_count="2"),)),
    Example("hami", ("hami:examples/nvidia/use_as_normal.yaml", "hami-site:docs/get-started/verify-hami.md",
                     "hami-site:docs/installation/upgrade.md"),
            ((hami(gpu=1),), (hami(gpu=1),)), (share(100), share(100))),
    Example("hami", ("hami:examples/nvidia/use_exclusive_card.yaml",),
            one(hami(gpu=2, gpumem_percentage=100, gpucores=100)), (share(100, gpu_count="2"),)),
    Example("hami", ("hami:examples/nvidia/use_memory_fraction.yaml",),
            one(hami(gpu=2, gpumem_percentage=50, gpucores=30)), (share(30, "50%", 30, gpu_count="2"),)),
    Example("hami", ("hami:examples/nvidia/use_sharing_card.yaml",),
            ((hami(gpu=1, gpumem_percentage=40, gpucores=60),), (hami(gpu=1, gpumem_percentage=60, gpucores=40),)),
            (share(60, "40%", 60), share(40, "60%", 40))),
    Example("hami", ("hami:examples/nvidia/example.yaml",), one(hami(gpu=1, gpumem=3000)), (share(0, "3000Mi"),),
            scheduler="default-scheduler", kind="Deployment"),
    Example("hami", ("hami:examples/nvidia/vllm_cross_vgpu.yaml",),
            one(hami(gpu=2, gpumem_percentage=30, gpucores=30)), (share(30, "30%", 30, gpu_count="2"),),
            scheduler="default-scheduler", kind="Deployment"),
    Example("hami", ("hami:examples/nvidia/sglang_gpu_sharing.yaml@449db414",),
            one(hami(gpu=1, gpumem=12000, gpucores=30)), (share(30, "12000Mi", 30),), kind="Deployment"),
    Example("hami", ("hami:examples/kueue/04-sample-job.yaml@10b93b3d",),
            one(hami(gpu=1, gpumem=4000, gpucores=10)), (share(10, "4000Mi", 10),), kind="Job"),
    Example("hami", ("hami:examples/nvidia/specify_scheduling_policy.yaml",
                     "hami-site:docs/core-concepts/gpu-virtualization.md"),
            one(hami(gpu=1)), ({**share(100), "gpu-policy": "node-spread,binpack"},),
            {"hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack"}),
    Example("hami", ("hami:examples/nvidia/specify_uuid_to_use.yaml",), one(hami(gpu=1)),
            ({**share(100), "gpu-uuid": ",".join(UUIDS)},), {"nvidia.com/use-gpuuuid": ",".join(UUIDS)}),
    Example("hami", ("hami:examples/nvidia/specify_uuid_not_use.yaml",), one(hami(gpu=2)),
            ({**share(100, gpu_count="2"), "gpu-uuid-exclude": UUIDS[0]},), {"nvidia.com/nouse-gpuuuid": UUIDS[0]}),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/examples/specify-certain-card.md",
                     "hami-site:docs/userguide/nvidia-device/specify-device-uuid-to-use.md"),
            one(hami(gpu=2)), "gemini.io/gpu-uuid: GPU-123456 names 1 of the 2 cards that are asked for; name as many",
            {"nvidia.com/use-gpuuuid": "GPU-123456"}),
    Example("hami", ("hami:docs/develop/dynamic-mig.md#1", "hami-site:docs/developers/dynamic-mig.md#1"),
            one(hami(gpu=2, gpumem=8000)), (share(0, "8000Mi", gpu_count="2"),)),
    Example("hami", ("hami-site:docs/core-concepts/gpu-virtualization.md#2",),
            one(hami(gpu=1, gpumem=1024, gpucores=30)), (share(30, "1024Mi", 30),)),
    Example("hami", ("hami-site:docs/get-started/deploy-with-helm.md", "hami-site:docs/get-started/verify-hami.md#2"),
            one(hami(gpu=1, gpumem=10240)), (share(0, "10240Mi"),)),
    Example("hami", ("hami-site:docs/key-features/device-resource-isolation.md", "hami:README.md",
                     "hami-site:docs/userguide/nvidia-device/specify-device-memory-usage.md#1"),
            one(hami(gpu=1, gpumem=3000)), (share(0, "3000Mi"),)),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/specify-device-memory-usage.md#2",),
            one(hami(gpu=1, gpumem_percentage=50)), (share(0, "50%"),)),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/specify-device-core-usage.md",),
            one(hami(gpu=1, gpucores=50)), (share(50, "100%", 50),)),
    Example("hami", ("hami-site:docs/installation/how-to-use-hami-dra.md",),
            one(hami(gpu=1, gpumem=10240, gpucores=50)), (share(50, "10240Mi", 50),)),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/examples/allocate-device-core.md",),
            one(hami(gpu=2, gpucores=50)), (share(50, "100%", 50, gpu_count="2"),)),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/examples/allocate-device-memory.md",),
            one(hami(gpu=2, gpumem=3000)), (share(0, "3000Mi", gpu_count="2"),)),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/examples/allocate-device-memory2.md",),
            one(hami(gpu=2, gpumem_percentage=50)), (share(0, "50%", gpu_count="2"),)),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/scheduling-policy.md#1",), one(hami(gpu=2, gpumem=4000)),
            ({**share(0, "4000Mi", gpu_count="2"), "gpu-policy": "node-binpack"},),
            {"hami.io/node-scheduler-policy": "binpack"}),
    Example("hami", ("hami-site:docs/userguide/nvidia-device/scheduling-policy.md#2",), one(hami(gpu=2, gpumem=4000)),
            ({**share(0, "4000Mi", gpu_count="2"), "gpu-policy": "node-spread"},),
            {"hami.io/node-scheduler-policy": "spread"}),
    Example("hami", ("hami-site:docs/developers/gpu-topology-scheduling.md",), one(hami(gpu=2)),
            ({**share(100, gpu_count="2"), "gpu-policy": "best-link"},),
            {"hami.io/gpu-scheduler-policy": "topology-aware"}),
    Example("hami", ("hami-site:docs/userguide/kueue/how-to-use-kueue.md#1",),
            one(hami(gpu=1, gpucores=50, gpumem=1024)), (share(50, "1024Mi", 50),), kind="Deployment"),
    Example("hami", ("hami-site:docs/userguide/kueue/how-to-use-kueue.md#2",
                     "hami-site:docs/userguide/kueue/examples/default-use.md"),
            one(hami(gpu="2", gpucores="30", gpumem="1024")), (share(30, "1024Mi", 30, gpu_count="2"),),
            kind="Deployment"),
    Example("hami", ("hami:examples/nvidia/dynamic_mig_example.yaml", "hami:docs/develop/dynamic-mig.md#2",
                     "hami-site:docs/userguide/nvidia-device/examples/dynamic-mig-example.md",
                     "hami-site:docs/userguide/nvidia-device/dynamic-mig-support.md",
                     "hami-site:docs/developers/dynamic-mig.md#2"),
            one(hami(gpu=2, gpumem=8000)), MIG,
            {"nvidia.com/vgpu-mode": "mig", "hami.io/gpu-scheduler-policy": "binpack"}),
    Example("hami", ("hami:docs/develop/dynamic-mig-migration.md",), one(hami(gpu=1, gpumem=8000)), MIG,
            {"nvidia.com/vgpu-mode": "mig"}),
    Example("hami", ("hami:examples/nvidia/dynamic_mig_profile_preference.yaml@be8ce61f",),
            one(hami(gpu=1, gpumem=20000)), MIG,
            {"nvidia.com/vgpu-mode": "mig", "nvidia.com/mig-profile-preference": "4g"}),
    Example("hami", ("hami:examples/nvidia/mig_example.yaml",), one(hami(**{"mig_3g.20gb": 1})),
            "nvidia.com/mig-3g.20gb: is a slice that MIG cut, no share; write gemini.io/gpu-request", left=True),
    Example("hami", ("hami:examples/nvidia/specify_card_type_to_use.yaml",
                     "hami-site:docs/userguide/nvidia-device/examples/specify-card-type-to-use.md",
                     "hami-site:docs/userguide/nvidia-device/specify-device-type-to-use.md#1"),
            one(hami(gpu=2)), "nvidia.com/use-gputype: A100,V100 is looked for within names of models there; write",
            {"nvidia.com/use-gputype": "A100,V100"}),
    Example("hami", ("hami:examples/nvidia/specify_card_type_not_use.yaml",
                     "hami-site:docs/userguide/nvidia-device/specify-device-type-to-use.md#2"),
            one(hami(gpu=2)), "nvidia.com/nouse-gputype: 1080,2080 is looked for within names of models there; write",
            {"nvidia.com/nouse-gputype": "1080,2080"}),
    Example("hami", ("hami:examples/nvidia/specify_index_to_use.yaml@7d76597c",), one(hami(gpu=1)),
            "nvidia.com/use-gpuindexes: 0,1 chooses cards in a way that is not kept; write gemini.io/gpu-uuid",
            {"nvidia.com/use-gpuindexes": "0,1"}),
    Example("hami", ("hami:examples/nvidia/specify_index_not_use.yaml@471a9281",), one(hami(gpu=2)),
            "nvidia.com/nouse-gpuindexes: 0 chooses cards in a way that is not kept; write gemini.io/gpu-uuid",
            {"nvidia.com/nouse-gpuindexes": "0"}),
    Example("hami", ("hami:examples/nvidia/vulkan_example.yaml@53354358",),
            one(hami(gpu="1", gpumem="1024", gpucores="30")), "hami.io/vulkan: true is not kept; only CUDA is",
            {"hami.io/vulkan": "true"}),
    Example("hami", ("vgpu:examples/vulkan-pod.yaml@065674b9", "vgpu:doc/vulkan-vgpu.md@065674b9"),
            one(hami(gpu=1, gpumem=4000, gpucores=50)), "hami.io/vulkan: true is not kept; only CUDA is",
            {"hami.io/vulkan": "true"}, scheduler="volcano"),
    Example("hami", ("hami-site:docs/developers/scheduling.md",), one(hami(gpu=1, gpumem=3000)),
            "hami.io/gpu-scheduler-policy: mutex is not known; use one of binpack, spread",
            {"hami.io/gpu-scheduler-policy": "mutex"}),
    Example("hami", ("hami:docs/develop/scheduler-policy.md",), one(hami(gpu=1, gpumem=3000)),
            "hami.io/device-scoring-weights: slot=1,core=1,memory=3 is not kept; gemini.io/gpu-policy says",
            {"hami.io/device-scoring-weights": "slot=1,core=1,memory=3"}),
    # ---- Volcano
    Example("volcano", ("vgpu:README.md",), one(vgpu(number=2, memory=3000, cores=50)),
            (share(50, "3000Mi", 50, gpu_count="2"),), {"volcano.sh/vgpu-mode": "hami-core"}, scheduler="volcano"),
    Example("volcano", ("hami-site:docs/installation/how-to-use-volcano-vgpu.md",
                        "hami-site:docs/userguide/volcano-vgpu/nvidia-gpu/how-to-use-volcano-vgpu.md"),
            one(vgpu(number=2, memory=3000, cores=50)), (share(50, "3000Mi", 50, gpu_count="2"),)),
    Example("volcano", ("vgpu:examples/vgpu-case01.yml", "devices:examples/vgpu-case01.yml@2048f1a4",
                        "devices:examples/vgpu-case02.yml@117cc192",
                        "hami-site:docs/userguide/volcano-vgpu/nvidia-gpu/examples/default-use.md"),
            one(vgpu(memory=1024, number=1)), (share(0, "1024Mi"),), scheduler="volcano"),
    Example("volcano", ("vgpu:examples/vgpu-case02.yml",), one(vgpu(number=1, memory=10240)), (share(0, "10240Mi"),),
            scheduler="volcano"),
    Example("volcano", ("vgpu:examples/vgpu-case03.yml", "devices:examples/vgpu-case03.yml@d32253b2"),
            ((vgpu(number=2, memory=2000), {}, vgpu(number=2, memory=3000)),),
            ({"gpu-request.c0": "0%", "gpu-memory.c0": "2000Mi", "gpu-count.c0": "2",
              "gpu-request.c2": "0%", "gpu-memory.c2": "3000Mi", "gpu-count.c2": "2"},), scheduler="volcano"),
    Example("volcano", ("vgpu:examples/vgpu-deployment.yaml",), one(vgpu(number=1, memory=16384)),
            (share(0, "16384Mi"),), scheduler="volcano", kind="Deployment", replicas=10),
    Example("volcano", ("hami-site:docs/userguide/volcano-vgpu/nvidia-gpu/examples/use-exclusive-gpu.md",),
            one(vgpu(number=1)), (share(100),), scheduler="volcano"),
    Example("volcano", ("volcano:docs/user-guide/how_to_use_volcano_vgpu.md#1",
                        "volcano-site:docs/UserGuide/user_guide_how_to_use_volcano_vgpu.md#1",
                        "volcano-site:docs/KeyFeatures/GPUVirtualization.md#1"),
            one(vgpu(number=1, cores=50, memory=3000)), (share(50, "3000Mi", 50),),
            {"volcano.sh/vgpu-mode": "hami-core"}, scheduler="volcano"),
    Example("volcano", ("volcano:docs/user-guide/how_to_use_volcano_vgpu.md#exclusive",),
            one(vgpu(number="4", memory="16384")), (share(0, "16384Mi", gpu_count="4"),), scheduler="volcano"),
    Example("volcano", ("volcano:docs/user-guide/how_to_use_volcano_vgpu.md#use-uuid",),
            one(vgpu(number=1, memory=3000)), ({**share(0, "3000Mi"), "gpu-uuid": UUIDS[0]},),
            {"volcano.sh/vgpu-use-gpuuuid": UUIDS[0]}, scheduler="volcano"),
    Example("volcano", ("volcano:docs/user-guide/how_to_use_volcano_vgpu.md#nouse-uuid",),
            one(vgpu(number=1, memory=3000)), ({**share(0, "3000Mi"), "gpu-uuid-exclude": UUIDS[0]},),
            {"volcano.sh/vgpu-nouse-gpuuuid": UUIDS[0]}, scheduler="volcano"),
    Example("volcano", ("volcano:docs/design/dynamic-mig.md#1",), one(vgpu(number=2, memory=8000)),
            (share(0, "8000Mi", gpu_count="2"),)),
    Example("volcano", ("volcano:docs/design/dynamic-mig.md#2",), one(vgpu(number=2, memory=8000)), MIG,
            {"volcano.sh/vgpu-mode": "mig"}),
    Example("volcano", ("volcano:docs/user-guide/how_to_use_volcano_vgpu.md#mig",
                        "volcano-site:docs/UserGuide/user_guide_how_to_use_volcano_vgpu.md#2",
                        "volcano-site:docs/KeyFeatures/GPUVirtualization.md#2"),
            one(vgpu(number=1, memory=3000)), MIG, {"volcano.sh/vgpu-mode": "mig"}, scheduler="volcano"),
    Example("volcano", ("volcano:docs/user-guide/how_to_use_volcano_vgpu.md#spread",),
            one(vgpu(number=1, memory=3000)),
            "volcano.sh/vgpu-podgroup-policy: spread is not kept; write gemini.io/gpu-policy: spread",
            {"volcano.sh/vgpu-podgroup-policy": "spread"}, scheduler="volcano"),
    Example("volcano", ("vgpu:examples/gpu-share.yml", "devices:example/gpu-share.yml", "devices:README.md#1",
                        "volcano:docs/user-guide/how_to_use_gpu_sharing.md",
                        "volcano-site:docs/UserGuide/user_guide_how_to_use_gpu_sharing.md",
                        "devices:pod1.yml@6dfb21b7"),
            (({"volcano.sh/gpu-memory": 1024},), ({"volcano.sh/gpu-memory": 1024},)),
            "volcano.sh/gpu-memory: 1024 is not kept; write volcano.sh/vgpu-memory", scheduler="volcano"),
    Example("volcano", ("volcano:docs/user-guide/how_to_use_gpu_number.md", "devices:README.md#2",
                        "volcano-site:docs/UserGuide/user_guide_how_to_use_gpu_number.md"),
            one({"volcano.sh/gpu-number": 1}), "volcano.sh/gpu-number: 1 is not kept; write volcano.sh/vgpu-number"),
    # ---- KAI
    Example("kai", ("kai:docs/gpu-sharing/gpu-sharing.yaml",), one({}), (share(50),), {"gpu-fraction": "0.5"},
            scheduler="kai-scheduler"),
    Example("kai", ("kai:docs/gpu-sharing/gpu-memory.yaml",), one({}), (share(0, "2000Mi"),), {"gpu-memory": "2000"},
            scheduler="kai-scheduler"),
    Example("kai", ("hami-site:docs/userguide/kai-scheduler/how-to-use-kai-scheduler.md",), one({}),
            (share(0, "4096Mi"),), {"gpu-memory": "4096"}, scheduler="kai-scheduler"),
    Example("kai", ("kai:docs/gpu-sharing/gpu-sharing-init-container.yaml",), (({}, {}),),
            ({"gpu-request.c0": "50%"},), {"gpu-fraction": "0.5", "gpu-fraction-container-name": "c0"},
            scheduler="kai-scheduler", first="initContainers"),
    Example("kai", ("kai:docs/gpu-sharing/gpu-sharing-non-default-container.yaml",), (({}, {}, {}),),
            ({"gpu-request.c1": "50%"},), {"gpu-fraction": "0.5", "gpu-fraction-container-name": "c1"},
            scheduler="kai-scheduler"),
    Example("kai", ("kai:docs/gpu-sharing/mps/gpu-sharing-with-mps.yaml",), one({}), (share(50),),
            {"gpu-fraction": "0.5"}, scheduler="kai-scheduler", mounts="/tmp/nvidia-mps"),
]  # fmt: skip
