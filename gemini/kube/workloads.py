"""Where the objects of Kubernetes, and of its common job controllers, describe the pods that they make. Pure.

By the controllers' own definitions: JobSet 0.11, LeaderWorkerSet 0.8, KubeRay 1.6, Kubeflow's training operator 1.9 and
trainer 2; batch/v1 and apps/v1. Kinds are told apart by their API group, for there are several of the name Job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Path = tuple[str, ...]  # keys; EACH: of a list or of a map
EACH = "*"
_TEMPLATE: Path = ("spec", "template")
_REPLICATED: Path = ("spec", "replicatedJobs", EACH, "template", *_TEMPLATE)


def _ray(*below: str) -> tuple[Path, ...]:
    return (*below, "headGroupSpec", "template"), (*below, "workerGroupSpecs", EACH, "template")


_RAY_JOB = ("spec", "rayClusterSpec")
_RAY_CRON = ("spec", "jobTemplate")
TEMPLATES: Mapping[tuple[str, str], tuple[Path, ...]] = {  # API group, kind
    ("", "Pod"): ((),),
    ("", "ReplicationController"): (_TEMPLATE,),
    **{("apps", kind): (_TEMPLATE,) for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")},
    ("batch", "Job"): (_TEMPLATE,),
    ("batch", "CronJob"): (("spec", "jobTemplate", *_TEMPLATE),),
    ("jobset.x-k8s.io", "JobSet"): (_REPLICATED,),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"), ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
    ("ray.io", "RayCluster"): _ray("spec"),
    ("ray.io", "RayService"): _ray("spec", "rayClusterConfig"),
    ("ray.io", "RayJob"): (*_ray(*_RAY_JOB), ("spec", "submitterPodTemplate")),
    ("ray.io", "RayCronJob"): (*_ray(*_RAY_CRON, "rayClusterSpec"), (*_RAY_CRON, "submitterPodTemplate")),
    **{
        ("kubeflow.org", f"{name}Job"): (("spec", f"{name.lower()}ReplicaSpecs", EACH, "template"),)
        for name in ("PyTorch", "MPI", "TF", "Paddle", "JAX")
    },
    ("kubeflow.org", "XGBoostJob"): (("spec", "xgbReplicaSpecs", EACH, "template"),),
    ("trainer.kubeflow.org", "TrainingRuntime"): (("spec", "template", *_REPLICATED),),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): (("spec", "template", *_REPLICATED),),
}  # fmt: skip


def kind_of(given: Mapping[str, Any]) -> tuple[str, str]:
    """API group and kind; the kinds of v1 have no group."""
    return str(given.get("apiVersion")).rpartition("/")[0], str(given.get("kind"))


def with_pods(given: Any, path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The object with what is at `path` of it changed; the same object where nothing there is."""
    if not path:
        return change(given) if isinstance(given, dict) else given
    key, below = path[0], path[1:]
    if key == EACH and isinstance(given, list):
        items = [with_pods(one, below, change) for one in given]
        return items if any(new is not old for new, old in zip(items, given, strict=True)) else given
    if not isinstance(given, dict):
        return given
    fresh = {
        name: with_pods(given[name], below, change) for name in (given if key == EACH else (key,)) if name in given
    }
    return {**given, **fresh} if any(fresh[name] is not given[name] for name in fresh) else given
