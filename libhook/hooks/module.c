/*
 * module.c - which functions and kernels a program has from modules and libraries (load.h), and the end of these.
 * Unloading synchronises the context, so pools may have shrunk after it.
 */
#include "libhook/driver/real.h"
#include "libhook/hooks/load.h"
#include "libhook/hooks/memory.h"

CUresult cuModuleUnload(CUmodule module) {
    CUresult result = real.cuModuleUnload(module);
    load_forget();
    memory_synchronized();
    return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
    CUresult result = real.cuLibraryUnload(library);
    load_forget();
    memory_synchronized();
    return result;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult result = real.cuModuleGetFunction(function, module, name);
    if (result == CUDA_SUCCESS)
        load_know_functions(function, 1);
    return result;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int num_functions, CUmodule mod) {
    unsigned int count = 0;
    CUresult result = real.cuModuleEnumerateFunctions(functions, num_functions, mod);
    if (result == CUDA_SUCCESS && real_has(cuModuleGetFunctionCount) &&
        real.cuModuleGetFunctionCount(&count, mod) == CUDA_SUCCESS)
        load_know_functions(functions, count < num_functions ? count : num_functions);
    return result;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CUresult result = real.cuKernelGetFunction(function, kernel);
    if (result == CUDA_SUCCESS)
        load_know_functions(function, 1);
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUresult result = real.cuLibraryGetKernel(kernel, library, name);
    if (result == CUDA_SUCCESS)
        load_know_kernels(kernel, 1);
    return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int num_kernels, CUlibrary lib) {
    unsigned int count = 0;
    CUresult result = real.cuLibraryEnumerateKernels(kernels, num_kernels, lib);
    if (result == CUDA_SUCCESS && real_has(cuLibraryGetKernelCount) &&
        real.cuLibraryGetKernelCount(&count, lib) == CUDA_SUCCESS)
        load_know_kernels(kernels, count < num_kernels ? count : num_kernels);
    return result;
}
