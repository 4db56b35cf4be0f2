/*
 * A program as nvcc makes them, by hand: linked against the runtime by its soname, with a fat binary that is registered
 * before main. It prints one line for each thing that it looked at.
 */
#include <stdio.h>
#include <stdlib.h>

#include "libhook/sim/runtime/cudart_abi.h"
#include "libhook/sim/runtime/errors.h"

void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *tid,
    void *bid, void *block, void *grid, int *warps);
void __cudaRegisterVar(
    void **handle, char *host, char *address, const char *name, int ext, size_t bytes, int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t cudaLaunchKernel(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyToSymbol(
    const void *variable, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyFromSymbol(void *to, const void *variable, size_t bytes, size_t offset, enum cudaMemcpyKind kind);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetMipmappedArrayLevel(void);
#if CUDA_MAJOR < 13
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device);

#define PTX                                                                                                            \
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .u32 table[4];\n"                        \
    ".visible .entry gemini_spin(.param .u64 ns)\n{ ret; }\n"

static const struct {
    unsigned magic;
    unsigned short version, header;
    unsigned long long bytes;
    struct {
        unsigned short kind, unknown;
        unsigned header;
        unsigned long long bytes;
        unsigned packed, unknown2;
        unsigned short minor, major;
        unsigned arch, name_offset, name_bytes;
        unsigned long long flags, zero, unpacked;
    } member;
    char text[(sizeof(PTX) + 7) / 8 * 8];
} fat = {0xba55ed50, 1, 16, 64 + sizeof(fat.text), {1, 0, 64, sizeof(fat.text), 0, 0, 0, 8, 90, 0, 0, 0, 0, 0}, PTX};
static const struct {
    unsigned magic, version;
    const void *data, *more;
} wrapper = {0x466243b1, 1, &fat, NULL};

static void **handle;
static unsigned table[4];
static void spin(unsigned long long ns) {
    (void)ns;
}
static void absent(void) {
}

__attribute__((constructor)) static void register_all(void) {
    static char many[10000];
    handle = __cudaRegisterFatBinary((void *)&wrapper);
    __cudaRegisterFunction(handle, (const char *)spin, "spin", "gemini_spin", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(handle, (const char *)absent, "absent", "not_in_it", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(handle, (char *)table, "table", "table", 0, sizeof(table), 0, 0);
    for (int i = 0; i < 10000; i++)
        __cudaRegisterFunction(handle, &many[i], "many", "gemini_spin", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
}

static void say(const char *what, cudaError_t result) {
    printf("%s %s\n", what, cudaGetErrorName(result));
}

int main(int count, char **words) {
    const unsigned four[4] = {1, 2, 3, 4};
    unsigned back[4] = {0};
    unsigned long long ns = 1000000;
    void *arguments[] = {&ns}, *memory;
    dim3 grid, block, one = {1, 1, 1}, none = {0, 1, 1};
    size_t shared;
    cudaStream_t stream;
    struct cudaDeviceProp card = {0};
    (void)words;
    if (count > 1) /* registered, and nothing else */
        return 0;
    say("properties", cudaGetDeviceProperties(&card, 0));
    printf("%s of %zu MiB, %d multiprocessors, %d.%d\n", card.name, card.totalGlobalMem >> 20, card.multiProcessorCount,
        card.major, card.minor);
    __cudaPushCallConfiguration(one, one, 16, NULL);
    say("pop", __cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    say("pop again", __cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    cudaGetLastError();
    say("launch", cudaLaunchKernel((const void *)spin, grid, block, arguments, shared, stream));
    say("synchronise", cudaDeviceSynchronize());
    say("empty grid", cudaLaunchKernel((const void *)spin, none, one, arguments, 0, NULL));
    say("absent", cudaLaunchKernel((const void *)absent, one, one, NULL, 0, NULL));
    say("last", cudaGetLastError());
    say("last again", cudaGetLastError());
    say("to symbol", cudaMemcpyToSymbol(table, four, sizeof(four), 0, cudaMemcpyHostToDevice));
    say("from symbol", cudaMemcpyFromSymbol(back, table, sizeof(back), 0, cudaMemcpyDeviceToHost));
    printf("table %u %u\n", back[0], back[3]);
    say("malloc", cudaMalloc(&memory, 1ull << 50));
    say("not there", cudaGetMipmappedArrayLevel());
    say("not there", cudaGetMipmappedArrayLevel());
    __cudaUnregisterFatBinary(handle);
    return 0;
}
