"""Graphs made by hand: nodes, their parameters, executable graphs and their updates."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p, cast

from tests.libhook.sim.conftest import Machine
from tests.libhook.sim.cuda import MS, Cuda

KERNEL, MEMCPY, MEMSET, HOST, EMPTY = 0, 1, 2, 3, 5
TOPOLOGY_CHANGED = 2


class KernelParams(Structure):
    _fields_ = [
        ("function", c_void_p),
        ("shape", c_uint * 7),
        ("params", POINTER(c_void_p)),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("ctx", c_void_p),
    ]


class HostParams(Structure):
    _fields_ = [("function", c_void_p), ("data", c_void_p)]


class SetParams(Structure):
    _fields_ = [
        ("target", c_uint64),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    ]


def spin_params(cuda: Cuda, ns: int) -> tuple[KernelParams, object]:
    argument = c_uint64(ns)
    pointers = (c_void_p * 1)(ctypes.addressof(argument))
    params = KernelParams(cuda.spin_function, (1, 1, 1, 1, 1, 1, 0), cast(pointers, POINTER(c_void_p)))
    return params, (argument, pointers)


def new_graph(cuda: Cuda) -> c_void_p:
    graph = c_void_p()
    cuda.cuGraphCreate(byref(graph), 0)
    return graph


def add_spin(cuda: Cuda, graph: c_void_p, ns: int, *needs: c_void_p) -> c_void_p:
    node, (params, alive) = c_void_p(), spin_params(cuda, ns)
    array = (c_void_p * max(len(needs), 1))(*(n.value for n in needs))
    cuda.cuGraphAddKernelNode_v2(byref(node), graph, array, c_size_t(len(needs)), byref(params))
    del alive
    return node


def instantiate(cuda: Cuda, graph: c_void_p) -> c_void_p:
    made = c_void_p()
    cuda.cuGraphInstantiateWithFlags(byref(made), graph, c_uint64(0))
    return made


def run(cuda: Cuda, executable: c_void_p) -> None:
    cuda.cuGraphLaunch(executable, None)
    cuda.cuStreamSynchronize(None)


def busy(machine: Machine, pid: int) -> int:
    return machine.timeline.busy()[1][pid]


def test_a_graph_made_by_hand_runs_all_of_its_nodes(machine: Machine) -> None:
    def work() -> tuple[bytes, int, int]:
        cuda = Cuda()
        graph, pointer, calls = new_graph(cuda), cuda.malloc(16), []
        first = add_spin(cuda, graph, MS)
        second = add_spin(cuda, graph, 2 * MS, first)
        callback = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: calls.append(data))
        host = HostParams(cast(callback, c_void_p), c_void_p(7))
        memset, last = c_void_p(), c_void_p()
        cuda.cuGraphAddMemsetNode(
            byref(memset), graph, None, c_size_t(0), byref(SetParams(pointer, 0, 0x58, 1, 16, 1)), cuda.ctx
        )
        needs = (c_void_p * 2)(second.value, memset.value)
        cuda.cuGraphAddHostNode(byref(last), graph, needs, c_size_t(2), byref(host))
        run(cuda, instantiate(cuda, graph))
        out = ctypes.create_string_buffer(16)
        cuda.cuMemcpyDtoH_v2(out, c_uint64(pointer), c_size_t(16))
        count = c_size_t()
        cuda.cuGraphGetRootNodes(graph, None, byref(count))
        return out.raw, len(calls), count.value

    child = machine.start(work)
    assert child.value() == (b"X" * 16, 1, 2)
    assert busy(machine, child.pid) > 3 * MS


def test_arguments_are_copied_when_the_node_is_made(machine: Machine) -> None:
    def work() -> None:
        cuda = Cuda()
        graph = new_graph(cuda)
        node, (params, (argument, _)) = c_void_p(), spin_params(cuda, 3 * MS)
        cuda.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), byref(params))
        argument.value = 500 * MS
        run(cuda, instantiate(cuda, graph))

    child = machine.start(work)
    child.value()
    assert busy(machine, child.pid) == 3 * MS


def test_nodes_of_an_executable_graph_can_be_changed_and_disabled(machine: Machine) -> None:
    def work() -> None:
        cuda = Cuda()
        graph = new_graph(cuda)
        first, second = add_spin(cuda, graph, MS), add_spin(cuda, graph, MS)
        executable, (params, alive) = instantiate(cuda, graph), spin_params(cuda, 5 * MS)
        cuda.cuGraphExecKernelNodeSetParams_v2(executable, first, byref(params))
        run(cuda, executable)  # 5 + 1
        cuda.cuGraphNodeSetEnabled(executable, second, 0)
        run(cuda, executable)  # 5
        del alive

    child = machine.start(work)
    child.value()
    assert busy(machine, child.pid) == 11 * MS


def test_an_update_takes_over_a_graph_of_the_same_shape_only(machine: Machine) -> None:
    def work() -> tuple[int, int, int]:
        cuda = Cuda()
        graph, same, other = new_graph(cuda), new_graph(cuda), new_graph(cuda)
        add_spin(cuda, graph, MS)
        add_spin(cuda, same, 4 * MS)
        add_spin(cuda, other, MS, add_spin(cuda, other, MS))
        executable, node, result = instantiate(cuda, graph), c_void_p(), c_int()
        good = cuda.code("cuGraphExecUpdate", executable, same, byref(node), byref(result))
        run(cuda, executable)
        bad = cuda.code("cuGraphExecUpdate", executable, other, byref(node), byref(result))
        return good, bad, result.value

    child = machine.start(work)
    assert child.value() == (0, 910, TOPOLOGY_CHANGED)
    assert busy(machine, child.pid) == 4 * MS


def test_a_child_graph_and_a_clone_are_copies(machine: Machine) -> None:
    def work() -> tuple[int, int]:
        cuda = Cuda()
        inner, outer, node, clone = new_graph(cuda), new_graph(cuda), c_void_p(), c_void_p()
        original = add_spin(cuda, inner, MS)
        cuda.cuGraphAddChildGraphNode(byref(node), outer, None, c_size_t(0), inner)
        cuda.cuGraphClone(byref(clone), inner)
        add_spin(cuda, inner, 100 * MS)
        found, kind = c_void_p(), c_int()
        cuda.cuGraphNodeFindInClone(byref(found), original, clone)
        cuda.cuGraphNodeGetType(found, byref(kind))
        cuda.cuGraphDestroy(inner)
        run(cuda, instantiate(cuda, outer))
        run(cuda, instantiate(cuda, clone))
        return kind.value, cuda.code("cuGraphDestroy", inner)

    child = machine.start(work)
    assert child.value() == (KERNEL, 1)
    assert busy(machine, child.pid) == 2 * MS


def test_a_cycle_cannot_be_instantiated(machine: Machine) -> None:
    def work() -> int:
        cuda = Cuda()
        graph = new_graph(cuda)
        first = add_spin(cuda, graph, MS)
        second = add_spin(cuda, graph, MS, first)
        cuda.cuGraphAddDependencies(graph, byref(second), byref(first), c_size_t(1))
        return cuda.code("cuGraphInstantiateWithFlags", byref(c_void_p()), graph, c_uint64(0))

    assert machine.run(work) == 1
