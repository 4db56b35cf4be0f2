"""GPUs by index and UUID."""

import pynvml
import pytest

from scheduler_backend import devices
from scheduler_backend.problem import Problem
from tests.scheduler_backend.serve import GPUS


def test_a_uuid_is_sixteen_bytes_as_they_are_written():
    raw = devices.uuid_bytes("GPU-8d2c1f00-0102-0304-0506-0708090a0b0c")
    assert raw == bytes.fromhex("8d2c1f000102030405060708090a0b0c")
    with pytest.raises(Problem, match="no GPU UUID"):
        devices.uuid_bytes("GPU-xyz")


def test_processes_that_come_while_nvml_is_asked_hide_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """pynvml asks for the number first, and raises where the list has grown since."""
    answers = [pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE), [pynvml.c_nvmlProcessInfo_v2_t(pid=7)]]

    def ask(_handle: object) -> list[object]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", ask)
    assert devices.running(GPUS[0]) == [7]


@pytest.mark.parametrize("wanted", [1, "1", GPUS[1].uuid, GPUS[1].uuid.lower()])
def test_a_gpu_is_found_by_index_or_uuid(wanted: object):
    assert devices.find(GPUS, wanted) == 1


@pytest.mark.parametrize("wanted", [2, -1, "7", "7" * 60_000, "GPU-nowhere", None, True, 0.5])
def test_what_is_not_there_is_named(wanted: object):
    with pytest.raises(Problem, match="does not exist here; there is 0") as refused:
        devices.find(GPUS, wanted)
    assert len(str(refused.value)) < 300
