"""What ONNX Runtime's CUDA provider does, one case after another; each prints a line."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from cases import case, main
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, TOKENS, LAYERS = 256, 4, 64, 2


def open_runtime() -> Any:
    """ONNX Runtime, with the libraries of NVIDIA's wheels that it is linked against and does not look for there."""
    for folder in map(Path, sys.path):
        for library in sorted(folder.glob("nvidia/*/lib/libcurand.so.*")):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


ort = open_runtime()


class Graph:
    """Nodes and weights of a model, as they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(1)

    def weight(self, value: np.ndarray[Any, Any]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        grown = self.random.standard_normal((rows, columns), dtype=np.float32)
        return self.node("MatMul", x, self.weight(grown))

    def node(self, kind: str, *inputs: str, **said: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **said))
        return name

    def bytes(self, output: str, shape: Iterable[int]) -> bytes:
        places = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        results = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "program", places, results, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        return bytes(model.SerializeToString())


def transformer() -> bytes:
    graph = Graph()
    one, none = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    x = "x"
    for _ in range(LAYERS):
        normal = graph.node("LayerNormalization", x, graph.weight(one), graph.weight(none), axis=-1)
        split = graph.weight(np.array([0, TOKENS, HEADS, WIDTH // HEADS], np.int64))
        heads = [graph.node("Reshape", graph.linear(normal, WIDTH, WIDTH), split) for _ in range(3)]
        q, v = (graph.node("Transpose", heads[i], perm=[0, 2, 1, 3]) for i in (0, 2))
        k = graph.node("Transpose", heads[1], perm=[0, 2, 3, 1])
        seen = graph.node("MatMul", graph.node("Softmax", graph.node("MatMul", q, k), axis=-1), v)
        joined = graph.node("Transpose", seen, perm=[0, 2, 1, 3])
        joined = graph.node("Reshape", joined, graph.weight(np.array([0, TOKENS, WIDTH], np.int64)))
        x = graph.node("Add", x, graph.linear(joined, WIDTH, WIDTH))
        wide = graph.node("Relu", graph.linear(x, WIDTH, 4 * WIDTH))
        x = graph.node("Add", x, graph.linear(wide, 4 * WIDTH, WIDTH))
    return graph.bytes(x, [4, TOKENS, WIDTH])


def session(model: bytes, **settings: str) -> Any:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(model, options, providers=[("CUDAExecutionProvider", settings)])


@case
def a_transformer() -> object:
    opened = session(transformer())
    (out,) = opened.run(None, {"x": np.ones((4, TOKENS, WIDTH), np.float32)})
    return opened.get_providers()[0], out.shape


@case
def bytes_go_there_and_back() -> object:
    sent = np.arange(1 << 20, dtype=np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(sent, "cuda", 0)
    return value.device_name(), bool((value.numpy() == sent).all())


@case
def a_graph_by_bound_inputs() -> object:
    opened = session(transformer(), enable_cuda_graph="1")
    given = ort.OrtValue.ortvalue_from_numpy(np.ones((4, TOKENS, WIDTH), np.float32), "cuda", 0)
    got = ort.OrtValue.ortvalue_from_numpy(np.zeros((4, TOKENS, WIDTH), np.float32), "cuda", 0)
    bound = opened.io_binding()
    bound.bind_ortvalue_input("x", given)
    bound.bind_ortvalue_output(opened.get_outputs()[0].name, got)
    for _ in range(4):  # two for its allocator, one that is captured, and a replay
        opened.run_with_iobinding(bound)
    return got.numpy().shape


@case
def its_own_limit() -> object:
    graph = Graph()
    large = graph.node("Expand", "x", graph.weight(np.array([256 << 20], np.int64)))
    opened = session(graph.bytes(large, [1]), gpu_mem_limit=str(64 << 20))
    try:
        opened.run(None, {"x": np.ones(1, np.float32)})
    except Exception as error:
        return type(error).__name__, "Available memory" in str(error)
    return "it ran"


@case
def out_of_memory_and_after() -> object:
    held = []
    try:
        while True:
            held.append(ort.OrtValue.ortvalue_from_shape_and_type([256 << 20], np.uint8, "cuda", 0))
    except Exception as error:
        said = type(error).__name__
    held.clear()
    return said, bytes_go_there_and_back()


if __name__ == "__main__":
    sys.exit(main())
