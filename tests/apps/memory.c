/*
 * memory.c - takes and gives device memory as it is told on stdin; one line of answer for each line. Linked against
 * libcuda.so.1 like a program of the driver API, with one family of calls for each KIND:
 *
 *     alloc pitch managed pool ptsz own vmm array array3d mipmap     (own: a pool made here)
 *     unified nowhere     (the driver's pool of managed memory with the card preferred; one made here with no place preferred)
 *
 *     take KIND BYTES COUNT    up to COUNT blocks; "N CODE", CODE of the first that failed, or 0
 *     give KIND COUNT          the newest COUNT blocks; "N CODE"
 *     sync | trim              cuCtxSynchronize; trim the default pool to nothing
 *     destroy                  the pool of KIND own, with whatever is allocated from it
 *     info                     "FREE TOTAL DEVICE_TOTAL" as the driver tells
 *     map COUNT                maps the newest vmm block COUNT times more; unmap: all its mappings
 *     release | retain         its handle, again from its mapping
 *     share BYTES COUNT        up to COUNT blocks, each made, exported, released, imported and mapped; "N CODE"
 *     adopt BYTES COUNT        the same, each made and exported by a child that has ended when it is mapped; "N CODE"
 *     hand BYTES SOCKET        a block is made, exported and sent over the socket; "0 CODE"
 *     get BYTES SOCKET         what was sent there is imported and mapped; "0 CODE"
 *     context | end            another context (made and popped), and its end; "0 CODE"
 *     green | ungreen          a green context on device 1, and its end; "0 CODE"
 *     elsewhere                another context, on device 1, made and ended at once; "0 CODE"
 *     abroad BYTES COUNT       up to COUNT blocks in a stream of device 1, while device 0 is current; "N CODE"
 *     primary | reset          release the primary context and take it anew; reset it
 *     limit N VALUE            sets the context's limit N; "VALUE CODE", VALUE what it is then
 *     graph BYTES              instantiates and launches a graph with an allocation and a free of BYTES
 *     fork                     a child that forgets all of this ends; "0 STATUS"
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libhook/driver/cuda_abi.h"

enum { MOST = 65536, KINDS = 12 };

static const char *const names[KINDS] = {
    "alloc", "pitch", "managed", "pool", "ptsz", "own", "vmm", "array", "array3d", "mipmap", "unified", "nowhere"};

union block {
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUmipmappedArray mipmap;
};

static union block blocks[KINDS][MOST];
static int held[KINDS];
static CUdevice device;
static CUcontext primary, others[64];
static CUgreenCtx green;
static int contexts;
static CUmemoryPool own, nowhere;
static CUdeviceptr place;
static size_t mapped_bytes, vmm_bytes;
static int mappings;

static CUresult take_unified(CUdeviceptr *out, size_t bytes, bool made_here) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED};
    CUmemoryPool pool = nowhere;
    CUresult result = CUDA_SUCCESS;
    if (!made_here)
        result = cuMemGetDefaultMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_MANAGED);
    else if (pool == NULL && (result = cuMemPoolCreate(&pool, &props)) == CUDA_SUCCESS)
        nowhere = pool;
    return result == CUDA_SUCCESS ? cuMemAllocFromPoolAsync(out, bytes, pool, NULL) : result;
}

static CUresult take(int kind, size_t bytes, union block *out) {
    const CUmemAllocationProp prop = {.type = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    const CUDA_ARRAY_DESCRIPTOR flat = {
        .Width = 1024, .Height = bytes / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {
        .Width = 512, .Height = bytes / 32768, .Depth = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    size_t pitch;
    switch (kind) {
    case 0: return cuMemAlloc_v2(&out->pointer, bytes);
    case 1: return cuMemAllocPitch_v2(&out->pointer, &pitch, 4096, bytes / 4096, 4);
    case 2: return cuMemAllocManaged(&out->pointer, bytes, 1);
    case 3: return cuMemAllocAsync(&out->pointer, bytes, NULL);
    case 4: return cuMemAllocAsync_ptsz(&out->pointer, bytes, NULL);
    case 5:
        if (own == NULL) {
            const CUmemPoolProps props = {
                .allocType = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
            CUresult result = cuMemPoolCreate(&own, &props);
            if (result != CUDA_SUCCESS)
                return result;
        }
        return cuMemAllocFromPoolAsync(&out->pointer, bytes, own, NULL);
    case 6: vmm_bytes = bytes; return cuMemCreate(&out->handle, bytes, &prop, 0);
    case 7: return cuArrayCreate_v2(&out->array, &flat);
    case 8: return cuArray3DCreate_v2(&out->array, &deep);
    case 10:
    case 11: return take_unified(&out->pointer, bytes, kind == 11);
    default:
        deep.Depth = 0;
        deep.Width = 1024;
        deep.Height = bytes / 4096;
        return cuMipmappedArrayCreate(&out->mipmap, &deep, 1);
    }
}

static CUresult give(int kind, union block block) {
    switch (kind) {
    case 0:
    case 1:
    case 2: return cuMemFree_v2(block.pointer);
    case 3:
    case 5:
    case 10:
    case 11: return cuMemFreeAsync(block.pointer, NULL);
    case 4: return cuMemFreeAsync_ptsz(block.pointer, NULL);
    case 6: return cuMemRelease(block.handle);
    case 7:
    case 8: return cuArrayDestroy(block.array);
    default: return cuMipmappedArrayDestroy(block.mipmap);
    }
}

static int kind_of(const char *name) {
    for (int i = 0; i < KINDS; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static void answer(int count, CUresult code) {
    printf("%d %d\n", count, code);
}

static void map_more(int count) {
    CUresult code = CUDA_SUCCESS;
    int done = 0;
    if (place == 0) {
        mapped_bytes = vmm_bytes;
        code = cuMemAddressReserve(&place, mapped_bytes * 64, 0, 0, 0);
    }
    while (code == CUDA_SUCCESS && done < count) {
        code = cuMemMap(place + (size_t)mappings * mapped_bytes, mapped_bytes, 0, blocks[6][held[6] - 1].handle, 0);
        if (code == CUDA_SUCCESS) {
            mappings++;
            done++;
        }
    }
    answer(done, code);
}

/* The way of a limit that counts a handle until it is released: what is left is the mapping of an import. */
static CUresult share(size_t bytes) {
    const CUmemAllocationProp prop = {
        .type = 1, .requestedHandleTypes = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle made, imported;
    CUdeviceptr at;
    int fd;
    CUresult code = cuMemCreate(&made, bytes, &prop, 0);
    if (code != CUDA_SUCCESS || (code = cuMemExportToShareableHandle(&fd, made, 1, 0)) != CUDA_SUCCESS ||
        (code = cuMemRelease(made)) != CUDA_SUCCESS ||
        (code = cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1)) != CUDA_SUCCESS ||
        (code = cuMemAddressReserve(&at, bytes, 0, 0, 0)) != CUDA_SUCCESS)
        return code;
    close(fd);
    code = cuMemMap(at, bytes, 0, imported, 0);
    cuMemRelease(imported);
    return code;
}

static void share_all(size_t bytes, int count) {
    CUresult code = CUDA_SUCCESS;
    int done = 0;
    while (done < count && (code = share(bytes)) == CUDA_SUCCESS)
        done++;
    answer(done, code);
}

static void abroad(size_t bytes, int count) {
    static CUstream stream;
    CUcontext there, popped;
    CUdeviceptr pointer;
    CUresult code = CUDA_SUCCESS;
    int done = 0;
    if (stream == NULL && (code = cuDevicePrimaryCtxRetain(&there, 1)) == CUDA_SUCCESS &&
        (code = cuCtxPushCurrent_v2(there)) == CUDA_SUCCESS) {
        code = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        cuCtxPopCurrent_v2(&popped);
    }
    while (code == CUDA_SUCCESS && done < count && (code = cuMemAllocAsync(&pointer, bytes, stream)) == CUDA_SUCCESS)
        done++;
    answer(done, code);
}

static int pass(int socket, int *fd, ssize_t (*transfer)(int, struct msghdr *)) {
    char byte = 0;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), fd, sizeof(int));
    if (transfer(socket, &message) != 1 || message.msg_controllen == 0)
        return -1;
    memcpy(fd, CMSG_DATA(head), sizeof(int));
    return 0;
}

static ssize_t give_away(int socket, struct msghdr *message) {
    return sendmsg(socket, message, 0);
}

static ssize_t get(int socket, struct msghdr *message) {
    return recvmsg(socket, message, MSG_CMSG_CLOEXEC);
}

/* The child of adopt: makes and exports so much, and sends the descriptor over the socket. */
static CUresult give_birth(size_t bytes, int socket) {
    const CUmemAllocationProp prop = {
        .type = 1, .requestedHandleTypes = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle made;
    int fd;
    CUresult code = cuMemCreate(&made, bytes, &prop, 0);
    if (code == CUDA_SUCCESS)
        code = cuMemExportToShareableHandle(&fd, made, 1, 0);
    if (code == CUDA_SUCCESS && pass(socket, &fd, give_away) != 0)
        code = CUDA_ERROR_OPERATING_SYSTEM;
    return code;
}

static CUresult import(int fd, size_t size) {
    CUmemGenericAllocationHandle imported;
    CUdeviceptr at;
    CUresult code = cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1);
    close(fd);
    if (code == CUDA_SUCCESS && (code = cuMemAddressReserve(&at, size, 0, 0, 0)) == CUDA_SUCCESS)
        code = cuMemMap(at, size, 0, imported, 0);
    return code;
}

static CUresult adopt(const char *bytes) {
    int ends[2], fd = -1, status = 0;
    char number[16];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    snprintf(number, sizeof(number), "%d", ends[1]);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "memory", bytes, number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    int failed = pass(ends[0], &fd, get);
    close(ends[0]);
    waitpid(child, &status, 0);
    if (status != 0 || failed)
        return (CUresult)WEXITSTATUS(status);
    return import(fd, strtoull(bytes, NULL, 0));
}

static void adopt_all(const char *bytes, int count) {
    CUresult code = CUDA_SUCCESS;
    int done = 0;
    while (done < count && (code = adopt(bytes)) == CUDA_SUCCESS)
        done++;
    answer(done, code);
}

static void graph(size_t bytes) {
    static CUstream stream;
    CUgraph made = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr pointer = 0;
    CUresult code = stream == NULL ? cuStreamCreate(&stream, 1) : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS)
        code = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (code == CUDA_SUCCESS)
        code = cuMemAllocAsync(&pointer, bytes, stream);
    if (code == CUDA_SUCCESS)
        code = cuMemFreeAsync(pointer, stream);
    if (code == CUDA_SUCCESS)
        code = cuStreamEndCapture(stream, &made);
    if (code == CUDA_SUCCESS)
        code = cuGraphInstantiateWithFlags(&exec, made, 0);
    if (code == CUDA_SUCCESS)
        code = cuGraphLaunch(exec, stream);
    if (code == CUDA_SUCCESS)
        code = cuStreamSynchronize(stream);
    answer(exec != NULL, code);
}

static void obey(char *line) {
    char *word = strtok(line, " \n");
    char *first = strtok(NULL, " \n");
    char *second = strtok(NULL, " \n");
    char *third = strtok(NULL, " \n");
    int kind = first == NULL ? -1 : kind_of(first);
    CUresult code = CUDA_SUCCESS;
    int count = 0;
    if (strcmp(word, "take") == 0) {
        while (count < atoi(third) && held[kind] < MOST &&
               (code = take(kind, strtoull(second, NULL, 0), &blocks[kind][held[kind]])) == CUDA_SUCCESS) {
            held[kind]++;
            count++;
        }
        answer(count, code);
    } else if (strcmp(word, "give") == 0) {
        while (count < atoi(second) && held[kind] > 0 &&
               (code = give(kind, blocks[kind][held[kind] - 1])) == CUDA_SUCCESS) {
            held[kind]--;
            count++;
        }
        answer(count, code);
    } else if (strcmp(word, "sync") == 0) {
        answer(0, cuCtxSynchronize());
    } else if (strcmp(word, "trim") == 0) {
        CUmemoryPool pool;
        code = cuDeviceGetDefaultMemPool(&pool, device);
        answer(0, code == CUDA_SUCCESS ? cuMemPoolTrimTo(pool, 0) : code);
    } else if (strcmp(word, "destroy") == 0) {
        answer(0, cuMemPoolDestroy(own));
        own = NULL;
    } else if (strcmp(word, "info") == 0) {
        size_t free_bytes = 0, total = 0, whole = 0;
        code = cuMemGetInfo_v2(&free_bytes, &total);
        if (code == CUDA_SUCCESS)
            code = cuDeviceTotalMem_v2(&whole, device);
        printf("%zu %zu %zu\n", free_bytes, total, whole);
    } else if (strcmp(word, "share") == 0) {
        share_all(strtoull(first, NULL, 0), atoi(second));
    } else if (strcmp(word, "adopt") == 0) {
        adopt_all(first, atoi(second));
    } else if (strcmp(word, "hand") == 0) {
        answer(0, give_birth(strtoull(first, NULL, 0), atoi(second)));
    } else if (strcmp(word, "get") == 0) {
        int fd = -1;
        answer(0, pass(atoi(second), &fd, get) ? CUDA_ERROR_OPERATING_SYSTEM : import(fd, strtoull(first, NULL, 0)));
    } else if (strcmp(word, "map") == 0) {
        map_more(atoi(first));
    } else if (strcmp(word, "unmap") == 0) {
        answer(mappings, cuMemUnmap(place, mapped_bytes * (size_t)mappings));
        mappings = 0;
    } else if (strcmp(word, "release") == 0) {
        answer(0, cuMemRelease(blocks[6][held[6] - 1].handle));
    } else if (strcmp(word, "retain") == 0) {
        answer(0, cuMemRetainAllocationHandle(&blocks[6][held[6] - 1].handle, (void *)place));
    } else if (strcmp(word, "context") == 0) {
        CUcontext popped;
        code = cuCtxCreate_v2(&others[contexts], 0, device);
        if (code == CUDA_SUCCESS) {
            contexts++;
            cuCtxPopCurrent_v2(&popped);
        }
        answer(contexts, code);
    } else if (strcmp(word, "end") == 0) {
        answer(contexts - 1, cuCtxDestroy_v2(others[contexts - 1]));
        contexts--;
    } else if (strcmp(word, "green") == 0) {
        CUdevResource half = {0};
        CUdevResourceDesc desc;
        unsigned int one = 1;
        code = cuDeviceGetDevResource(1, &half, CU_DEV_RESOURCE_TYPE_SM);
        code = code ? code : cuDevSmResourceSplitByCount(&half, &one, &half, NULL, 0, 64);
        code = code ? code : cuDevResourceGenerateDesc(&desc, &half, 1);
        code = code ? code : cuGreenCtxCreate(&green, desc, 1, CU_GREEN_CTX_DEFAULT_STREAM);
        answer(0, code);
    } else if (strcmp(word, "ungreen") == 0) {
        answer(0, cuGreenCtxDestroy(green));
    } else if (strcmp(word, "elsewhere") == 0) {
        CUcontext there;
        code = cuCtxCreate_v2(&there, 0, 1);
        answer(0, code ? code : cuCtxDestroy_v2(there));
    } else if (strcmp(word, "abroad") == 0) {
        abroad(strtoull(first, NULL, 0), atoi(second));
    } else if (strcmp(word, "primary") == 0) {
        code = cuDevicePrimaryCtxRelease_v2(device);
        memset(held, 0, sizeof(held));
        if (code == CUDA_SUCCESS && (code = cuDevicePrimaryCtxRetain(&primary, device)) == CUDA_SUCCESS)
            code = cuCtxSetCurrent(primary);
        answer(0, code);
    } else if (strcmp(word, "reset") == 0) {
        code = cuDevicePrimaryCtxReset_v2(device);
        memset(held, 0, sizeof(held));
        answer(0, code);
    } else if (strcmp(word, "limit") == 0) {
        size_t now = 0;
        code = cuCtxSetLimit(atoi(first), strtoull(second, NULL, 0));
        cuCtxGetLimit(&now, atoi(first));
        printf("%zu %d\n", now, code);
    } else if (strcmp(word, "graph") == 0) {
        graph(strtoull(first, NULL, 0));
    } else if (strcmp(word, "fork") == 0) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            exit(7);
        waitpid(child, &status, 0);
        answer(0, (CUresult)WEXITSTATUS(status));
    } else {
        printf("?\n");
    }
}

int main(int count, char **words) {
    char line[256];
    CUresult code = cuInit(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (code == CUDA_SUCCESS)
        code = cuDeviceGet(&device, 0);
    if (code == CUDA_SUCCESS)
        code = cuDevicePrimaryCtxRetain(&primary, device);
    if (code == CUDA_SUCCESS)
        code = cuCtxSetCurrent(primary);
    if (count > 2)
        return code == CUDA_SUCCESS ? (int)give_birth(strtoull(words[1], NULL, 0), atoi(words[2])) : (int)code;
    printf("%d\n", code);
    while (code == CUDA_SUCCESS && fgets(line, sizeof(line), stdin) != NULL)
        obey(line);
    return code;
}
