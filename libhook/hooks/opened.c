/*
 * opened.c - dlopen with RTLD_DEEPBIND, and dlmopen.
 *
 * What a preloaded library defines comes first for everybody, but for two. A library that was opened with RTLD_DEEPBIND
 * looks into itself and its own dependencies first, the C library among them. And what dlmopen loads has a C library of
 * its own, and a driver, and does not see us at all. Their dlsym is the C library's, and whatever they look up is the
 * driver's own.
 *
 * Both stay what they are, so that nothing else changes for them, but for the words through which they call. When the
 * loader has bound such a library, those of its words that lead to the C library's dlsym, dlopen and dlmopen, or to a
 * function of the driver that is ours, are led here. A library's constructors have run by then; what these look up is
 * the driver's (docs/guarantees.md).
 *
 * Calls of another namespace go to the driver of the namespace that this library is in, which is loaded for them if
 * need be: two copies would each have contexts that the other does not know. So a driver that is asked for there is
 * opened here.
 *
 * The loader keeps no list that may be read without its lock; so names are gathered under it, and each object is held by
 * a handle of its own while its words are looked at. Runs in the program's own dlopen, never on the path of a launch.
 */
#define _GNU_SOURCE
#include "libhook/hooks/opened.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libhook/driver/real.h"
#include "libhook/hooks/table.h"
#include "libhook/runtime/log.h"

enum { PAGE = 4096, NAMES = 8, NAME_BYTES = 1024, PATHS_BYTES = 32 << 10 };

/* Exported by their versions (exports.map), and so not hidden. */
#pragma GCC visibility push(default)
void dlsym_new(void);
void dlopen_new(void);
void *dlmopen_old(Lmid_t space, const char *file, int flags);
void *dlmopen_new(Lmid_t space, const char *file, int flags);
#pragma GCC visibility pop

static bool others;      /* is there, or was there, a namespace besides the first? */
static void *brought[2]; /* by row_library: the drivers that were opened here for another namespace */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_cudas_name(const char *path) {
    return begins(base_name(path), "libcuda.so");
}

static bool is_drivers_name(const char *path) {
    return is_cudas_name(path) || begins(base_name(path), "libnvidia-ml.so");
}

static Lmid_t space_of(const struct link_map *object) {
    Lmid_t space;
    return object != NULL && dlinfo((void *)object, RTLD_DI_LMID, &space) == 0 ? space : LM_ID_BASE;
}

struct link_map *opened_object_of(const void *address) {
    Dl_info info;
    struct link_map *map = NULL;
    return dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 ? NULL : map;
}

/* In the first namespace, where this library is; kept for good. */
static void *open_here(const char *file, int flags) {
    void *handle = real_dlopen()(file, (flags & ~RTLD_DEEPBIND) | RTLD_NODELETE);
    if (handle != NULL)
        __atomic_store_n(&brought[is_cudas_name(file) ? ROW_CUDA : ROW_NVML], handle, __ATOMIC_RELEASE);
    return handle;
}

void opened_bring(const struct link_map *object) {
    if (!__atomic_load_n(&others, __ATOMIC_ACQUIRE) || !is_drivers_name(object->l_name) ||
        space_of(object) == LM_ID_BASE)
        return;
    if (open_here(object->l_name, RTLD_LAZY | RTLD_LOCAL) != NULL && is_cudas_name(object->l_name))
        real_load(object->l_name);
}

/* An object's parts, as its own headers give them. */
struct object {
    const struct link_map *map;
    uintptr_t begin, end;               /* where it lies */
    uintptr_t sealed_begin, sealed_end; /* what of it the loader made read-only when it had bound it */
    const ElfW(Sym) * symbols;
    const char *names;
    bool foreign; /* in another namespace */
};

static uintptr_t address_in(const struct link_map *map, ElfW(Addr) value) {
    return value < map->l_addr ? value + map->l_addr : value; /* a loader need not have added it */
}

static bool read_headers(struct object *object) {
    Dl_info info;
    if (dladdr(object->map->l_ld, &info) == 0 || memcmp(info.dli_fbase, ELFMAG, SELFMAG) != 0)
        return false;
    const ElfW(Ehdr) *head = info.dli_fbase;
    const ElfW(Phdr) *part = (const void *)((const char *)info.dli_fbase + head->e_phoff);
    object->begin = (uintptr_t)info.dli_fbase;
    for (int i = 0; i < head->e_phnum; i++, part++) {
        uintptr_t begin = object->map->l_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type == PT_LOAD && end > object->end)
            object->end = end;
        if (part->p_type == PT_GNU_RELRO) {
            object->sealed_begin = begin & ~(uintptr_t)(PAGE - 1);
            object->sealed_end = end & ~(uintptr_t)(PAGE - 1);
        }
    }
    return true;
}

/* Is `found`, to which a word of the object leads, a function of a library of that name? Or not bound yet? */
static bool leads_to(const struct object *object, uintptr_t found, const char *const *libraries) {
    Dl_info info;
    if (found >= object->begin && found < object->end)
        return true; /* into its own table of procedures: the loader binds it at the first call */
    if (found == 0 || dladdr((const void *)found, &info) == 0)
        return false;
    for (; *libraries != NULL; libraries++)
        if (begins(base_name(info.dli_fname), *libraries))
            return true;
    return false;
}

/* Where a word for `name` that leads to `found` has to lead; NULL: where it does. */
static void *instead(const struct object *object, const char *name, uintptr_t found) {
    static const char *const c_library[] = {"libc.", "libc-", "libdl.", "libdl-", NULL};
    static const char *const cuda[] = {"libcuda.so", NULL}, *const nvml[] = {"libnvidia-ml.so", NULL};
    if (name[0] == 'd' && name[1] == 'l') {
        void *ours = strcmp(name, "dlsym") == 0                        ? (void *)dlsym_new
                     : strcmp(name, "dlopen") == 0                     ? (void *)dlopen_new
                     : strcmp(name, "dlmopen") == 0                    ? (void *)dlmopen_new
                     : strcmp(name, "dlerror") == 0 && object->foreign ? (void *)dlerror
                                                                       : NULL;
        return ours != NULL && leads_to(object, found, c_library) ? ours : NULL;
    }
    if (!(name[0] == 'c' && name[1] == 'u') && !begins(name, "nvml"))
        return NULL;
    const struct row *row = table_by_symbol(name);
    enum row_library library = name[0] == 'c' ? ROW_CUDA : ROW_NVML;
    void *ours = row == NULL ? NULL : table_ours(row);
    if (ours == NULL && object->foreign && __atomic_load_n(&brought[library], __ATOMIC_ACQUIRE) != NULL)
        ours = real_dlsym()(brought[library], name); /* left alone, and yet of the one driver */
    if (ours == NULL || (uintptr_t)ours == found)
        return NULL;
    return leads_to(object, found, library == ROW_CUDA ? cuda : nvml) ? ours : NULL;
}

static void store(const struct object *object, uintptr_t at, void *value) {
    bool sealed = at >= object->sealed_begin && at < object->sealed_end;
    void *page = (void *)(at & ~(uintptr_t)(PAGE - 1));
    if (sealed && mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
        return;
    __atomic_store_n((void **)at, value, __ATOMIC_RELEASE);
    if (sealed)
        mprotect(page, PAGE, PROT_READ);
}

static int lead_words(const struct object *object, uintptr_t table, size_t bytes) {
    const ElfW(Rela) *word = (const void *)table;
    int led = 0;
    for (size_t i = 0; table != 0 && i < bytes / sizeof(*word); i++, word++) {
        unsigned kind = (unsigned)ELF64_R_TYPE(word->r_info);
        if (kind != R_X86_64_JUMP_SLOT && kind != R_X86_64_GLOB_DAT && (kind != R_X86_64_64 || word->r_addend != 0))
            continue;
        const ElfW(Sym) *symbol = object->symbols + ELF64_R_SYM(word->r_info);
        if (symbol->st_shndx != SHN_UNDEF)
            continue;
        uintptr_t at = object->map->l_addr + word->r_offset;
        void *ours = instead(object, object->names + symbol->st_name, *(const uintptr_t *)at);
        if (ours != NULL) {
            store(object, at, ours);
            led++;
        }
    }
    return led;
}

/* One at a time, or one would seal a page that another writes to. By pid, so that a forked child waits for nobody. */
static pid_t leading;

static void lead_object(const struct link_map *map, bool foreign) {
    struct object object = {.map = map, .foreign = foreign};
    uintptr_t late = 0, early = 0;
    size_t late_bytes = 0, early_bytes = 0;
    for (const ElfW(Dyn) *entry = map->l_ld; entry != NULL && entry->d_tag != DT_NULL; entry++)
        switch (entry->d_tag) {
        case DT_SYMTAB: object.symbols = (const void *)address_in(map, entry->d_un.d_ptr); break;
        case DT_STRTAB: object.names = (const void *)address_in(map, entry->d_un.d_ptr); break;
        case DT_JMPREL: late = address_in(map, entry->d_un.d_ptr); break;
        case DT_PLTRELSZ: late_bytes = entry->d_un.d_val; break;
        case DT_RELA: early = address_in(map, entry->d_un.d_ptr); break;
        case DT_RELASZ: early_bytes = entry->d_un.d_val; break;
        default: break;
        }
    if (object.symbols == NULL || object.names == NULL || !read_headers(&object))
        return;
    pid_t me = getpid(), was = __atomic_load_n(&leading, __ATOMIC_RELAXED);
    while (was == me || !__atomic_compare_exchange_n(&leading, &was, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        sched_yield();
        was = __atomic_load_n(&leading, __ATOMIC_RELAXED);
    }
    int led = lead_words(&object, late, late_bytes) + lead_words(&object, early, early_bytes);
    __atomic_store_n(&leading, 0, __ATOMIC_RELEASE);
    if (led > 0)
        log_line(LOG_INFO, "%s was opened past this library (%s): %d of its words lead here all the same",
            base_name(map->l_name), foreign ? "dlmopen" : "RTLD_DEEPBIND", led);
}

/* How many objects the first namespace has, and how many were ever loaded into any. */
struct census {
    int objects;
    unsigned long long loaded;
};

static int count_one(struct dl_phdr_info *info, size_t size, void *data) {
    struct census *census = data;
    census->objects++;
    census->loaded = size > offsetof(struct dl_phdr_info, dlpi_adds) ? info->dlpi_adds : 0;
    return 0;
}

static struct census count_objects(void) {
    struct census census = {0};
    dl_iterate_phdr(count_one, &census);
    return census;
}

struct gathered {
    int skip, count;
    char names[NAMES][NAME_BYTES];
};

static int gather_one(struct dl_phdr_info *info, size_t size, void *data) {
    struct gathered *gathered = data;
    (void)size;
    if (gathered->skip > 0) {
        gathered->skip--;
        return 0;
    }
    snprintf(gathered->names[gathered->count++], NAME_BYTES, "%s", info->dlpi_name);
    return gathered->count == NAMES;
}

/* The objects of the first namespace that were loaded since; the newest stand last. */
static void lead_new_ones(struct census before) {
    struct census now = count_objects();
    unsigned long long new_ones = now.loaded - before.loaded;
    int next = new_ones < (unsigned long long)now.objects ? now.objects - (int)new_ones : 0;
    struct gathered gathered;
    for (; next < now.objects; next += gathered.count) {
        gathered.skip = next;
        gathered.count = 0;
        dl_iterate_phdr(gather_one, &gathered);
        if (gathered.count == 0)
            return;
        for (int i = 0; i < gathered.count; i++) {
            void *held =
                gathered.names[i][0] == '\0' ? NULL : real_dlopen()(gathered.names[i], RTLD_LAZY | RTLD_NOLOAD);
            if (held == NULL)
                continue;
            if (held != opened_object_of((const void *)count_one))
                lead_object(held, false);
            dlclose(held);
        }
    }
}

/* What was opened in another namespace, and what came with it. */
static void lead_foreign(const struct link_map *opened) {
    __atomic_store_n(&others, true, __ATOMIC_RELEASE);
    for (const struct link_map *map = opened; map != NULL; map = map->l_next)
        opened_bring(map);
    for (const struct link_map *map = opened; map != NULL; map = map->l_next)
        if (!is_drivers_name(map->l_name) && !begins(base_name(map->l_name), "libc."))
            lead_object(map, true);
}

/* The file that dlopen finds for `caller` in its own folders (DT_RUNPATH) or in those of LD_LIBRARY_PATH, which the loader
 * lists without saying which are which; NULL: in none. The system's, which it lists last, come behind the loader's cache:
 * there it looks for us as for anybody. */
static const char *in_own_folders(const struct link_map *caller, const char *file, char *path, size_t path_bytes) {
    Dl_serinfo size, *folders = alloca(PATHS_BYTES);
    if (caller == NULL || strchr(file, '/') != NULL || dlinfo((void *)caller, RTLD_DI_SERINFOSIZE, &size) != 0 ||
        size.dls_size > PATHS_BYTES)
        return NULL;
    folders->dls_size = size.dls_size;
    folders->dls_cnt = size.dls_cnt;
    if (dlinfo((void *)caller, RTLD_DI_SERINFO, folders) != 0)
        return NULL;
    for (unsigned i = 0; i < folders->dls_cnt; i++) {
        int length = snprintf(path, path_bytes, "%s/%s", folders->dls_serpath[i].dls_name, file);
        if (begins(path, "/lib") || begins(path, "/usr/lib"))
            continue;
        if (length > 0 && (size_t)length < path_bytes && access(path, R_OK) == 0)
            return path;
    }
    return NULL;
}

static void *open_in(Lmid_t space, const char *file, int flags) {
    void *volatile handle =
        space == LM_ID_BASE ? real_dlopen()(file, flags) : real_dlmopen()(space, file, flags); /* a call, not a jump */
    return handle;
}

struct entry_answer opened_dlopen(const char *file, int flags, void *caller) {
    struct entry_answer forward = {.forward = (void *)real_dlopen()};
    bool many = __atomic_load_n(&others, __ATOMIC_ACQUIRE);
    if (file == NULL || forward.forward == NULL || ((flags & RTLD_DEEPBIND) == 0 && !many))
        return forward;
    struct link_map *object = opened_object_of(caller);
    Lmid_t space = many ? space_of(object) : LM_ID_BASE;
    if (space == LM_ID_BASE && (flags & RTLD_DEEPBIND) == 0)
        return forward;
    if (strchr(file, '$') != NULL)
        return forward; /* $ORIGIN is the caller's folder, and would be ours */
    if (space != LM_ID_BASE && is_drivers_name(file))
        return (struct entry_answer){.value = open_here(file, flags)};
    char path[NAME_BYTES];
    struct census before = count_objects();
    void *handle = open_in(space, file, flags | RTLD_NOLOAD);
    if (handle != NULL || (flags & RTLD_NOLOAD) != 0)
        return (struct entry_answer){.value = handle};
    const char *own = in_own_folders(object, file, path, sizeof(path));
    handle = open_in(space, own != NULL ? own : file, flags);
    if (handle != NULL) {
        int saved_errno = errno;
        if (space == LM_ID_BASE)
            lead_new_ones(before);
        else
            lead_foreign(handle);
        dlerror();
        errno = saved_errno;
    }
    return (struct entry_answer){.value = handle};
}

void *dlmopen_new(Lmid_t space, const char *file, int flags) {
    if (real_dlmopen() == NULL)
        return NULL;
    if (space != LM_ID_BASE && file != NULL && is_drivers_name(file))
        return open_here(file, flags); /* one driver for all */
    void *handle = real_dlmopen()(space, file, flags);
    if (handle != NULL && file != NULL && space_of(handle) != LM_ID_BASE) {
        int saved_errno = errno;
        lead_foreign(handle);
        dlerror();
        errno = saved_errno;
    }
    return handle;
}

void *dlmopen_old(Lmid_t space, const char *file, int flags) __attribute__((alias("dlmopen_new")));
__asm__(".symver dlmopen_old, dlmopen@GLIBC_2.3.4");
__asm__(".symver dlmopen_new, dlmopen@@GLIBC_2.34");
