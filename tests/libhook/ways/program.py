"""A program that uses CUDA in many ways, run under the library by test_ways.py: `program.py SCENARIO [ARGUMENT]...`.

It needs nothing but the interpreter. Each scenario prints one JSON value per line; `listen()` waits for a line of its
parent, so that the two are in step without sleeping.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry gemini_spin(.param .u64 nanoseconds) { ret; }
"""
MIB = 1 << 20
MS = 1_000_000
PER_THREAD_FLAG = 2
GLOBAL_CAPTURE = 0
RELAXED_CAPTURE = 2
NON_BLOCKING = 1


def tell(value):
    print(json.dumps(value), flush=True)


def listen():
    return sys.stdin.readline().strip()


def until_told():
    """An event that is set when a line comes."""
    told = threading.Event()
    threading.Thread(target=lambda: (listen(), told.set()), daemon=True).start()
    return told


class Driver:
    """libcuda by one of three ways: a name looked up by dlsym, or by cuGetProcAddress with either default stream."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        function = getattr(self.lib, name)

        def must(*arguments):
            code = function(*arguments)
            assert code == 0, (name, code)

        return must

    def code(self, name, *arguments):
        return getattr(self.lib, name)(*arguments)

    def proc(self, name, version=13000, flags=0):
        address, status = c_void_p(), c_int()
        code = self.lib.cuGetProcAddress_v2(name.encode(), byref(address), version, c_uint64(flags), byref(status))
        assert (code, status.value) == (0, 0), (name, code, status.value)
        return ctypes.CFUNCTYPE(c_int)(address.value)

    def begin(self, device=0):
        self.cuInit(0)
        self.context = c_void_p()
        self.cuDevicePrimaryCtxRetain(byref(self.context), device)
        self.cuCtxSetCurrent(self.context)
        module, self.spin_function = c_void_p(), c_void_p()
        self.cuModuleLoadData(byref(module), PTX)
        self.cuModuleGetFunction(byref(self.spin_function), module, b"gemini_spin")
        return self

    def stream(self, flags=NON_BLOCKING):
        made = c_void_p()
        self.cuStreamCreate(byref(made), flags)
        return made

    def spin(self, ns, stream=None, launch=None):
        length = c_uint64(ns)
        parameters = (c_void_p * 1)(ctypes.addressof(length))
        one = launch or self.lib.cuLaunchKernel
        code = one(self.spin_function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)
        assert code == 0, code

    def spin_ex(self, ns, launch):
        length = c_uint64(ns)
        parameters = (c_void_p * 1)(ctypes.addressof(length))
        config = (c_uint32 * 14)(1, 1, 1, 1, 1, 1)  # grid, block, shared memory, stream, attributes and their number
        code = launch(config, self.spin_function, parameters, None)
        assert code == 0, code

    def graph_of_spin(self, ns):
        stream, graph, executable = self.stream(), c_void_p(), c_void_p()
        self.cuStreamBeginCapture_v2(stream, GLOBAL_CAPTURE)
        self.spin(ns, stream)
        self.cuStreamEndCapture(stream, byref(graph))
        self.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
        return executable


def launches(cuda):
    """Way 1: a launch by every route at once; none may be on the card before the token is there."""
    cuda.begin()
    memory = c_uint64()
    cuda.cuMemAlloc_v2(byref(memory), c_size_t(MIB))
    graph, other_graph = cuda.graph_of_spin(MS), cuda.graph_of_spin(MS)
    lib, proc = cuda.lib, cuda.proc

    def kernel(launch):
        return lambda: cuda.spin(MS, None, launch)

    def cooperative(launch):
        def call():
            length = c_uint64(MS)
            parameters = (c_void_p * 1)(ctypes.addressof(length))
            assert launch(cuda.spin_function, 1, 1, 1, 1, 1, 1, 0, None, parameters) == 0

        return call

    def ex(launch):
        return lambda: cuda.spin_ex(MS, launch)

    def graphs(launch, executable):
        def call():
            assert launch(executable, cuda.stream()) == 0

        return call

    def memset(launch, *stream):
        def call():
            assert launch(c_uint64(memory.value), 1, c_size_t(MIB), *stream) == 0

        return call

    routes = {
        "cuLaunchKernel": kernel(lib.cuLaunchKernel),
        "cuLaunchKernel by its address": kernel(proc("cuLaunchKernel")),
        "cuLaunchKernel_ptsz": kernel(lib.cuLaunchKernel_ptsz),
        "cuLaunchKernel_ptsz by its address": kernel(proc("cuLaunchKernel", flags=PER_THREAD_FLAG)),
        "cuLaunchKernelEx": ex(lib.cuLaunchKernelEx),
        "cuLaunchKernelEx by its address": ex(proc("cuLaunchKernelEx")),
        "cuLaunchKernelEx_ptsz": ex(proc("cuLaunchKernelEx", flags=PER_THREAD_FLAG)),
        "cuLaunchCooperativeKernel": cooperative(lib.cuLaunchCooperativeKernel),
        "cuLaunchCooperativeKernel_ptsz": cooperative(proc("cuLaunchCooperativeKernel", flags=PER_THREAD_FLAG)),
        "cuGraphLaunch": graphs(lib.cuGraphLaunch, graph),
        "cuGraphLaunch_ptsz": graphs(proc("cuGraphLaunch", flags=PER_THREAD_FLAG), other_graph),
        "cuMemsetD8Async": memset(lib.cuMemsetD8Async, None),
        "cuMemsetD8_ptds": memset(proc("cuMemsetD8", flags=PER_THREAD_FLAG)),
    }
    begun, ended = [], []

    def go(name, call):
        cuda.cuCtxSetCurrent(cuda.context)
        begun.append(name)
        call()
        ended.append(name)

    threads = [threading.Thread(target=go, args=route, daemon=True) for route in routes.items()]
    for thread in threads:
        thread.start()
    while len(begun) < len(routes):
        time.sleep(0.001)
    time.sleep(0.15)
    tell(sorted(ended))
    listen()
    for thread in threads:
        thread.join()
    cuda.cuCtxSynchronize()
    tell(len(ended))


def allocations(cuda, size):
    """Ways 1 and 14: memory by every family of calls; the codes they answer."""
    size = int(size)
    cuda.begin()
    lib, proc = cuda.lib, cuda.proc
    out, pitch, pool = c_uint64(), c_size_t(), c_void_p()
    properties = (c_uint32 * 64)(1, 0, 1, 0)  # allocation type, handle types, location: a device, number 0
    cuda.cuMemPoolCreate(byref(pool), properties)
    flat = (c_uint64 * 4)(1024, size // 4096, 0x20 | 1 << 32)  # width, height, float, one channel
    deep = (c_uint64 * 5)(512, size // 32768, 16, 0x20 | 1 << 32)
    mipmap = (c_uint64 * 5)(1024, size // 4096, 0, 0x20 | 1 << 32)
    whole, rows = c_size_t(size), c_size_t(size // 4096)
    by_flag = {flag: proc("cuMemAllocAsync", flags=flag) for flag in (0, PER_THREAD_FLAG)}
    codes = {
        "cuMemAlloc": lib.cuMemAlloc_v2(byref(out), whole),
        "cuMemAlloc by its address": proc("cuMemAlloc")(byref(out), whole),
        "cuMemAllocPitch": lib.cuMemAllocPitch_v2(byref(out), byref(pitch), c_size_t(4096), rows, 4),
        "cuMemAllocManaged": lib.cuMemAllocManaged(byref(out), whole, 1),
        "cuMemAllocAsync": lib.cuMemAllocAsync(byref(out), whole, None),
        "cuMemAllocAsync by its address": by_flag[0](byref(out), whole, None),
        "cuMemAllocAsync_ptsz": by_flag[PER_THREAD_FLAG](byref(out), whole, None),
        "cuMemAllocFromPoolAsync": lib.cuMemAllocFromPoolAsync(byref(out), whole, pool, None),
        "cuMemCreate": lib.cuMemCreate(byref(out), whole, properties, c_uint64(0)),
        "cuArrayCreate": lib.cuArrayCreate_v2(byref(out), flat),
        "cuArray3DCreate": lib.cuArray3DCreate_v2(byref(out), deep),
        "cuMipmappedArrayCreate": lib.cuMipmappedArrayCreate(byref(out), mipmap, 1),
    }
    tell(codes)
    listen()


def flavours(cuda):
    """Way 2: one name at many versions, and the default stream of either kind."""
    cuda.begin()
    found = {}
    for name, version, flags in [
        ("cuCtxCreate", 3020, 0),
        ("cuCtxCreate", 11039, 0),
        ("cuCtxCreate", 11040, 0),
        ("cuCtxCreate", 12049, 0),
        ("cuCtxCreate", 12050, 0),
        ("cuMemFreeAsync", 11020, 0),
        ("cuMemFreeAsync", 11020, PER_THREAD_FLAG),
        ("cuLaunchKernel", 13000, 0),
        ("cuLaunchKernel", 13000, PER_THREAD_FLAG),
    ]:
        address = ctypes.cast(cuda.proc(name, version, flags), c_void_p).value
        versions = [name, *(f"{name}{end}" for end in ("_v2", "_v3", "_v4", "_ptsz"))]
        same = [one for one in versions if hasattr(cuda.lib, one) and address_of(cuda, one) == address]
        found[f"{name} {version} {flags}"] = same
    tell(found)
    cuda.spin(MS, None, cuda.proc("cuLaunchKernel"))
    cuda.cuCtxSynchronize()
    cuda.spin(MS, None, cuda.proc("cuLaunchKernel", flags=PER_THREAD_FLAG))
    cuda.cuCtxSynchronize()
    tell("done")
    listen()


def address_of(cuda, name):
    return ctypes.cast(getattr(cuda.lib, name), c_void_p).value


def busy(cuda, ns, threads="1"):
    """Kernel after kernel, never waiting for one, until a line comes."""
    cuda.begin()
    told = until_told()
    ns = int(ns)

    def work():
        cuda.cuCtxSetCurrent(cuda.context)
        stream = cuda.stream()
        while not told.is_set():
            cuda.spin(ns, stream)

    others = [threading.Thread(target=work) for _ in range(int(threads) - 1)]
    for other in others:
        other.start()
    work()
    for other in others:
        other.join()
    tell("done")


def bursts(cuda, count, ns, gap_ms):
    """A burst, its end seen, a pause."""
    cuda.begin()
    for _ in range(int(count)):
        for _ in range(10):
            cuda.spin(int(ns) // 10)
        cuda.cuCtxSynchronize()
        time.sleep(int(gap_ms) / 1000)
    tell("done")


def quiet(cuda):
    """Way 4: a process that never comes to use CUDA; what it has become."""
    with open("/proc/self/maps") as maps:
        driver = "libcuda" in maps.read()
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    files = [os.readlink(path) for path in paths if os.path.islink(path)]  # not that of the list itself
    sockets = [name for name in files if name.startswith(("socket", "anon_inode"))]
    tell({"threads": len(os.listdir("/proc/self/task")), "sockets": sockets, "driver": driver})


def manners(cuda):
    """Way 6: what of a process may not change by our being there."""

    def mine():
        with open("/proc/self/status") as file:
            status = dict(line.split(":\t", 1) for line in file.read().splitlines())
        # The C library itself handles signals 32 and 33 in a process that has threads.
        signals = {name: int(status[name], 16) & 0x7FFFFFFF for name in ("SigBlk", "SigIgn", "SigCgt")}
        return {"umask": status["Umask"], **signals}

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    before = mine()
    cuda.begin()
    memory = c_uint64()
    cuda.cuMemAlloc_v2(byref(memory), c_size_t(MIB))
    cuda.spin(MS)
    cuda.cuCtxSynchronize()
    after = mine()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)  # any thread that does not block it takes it, and ends the process so
    tell({"before": before, "after": after, "pending": signal.SIGUSR1 in signal.sigpending()})
    listen()  # the daemon has talked nonsense and died meanwhile
    cuda.cuMemFree_v2(memory)
    tell("alive")


def starting(cuda):
    """Way 7: start-up. The card is looked at, nothing is made on it."""
    started = time.monotonic()
    cuda.cuInit(0)
    total, count = c_size_t(), c_int()
    cuda.cuDeviceGetCount(byref(count))
    cuda.cuDeviceTotalMem_v2(byref(total), 0)
    first = time.monotonic() - started
    tell([total.value, first])
    listen()


def steps(cuda):
    """Way 11: one short kernel for each line that comes."""
    cuda.begin()
    tell("ready")
    while listen():
        cuda.spin(MS)
        cuda.cuCtxSynchronize()
        tell("done")


def greedy(cuda, block):
    """Way 13: eight threads take memory until none is left, give it back, and free it wrongly, too."""
    cuda.begin()
    block = int(block)
    pooled = c_uint64()
    cuda.cuMemAllocAsync(byref(pooled), c_size_t(block), None)  # and with it some credit
    taken, refused = [[] for _ in range(8)], []

    def take(mine):
        cuda.cuCtxSetCurrent(cuda.context)
        pointer = c_uint64()
        while (code := cuda.code("cuMemAlloc_v2", byref(pointer), c_size_t(block))) == 0:
            mine.append(pointer.value)
        refused.append(code)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = [pointer for mine in taken for pointer in mine]
    tell({"blocks": len(held), "refused": sorted(set(refused))})
    listen()
    for pointer in held:
        cuda.cuMemFree_v2(c_uint64(pointer))
    wrong = [cuda.code("cuMemFree_v2", c_uint64(pointer)) for pointer in (held[0], held[0], 0, 0x1234)]
    cuda.cuMemHostAlloc(byref(pointer := c_void_p()), c_size_t(4096), 0)  # none of the device's, none of ours
    wrong.append(cuda.code("cuMemFreeHost", pointer))
    tell(wrong)
    listen()
    free, total = c_size_t(), c_size_t()
    cuda.cuMemGetInfo_v2(byref(free), byref(total))
    tell([free.value, total.value])
    listen()


def nothings(cuda, *names):
    """Way 14: every function with nothing but zeros; what it answers."""
    cuda.begin()
    codes = {}
    for name in names:
        if hasattr(cuda.lib, name):
            codes[name] = getattr(cuda.lib, name)(*[c_uint64(0)] * 12)
            cuda.code("cuCtxSetCurrent", cuda.context)
    tell(codes)


def two_cards(cuda):
    """Way 15: memory and work on CUDA's second card."""
    cuda.begin(1)
    memory = c_uint64()
    cuda.cuMemAlloc_v2(byref(memory), c_size_t(64 * MIB))
    cuda.spin(MS)
    cuda.cuCtxSynchronize()
    tell("done")
    listen()


def capture(cuda):
    """Way 16: a capture in global mode is open until a line comes, another thread launches as ever."""
    cuda.begin()
    told = until_told()
    answers = []

    def capturing():
        cuda.cuCtxSetCurrent(cuda.context)
        stream, graph = cuda.stream(), c_void_p()
        cuda.cuStreamBeginCapture_v2(stream, GLOBAL_CAPTURE)
        count = 0
        while not told.is_set():
            cuda.spin(1000, stream)
            count += 1
            time.sleep(0.001)
        answers.append(cuda.code("cuStreamEndCapture", stream, byref(graph)))
        nodes = c_size_t()
        answers.append(cuda.code("cuGraphGetNodes", graph, None, byref(nodes)))
        answers.append(nodes.value - count)

    stream = cuda.stream()
    thread = threading.Thread(target=capturing)
    thread.start()
    while not told.is_set():
        cuda.spin(100_000, stream)
    thread.join()
    tell(answers)


def capture_after_nvml(_):
    """Way 16: the same in a program that asks NVML for its memory before it loads CUDA."""
    nvml, card, figures = ctypes.CDLL("libnvidia-ml.so.1"), c_void_p(), (c_uint64 * 3)()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(card)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(card, figures) == 0
    capture(Driver())


def joined(cuda):
    """Way 16: a stream that had joined one capture is destroyed while another capture goes on."""
    cuda.begin()
    lasting, origin, joining = cuda.stream(), cuda.stream(), cuda.stream()
    event, graph, nodes = c_void_p(), c_void_p(), c_size_t()
    cuda.cuEventCreate(byref(event), 0)
    cuda.cuStreamBeginCapture_v2(lasting, RELAXED_CAPTURE)
    cuda.cuStreamBeginCapture_v2(origin, RELAXED_CAPTURE)
    cuda.cuEventRecord(event, origin)
    cuda.cuStreamWaitEvent(joining, event, 0)
    cuda.cuStreamDestroy_v2(joining)
    cuda.code("cuStreamEndCapture", origin, byref(graph))
    for _ in range(50):
        cuda.spin(1000, lasting)
    ended = cuda.code("cuStreamEndCapture", lasting, byref(graph))
    tell([ended, cuda.code("cuGraphGetNodes", graph, None, byref(nodes)), nodes.value])


def captures_at_once(cuda):
    """Way 16: threads begin captures and end streams at once, while what another launched into a default stream is
    open."""
    cuda.begin()
    answers, together = [], threading.Barrier(5)

    def capturing():
        cuda.cuCtxSetCurrent(cuda.context)
        for _ in range(100):
            stream, graph, nodes = cuda.stream(), c_void_p(), c_size_t()
            together.wait()
            cuda.cuStreamBeginCapture_v2(stream, RELAXED_CAPTURE)
            cuda.spin(1000, stream)
            code = cuda.code("cuStreamEndCapture", stream, byref(graph))
            cuda.cuGraphGetNodes(graph, None, byref(nodes))
            answers.append([code, nodes.value])
            cuda.cuStreamDestroy_v2(stream)
            together.wait()

    threads = [threading.Thread(target=capturing) for _ in range(4)]
    for one in threads:
        one.start()
    for _ in range(100):
        for _ in range(5):
            cuda.spin(1000)
        together.wait()
        together.wait()
    for one in threads:
        one.join()
    tell([len(answers), all(one == [0, 1] for one in answers)])


def forking(cuda):
    """Way 17: a child of a process that has used CUDA uses it, too, and another one after exec."""
    cuda.begin()
    cuda.spin(1000)
    cuda.cuCtxSynchronize()
    child = os.fork()
    if child == 0:
        Driver().begin().spin(2000)
        os._exit(0)
    words = [sys.executable, "-S", __file__, "bursts", "1", "1000", "0"]
    silent = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    other = os.posix_spawn(sys.executable, words, os.environ, file_actions=silent)
    statuses = [os.waitpid(pid, 0)[1] for pid in (child, other)]
    cuda.spin(1000)
    tell([child, other, *statuses])


def many(cuda, count):
    """Way 18: calls of all kinds."""
    cuda.begin()
    memory = c_uint64()
    for _ in range(int(count)):
        cuda.cuMemAlloc_v2(byref(memory), c_size_t(40 * MIB))
        cuda.spin(1000)
        cuda.cuCtxSynchronize()
        cuda.cuMemFree_v2(memory)
    tell("done")


def collective(cuda):
    """Way 20: work on the first card waits for a word that is written behind work on the second."""
    cuda.begin(0)
    lib, word = cuda.lib, c_uint64()
    cuda.cuMemHostAlloc(byref(word), c_size_t(4096), 3)
    ctypes.c_uint32.from_address(word.value).value = 0
    second = c_void_p()
    cuda.cuDevicePrimaryCtxRetain(byref(second), 1)
    first_stream = cuda.stream()
    cuda.spin(1000, first_stream)  # the token of the first card is there
    assert lib.cuStreamWaitValue32_v2(first_stream, word, c_uint32(1), 0) == 0
    cuda.spin(1000, first_stream)
    cuda.cuCtxSetCurrent(second)
    module = c_void_p()
    cuda.cuModuleLoadData(byref(module), PTX)
    cuda.cuModuleGetFunction(byref(cuda.spin_function), module, b"gemini_spin")
    second_stream = cuda.stream()
    cuda.spin(1000, second_stream)  # waits for the second card's token, which nobody gives before the first is back
    assert lib.cuStreamWriteValue32_v2(second_stream, word, c_uint32(1), 0) == 0
    cuda.cuStreamSynchronize(second_stream)
    cuda.cuCtxSetCurrent(cuda.context)
    cuda.cuStreamSynchronize(first_stream)
    tell("both ran")
    listen()  # its Return is to come from it alive


if __name__ == "__main__":
    later = sys.argv[1] in ("quiet", "capture_after_nvml")  # if at all
    globals()[sys.argv[1]](None if later else Driver(), *sys.argv[2:])
