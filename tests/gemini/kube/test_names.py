"""Names are said once, and are what contracts with users and other programs say."""

from __future__ import annotations

from gemini.kube import names


def constants() -> dict[str, str]:
    return {key: value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}


def test_no_name_is_said_twice() -> None:
    said = constants()
    same = {names.GPU_MODEL: 2, names.GPU_MEMORY: 2, names.GPU_MEMORY_RATIO: 2}  # an annotation and a label or resource
    same[names.DOMAIN] = 2  # the name of our driver of claims too
    same[names.RESOURCE_PLACED] = 2  # a label of namespaces too
    same[names.NODE_LABEL] = 2  # a label of nodes and a resource
    assert {v: list(said.values()).count(v) for v in said.values() if list(said.values()).count(v) > 1} == same


def test_names_that_others_rely_on() -> None:
    assert names.ALLOCATION == "gemini.io/allocation"
    assert names.RESOURCE_CORE == "gemini.io/gpu-core"
    assert names.ALIYUN_INDEX == "ALIYUN_COM_GPU_MEM_IDX"
    assert names.DEVICE_API_VERSION == "gemini.io/v1alpha1"
    assert set(names.ANNOTATION_KEYS) >= {
        f"gemini.io/{k}" for k in ("gpu-request", "joint", "cpu-bind", "pod-group-size")
    }
