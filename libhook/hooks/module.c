/*
 * module.c - the end of modules and libraries. Unloading synchronises the context, so pools may have shrunk
 * after it.
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
