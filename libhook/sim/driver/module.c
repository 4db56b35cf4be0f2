/* Modules and functions, libraries and kernels. Loading moves no time: what it costs is host time, and that is real. */
#include "libhook/sim/driver/module.h"

#include <stdlib.h>

#include "libhook/sim/driver/capture.h"
#include "libhook/sim/driver/queue.h"

static void set_attributes(int *attribute, const struct kernel_facts *facts) {
    attribute[0] = (int)facts->max_threads;
    attribute[1] = (int)facts->shared_bytes;
    attribute[3] = (int)facts->local_bytes;
    attribute[4] = (int)facts->registers;
    attribute[5] = attribute[6] = 90;
    attribute[8] = 48 << 10;
    attribute[9] = -1;
}

/* With driver.lock held; takes over the reference to the image. */
static struct CUmod_st *make_module(struct CUctx_st *ctx, struct image *image, struct CUlib_st *library) {
    struct CUmod_st *module = slab_take(SLAB_MODULE, sizeof(*module));
    if (!module)
        return NULL;
    module->ctx = ctx;
    module->image = image;
    module->library = library;
    module->function = calloc(image->kernels + 1, sizeof(*module->function));
    module->global = calloc(image->globals + 1, sizeof(*module->global));
    for (uint32_t i = 0; module->function && i < image->kernels; i++) {
        struct CUfunc_st *function = slab_take(SLAB_FUNCTION, sizeof(*function));
        if (!function)
            break;
        function->facts = &image->kernel[i];
        function->module = module;
        set_attributes(function->attribute, function->facts);
        module->function[i] = function;
    }
    for (uint32_t i = 0; module->global && i < image->globals; i++)
        module->global[i] = image->global[i];
    return module;
}

static void end_module(struct CUmod_st *module) {
    for (uint32_t i = 0; i < module->image->kernels; i++)
        if (module->function[i])
            slab_give(SLAB_FUNCTION, module->function[i]);
    for (uint32_t i = 0; i < module->image->globals; i++)
        if (module->global[i].address)
            cuMemFree_v2(module->global[i].address);
    free(module->function);
    free(module->global);
    image_drop(module->image);
    slab_give(SLAB_MODULE, module);
}

static CUresult load(struct image *image, CUmodule *out) {
    struct CUctx_st *ctx;
    CUresult result = context_current(&ctx);
    if (result) {
        image_drop(image);
        return result;
    }
    pthread_mutex_lock(&driver.lock);
    *out = make_module(ctx, image, NULL);
    pthread_mutex_unlock(&driver.lock);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleLoadData(CUmodule *module, const void *data) {
    struct CUctx_st *ctx;
    struct image *image;
    NEED(module && data, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    TRY(image_read(data, &image));
    return load(image, module);
}

CUresult cuModuleLoadDataEx(
    CUmodule *module, const void *data, unsigned int count, CUjit_option *options, void **values) {
    NEED(!count || (options && values), CUDA_ERROR_INVALID_VALUE);
    return cuModuleLoadData(module, data);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *data) {
    return cuModuleLoadData(module, data);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    struct CUctx_st *ctx;
    struct image *image;
    NEED(module && path, CUDA_ERROR_INVALID_VALUE);
    TRY(context_current(&ctx));
    TRY(capture_guard());
    TRY(image_read_file(path, &image));
    return load(image, module);
}

static CUresult module_of(CUmodule handle, struct CUmod_st **out) {
    INIT();
    NEED(slab_has(SLAB_MODULE, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule handle) {
    struct CUmod_st *module;
    TRY(module_of(handle, &module));
    NEED(!module->library, CUDA_ERROR_NOT_PERMITTED);
    TRY(capture_guard());
    queue_wait_context(module->ctx);
    end_module(module);
    return CUDA_SUCCESS;
}

void module_end_context(struct CUctx_st *ctx) {
    for (uint32_t i = 0; i < slab_used(SLAB_MODULE); i++) {
        struct CUmod_st *module = slab_at(SLAB_MODULE, i);
        if (!module || module->ctx != ctx)
            continue;
        for (uint32_t k = 0; module->library && k < module->library->modules; k++)
            if (module->library->module[k] == module)
                module->library->module[k] = module->library->module[--module->library->modules];
        end_module(module);
    }
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name) {
    struct CUmod_st *module;
    NEED(out && name, CUDA_ERROR_INVALID_VALUE);
    TRY(module_of(handle, &module));
    const struct kernel_facts *facts = image_kernel(module->image, name);
    NEED(facts, CUDA_ERROR_NOT_FOUND);
    *out = module->function[facts - module->image->kernel];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle) {
    struct CUmod_st *module;
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    TRY(module_of(handle, &module));
    *count = module->image->kernels;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule handle) {
    struct CUmod_st *module;
    NEED(functions, CUDA_ERROR_INVALID_VALUE);
    TRY(module_of(handle, &module));
    for (uint32_t i = 0; i < count && i < module->image->kernels; i++)
        functions[i] = module->function[i];
    return CUDA_SUCCESS;
}

static CUresult global_of(struct CUmod_st *module, const char *name, CUdeviceptr *pointer, size_t *bytes) {
    for (uint32_t i = 0; i < module->image->globals; i++) {
        struct symbol *symbol = &module->global[i];
        if (strcmp(symbol->name, name) != 0)
            continue;
        if (!symbol->address)
            TRY(memory_global(module->ctx, symbol));
        if (pointer)
            *pointer = symbol->address;
        if (bytes)
            *bytes = symbol->bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule handle, const char *name) {
    struct CUmod_st *module;
    NEED(name && (pointer || bytes), CUDA_ERROR_INVALID_VALUE);
    TRY(module_of(handle, &module));
    return global_of(module, name, pointer, bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    NEED(mode, CUDA_ERROR_INVALID_VALUE);
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}

/* ---- libraries: code that belongs to no context until it is used in one ---- */

static CUresult load_library(struct image *image, CUlibrary *out) {
    struct CUlib_st *library = slab_take(SLAB_LIBRARY, sizeof(*library));
    NEED(library, CUDA_ERROR_OUT_OF_MEMORY);
    library->image = image;
    library->kernel = calloc(image->kernels + 1, sizeof(*library->kernel));
    NEED(library->kernel, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < image->kernels; i++) {
        struct CUkern_st *kernel = slab_take(SLAB_KERNEL, sizeof(*kernel));
        NEED(kernel, CUDA_ERROR_OUT_OF_MEMORY);
        kernel->library = library;
        kernel->facts = &image->kernel[i];
        set_attributes(kernel->attribute, kernel->facts);
        library->kernel[i] = kernel;
    }
    *out = library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_options_values,
    unsigned int num_jit_options, CUlibraryOption *library_options, void **library_option_values,
    unsigned int num_library_options) {
    struct image *image;
    (void)jit_options, (void)jit_options_values, (void)num_jit_options;
    (void)library_options, (void)library_option_values, (void)num_library_options;
    INIT();
    NEED(library && code, CUDA_ERROR_INVALID_VALUE);
    TRY(capture_guard());
    TRY(image_read(code, &image));
    return load_library(image, library);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file_name, CUjit_option *jit_options,
    void **jit_options_values, unsigned int num_jit_options, CUlibraryOption *library_options,
    void **library_option_values, unsigned int num_library_options) {
    struct image *image;
    (void)jit_options, (void)jit_options_values, (void)num_jit_options;
    (void)library_options, (void)library_option_values, (void)num_library_options;
    INIT();
    NEED(library && file_name, CUDA_ERROR_INVALID_VALUE);
    TRY(capture_guard());
    TRY(image_read_file(file_name, &image));
    return load_library(image, library);
}

static CUresult library_of(CUlibrary handle, struct CUlib_st **out) {
    INIT();
    NEED(slab_has(SLAB_LIBRARY, handle), CUDA_ERROR_INVALID_HANDLE);
    *out = handle;
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary handle) {
    struct CUlib_st *library;
    TRY(library_of(handle, &library));
    TRY(capture_guard());
    for (uint32_t i = 0; i < library->modules; i++) {
        queue_wait_context(library->module[i]->ctx);
        end_module(library->module[i]);
    }
    for (uint32_t i = 0; i < library->image->kernels; i++)
        slab_give(SLAB_KERNEL, library->kernel[i]);
    free(library->module);
    free(library->kernel);
    image_drop(library->image);
    slab_give(SLAB_LIBRARY, library);
    return CUDA_SUCCESS;
}

/* The library's module in the current context, made when it is first asked for. */
static CUresult library_module(struct CUlib_st *library, struct CUmod_st **out) {
    struct CUctx_st *ctx;
    TRY(context_current(&ctx));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&driver.lock);
    *out = NULL;
    for (uint32_t i = 0; i < library->modules && !*out; i++)
        if (library->module[i]->ctx == ctx)
            *out = library->module[i];
    if (!*out) {
        struct CUmod_st **grown = realloc(library->module, (library->modules + 1) * sizeof(*grown));
        if (grown) {
            library->module = grown;
            __atomic_add_fetch(&library->image->references, 1, __ATOMIC_RELAXED);
            if ((*out = make_module(ctx, library->image, library)))
                library->module[library->modules++] = *out;
        }
    }
    if (*out)
        result = CUDA_SUCCESS;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary handle) {
    struct CUlib_st *library;
    NEED(module, CUDA_ERROR_INVALID_VALUE);
    TRY(library_of(handle, &library));
    return library_module(library, module);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary handle, const char *name) {
    struct CUlib_st *library;
    NEED(kernel && name, CUDA_ERROR_INVALID_VALUE);
    TRY(library_of(handle, &library));
    const struct kernel_facts *facts = image_kernel(library->image, name);
    NEED(facts, CUDA_ERROR_NOT_FOUND);
    *kernel = library->kernel[facts - library->image->kernel];
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle) {
    struct CUlib_st *library;
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    TRY(library_of(handle, &library));
    *count = library->image->kernels;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary handle) {
    struct CUlib_st *library;
    NEED(kernels, CUDA_ERROR_INVALID_VALUE);
    TRY(library_of(handle, &library));
    for (uint32_t i = 0; i < count && i < library->image->kernels; i++)
        kernels[i] = library->kernel[i];
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary handle, const char *name) {
    struct CUlib_st *library;
    struct CUmod_st *module;
    NEED(name && (pointer || bytes), CUDA_ERROR_INVALID_VALUE);
    TRY(library_of(handle, &library));
    TRY(library_module(library, &module));
    return global_of(module, name, pointer, bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary handle, const char *name) {
    return cuLibraryGetGlobal(pointer, bytes, handle, name);
}

CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary handle, const char *name) {
    struct CUlib_st *library;
    NEED(function && name, CUDA_ERROR_INVALID_VALUE);
    TRY(library_of(handle, &library));
    return CUDA_ERROR_NOT_FOUND;
}
