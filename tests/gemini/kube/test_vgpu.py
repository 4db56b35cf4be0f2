"""HAMi's, Volcano's and KAI's languages: what they mean in ours, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gemini.kube.pod import parse_pod
from gemini.kube.spelling import InvalidPod
from gemini.kube.vgpu import VGPU_SPELLINGS, translated
from gemini.placement.model import Want
from tests.gemini.webhook.test_review import box

MIB = 2**20


def made(*containers: dict[str, Any], **annotations: str) -> dict[str, Any]:
    named = {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
    return {"metadata": {"name": "p", "annotations": named}, "spec": {"containers": list(containers)}}


def hami(name: str = "a", **amounts: Any) -> dict[str, Any]:
    return box(name, **{f"nvidia.com/{key.replace('_', '-')}": value for key, value in amounts.items()})


def volcano(name: str = "a", **amounts: Any) -> dict[str, Any]:
    return box(name, **{f"volcano.sh/{key.replace('_', '-')}": value for key, value in amounts.items()})


WHOLE = Want(core=100, ratio=100, follows=True)
MEANT: list[tuple[dict[str, Any], Want, int]] = [
    (made(hami(gpu=1, gpumem=3000)), Want(core=0, memory=3000 * MIB), 100),
    (made(hami(gpu=1, gpumem=3000, gpucores=30)), Want(core=30, memory=3000 * MIB), 30),
    (made(hami(gpu=2, gpumem="3000", gpucores="30")), Want(count=2, core=30, memory=3000 * MIB), 30),
    (made(hami(gpumem=3000)), Want(core=0, memory=3000 * MIB), 100),
    (made(hami(gpu=1, gpumem_percentage=50)), Want(core=0, ratio=50), 100),
    (made(hami(gpu=1, gpucores=40)), Want(core=40, ratio=100), 40),
    (made(hami(gpu=1, gpucores=100)), WHOLE, 100),
    (made(hami(gpu=2, gpumem_percentage=100)), Want(count=2, core=100, ratio=100, follows=True), 100),
    (made(volcano(vgpu_number=1, vgpu_memory=3000, vgpu_cores=50)), Want(core=50, memory=3000 * MIB), 50),
    (made(volcano(vgpu_number=2, vgpu_memory_percentage=25)), Want(count=2, core=0, ratio=25), 100),
    (made(volcano(vgpu_number=1)), WHOLE, 100),
    (made({"name": "a"}, gpu_fraction="0.5"), Want(core=50, ratio=50, follows=True), 100),
    (made({"name": "a"}, gpu_memory="2000"), Want(core=0, memory=2000 * MIB), 100),
    (made({"name": "a"}, gpu_fraction="0.25", gpu_fraction_num_devices="2"),
     Want(count=2, core=25, ratio=25, follows=True), 100),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "want", "limit"), MEANT)
def test_the_meaning_is_kept(pod: dict[str, Any], want: Want, limit: int) -> None:
    spec = parse_pod(translated(pod, VGPU_SPELLINGS))
    (tenant,) = spec.ask.tenants
    assert (tenant.containers, tenant.wants, spec.shares[0].limit) == (("a",), (want,), limit)
    again = translated(translated(pod, VGPU_SPELLINGS), VGPU_SPELLINGS)
    assert parse_pod(again).ask == spec.ask


def test_what_is_not_heard_stays_as_it_is() -> None:
    for pod, _, _ in MEANT:
        assert translated(pod, ()) is pod


def test_nvidias_own_pods_are_nobody_elses() -> None:
    pod = made(hami(gpu=1))
    assert translated(pod, VGPU_SPELLINGS) is pod


def test_which_cards_hami_says_by_annotations() -> None:
    said = {
        "nvidia.com/use-gpuuuid": "GPU-1, GPU-2", "nvidia.com/nouse-gpuuuid": "GPU-3", "nvidia.com/numa-bind": "true",
        "hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "topology-aware",
        "nvidia.com/vgpu-mode": "hami-core",
    }  # fmt: skip
    ask = parse_pod(translated(made(hami(gpu=1, gpumem=10), **said), VGPU_SPELLINGS)).ask
    (want,) = ask.tenants[0].wants
    assert (want.uuids, want.excluded, want.scope) == ({"GPU-1", "GPU-2"}, {"GPU-3"}, "numa")
    assert ask.policies == ("node-spread", "best-link")


def test_which_cards_volcano_says_by_its_own_annotations() -> None:
    said = {"volcano.sh/vgpu-use-gpuuuid": "GPU-1, GPU-2", "volcano.sh/vgpu-nouse-gpuuuid": "GPU-3"}
    (want,) = parse_pod(translated(made(volcano(vgpu_number=1), **said), VGPU_SPELLINGS)).ask.tenants[0].wants
    assert (want.uuids, want.excluded) == ({"GPU-1", "GPU-2"}, {"GPU-3"})
    (want,) = parse_pod(translated(made(hami(gpumem=1), **said), VGPU_SPELLINGS)).ask.tenants[0].wants
    assert (want.uuids, want.excluded) == (frozenset(), frozenset()), "HAMi reads no key of Volcano's"


def test_kais_fraction_is_of_the_container_that_is_named_else_of_the_first() -> None:
    boxes = ({"name": "a"}, {"name": "b"})
    named = parse_pod(translated(made(*boxes, gpu_fraction="0.5", gpu_fraction_container_name="b"), VGPU_SPELLINGS))
    assert named.ask.tenants[0].containers == ("b",)
    first = parse_pod(translated(made(*boxes, gpu_fraction="0.5"), VGPU_SPELLINGS))
    assert first.ask.tenants[0].containers == ("a",)


def test_hamis_own_word_for_no_limit_is_kept() -> None:
    free = {**hami(gpu=1, gpumem=10, gpucores=30), "env": [{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "disable"}]}
    assert parse_pod(translated(made(free), VGPU_SPELLINGS)).shares[0].limit == 100


REFUSED: list[tuple[dict[str, Any], str]] = [
    (made(hami(gpu=1, gpumem=10, priority=1)), "nvidia.com/priority: 1 is not kept; write gemini.io/gpu-class"),
    (made(hami(gpu=1, gpumem=10, priority=0)), "nvidia.com/priority: 0 is not kept; write gemini.io/gpu-class"),
    (made(hami(gpu=1, gpumem=10, gpucores=120)), "nvidia.com/gpucores: 120 is above 100 percent"),
    (made(hami(gpu=1, gpumem=10, gpumem_percentage=5)), "nvidia.com/gpumem-percentage: 5 beside nvidia.com/gpumem 10;"),
    (made(hami(gpu=1, gpumem="much")), "nvidia.com/gpumem: much "),
    (made(hami(gpu=1, gpumem=10), **{"nvidia.com/use-gputype": "A100"}), "nvidia.com/use-gputype: A100 is looked for"),
    (made(hami(gpu=1, gpumem=10), **{"nvidia.com/use-gpuindexes": "0"}), "nvidia.com/use-gpuindexes: 0 chooses cards"),
    (made(hami(gpu=1), **{"nvidia.com/use-gpuindexes": "0,2"}), "nvidia.com/use-gpuindexes: 0,2 chooses cards in a"),
    (made(volcano(vgpu_number=1), **{"nvidia.com/nouse-x": "0"}), "nvidia.com/nouse-x: 0 chooses cards in a way"),
    (made(hami(gpu=1, gpumem=10), **{"nvidia.com/vgpu-mode": "mig"}), "nvidia.com/vgpu-mode: mig is no way"),
    (made(hami(gpu=1, gpumem=10), **{"hami.io/node-scheduler-policy": "x"}), "hami.io/node-scheduler-policy: x is not"),
    (made(hami(gpu=1, gpumem=10), **{"hami.io/vulkan": "true"}), "hami.io/vulkan: true is not kept; only CUDA"),
    (made(volcano(vgpu_number=1), **{"volcano.sh/vgpu-podgroup-policy": "spread"}), "volcano.sh/vgpu-podgroup-policy"),
    (
        made(volcano(vgpu_number=1), **{"volcano.sh/vgpu-use-gpuuuid": "a", "nvidia.com/use-gpuuuid": "b"}),
        "volcano.sh/vgpu-use-gpuuuid: a is said otherwise in HAMi's key; keep one",
    ),
    (made(volcano(gpu_number=1)), "volcano.sh/gpu-number: 1 is not kept; write volcano.sh/vgpu-number"),
    (made({"name": "a"}, gpu_fraction="1.5"), "gpu-fraction: 1.5 is above 1"),
    (made({"name": "a"}, gpu_fraction="0.333"), "gpu-fraction: 0.333 is finer than one percent of a card; write 33%"),
    (made({"name": "a"}, gpu_fraction="0"), "gpu-fraction: 0 is not between 0 and 1"),
    (made({"name": "a"}, gpu_fraction="0.5", gpu_memory="10"), "gpu-memory: 10 beside gpu-fraction 0.5; keep one"),
    (made(hami(gpu=1), gpu_fraction="0.5"), "gpu-fraction: 0.5 beside nvidia.com/gpu of container a; keep one"),
    (made({"name": "a"}, gpu_fraction="0.5", gpu_fraction_container_name="z"), "gpu-fraction-container-name: the pod"),
    (made({"name": "a"}, gpu_fraction="0.5", mps="true"), "mps: true is not kept; time is shared by Gemini"),
    (made(hami(gpu=1, gpumem=10), volcano("b", vgpu_number=1)), "volcano.sh/vgpu-number: the share is said in HAMi's"),
    (
        made(hami(gpu=1, gpumem=10), **{"gemini.io/gpu-request": "0.5"}),
        "nvidia.com/gpumem: the share is said in gemini",
    ),
]


@pytest.mark.parametrize(("pod", "problem"), REFUSED)
def test_what_cannot_be_kept_is_refused_with_value_and_mend(pod: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidPod) as caught:
        translated(pod, VGPU_SPELLINGS)
    assert str(caught.value).startswith(problem)
    assert ";" in str(caught.value)
    assert "\n" not in str(caught.value)
