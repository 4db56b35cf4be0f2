/*
 * entry.c - what dlsym answers for the names in the table.
 *
 * Of the three ways in, exported functions need no code (the dynamic linker finds ours first), and cuGetProcAddress is
 * in resolve.c. Here is the way of programs that open libcuda.so.1 or libnvidia-ml.so.1 themselves.
 *
 *   - A name that is not in the table, or left alone there: the next dlsym answers (the C library's, or that of another
 *     interposer behind us), with its caller's identity kept. Two comparisons of characters decide for most names.
 *   - A name of ours: the real answer for that handle is found first. Only if there is one, and it is the driver's, our
 *     function takes its place. We never make up a function: a program that looks for cuInit to see whether there is a
 *     driver must be told the truth, although we export a cuInit.
 *   - RTLD_NEXT from an object that defines the name itself is another interposer's way to what comes after it, which
 *     must not lead back to us: the real dlsym answers.
 *
 * Runs before any constructor, under the loader's locks, inside other libraries' start-up: no lock, no allocation of
 * our own, no CUDA call, nothing that writes.
 */
#define _GNU_SOURCE
#include "libhook/hooks/entry.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "libhook/driver/real.h"
#include "libhook/hooks/memory.h"
#include "libhook/hooks/opened.h"
#include "libhook/hooks/resolve.h"
#include "libhook/hooks/table.h"
#include "libhook/runtime/account.h"
#include "libhook/runtime/agent.h"
#include "libhook/runtime/devices.h"
#include "libhook/runtime/visit.h"

static const char *const file_names[] = {[ROW_CUDA] = "libcuda.so", [ROW_NVML] = "libnvidia-ml.so"};

/* The dlsym that comes after ours in the search order. */
static void *next_dlsym(void) {
    static void *next;
    void *found = __atomic_load_n(&next, __ATOMIC_ACQUIRE);
    if (found == NULL && real_dlsym() != NULL) {
        found = real_dlsym()(RTLD_NEXT, "dlsym");
        if (found == NULL)
            found = (void *)real_dlsym();
        __atomic_store_n(&next, found, __ATOMIC_RELEASE);
    }
    return found;
}

/* The next definition after this library. The result is kept in memory first: this must be a call, not a jump, or the
 * loader would take our caller for the one who asks. */
static __attribute__((noinline)) void *after_us(const char *name) {
    void *volatile found = real_dlsym()(RTLD_NEXT, name);
    return found;
}

/* The first definition that the object itself and its own dependencies have. The main program has the global scope. */
static void *in_scope_of(const struct link_map *object, const char *name) {
    const char *file = object->l_name[0] == '\0' ? NULL : object->l_name;
    void *handle = real_dlopen()(file, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL)
        return NULL;
    void *found = real_dlsym()(handle, name);
    dlclose(handle);
    return found;
}

/* Does `address` stand in the library that the row is about? Then its driver may be looked up now. */
static bool is_the_librarys(const struct row *row, void *address) {
    if (real_pointer(row) == address) /* or in the interposer behind us, through which ours goes */
        return true;
    struct link_map *object = opened_object_of(address);
    if (object == NULL)
        return false;
    const char *slash = strrchr(object->l_name, '/');
    const char *base = slash == NULL ? object->l_name : slash + 1;
    const char *expected = file_names[row->library];
    if (strncmp(base, expected, strlen(expected)) != 0)
        return false;
    opened_bring(object);
    if (row->library == ROW_CUDA)
        real_load(object->l_name);
    return true;
}

/* Ours in the place of the library's, anything else as it is. */
static void *exchange(const struct row *row, void *found) {
    return found != NULL && is_the_librarys(row, found) ? table_ours(row) : found;
}

/* RTLD_DEFAULT: the global scope, then the caller's own. */
static void *answer_default(const struct row *row, void *caller) {
    void *found = real_dlsym()(RTLD_DEFAULT, row_symbol(row));
    if (found != NULL && found != table_ours(row))
        return exchange(row, found); /* somebody before us defines it */
    found = after_us(row_symbol(row));
    if (found == NULL) {
        struct link_map *object = opened_object_of(caller);
        found = object == NULL ? NULL : in_scope_of(object, row_symbol(row));
        if (found == NULL || found == table_ours(row))
            return after_us(row_symbol(row)); /* nobody has it but us: NULL, and dlerror says so */
    }
    return table_ours(row);
}

static bool comes_after(const struct link_map *first, const struct link_map *second) {
    for (const struct link_map *at = first->l_next; at != NULL; at = at->l_next)
        if (at == second)
            return true;
    return false;
}

/* RTLD_NEXT; false: the real dlsym is to answer. */
static bool answer_next(const struct row *row, void *caller, void **answer) {
    struct link_map *object = opened_object_of(caller);
    if (object == NULL)
        return false;
    void *own = in_scope_of(object, row_symbol(row));
    if (own != NULL && own != table_ours(row) && opened_object_of(own) == object)
        return false; /* another interposer */
    void *found = after_us(row_symbol(row));
    if (found == NULL && own != NULL && own != table_ours(row))
        found = own; /* what the caller brought along, out of our sight */
    if (found == NULL) {
        *answer = NULL;
        return true;
    }
    struct link_map *where = opened_object_of(found);
    if (where != NULL && comes_after(where, object) && found != own)
        return false; /* it lies before the caller: not "next" */
    *answer = exchange(row, found);
    return true;
}

static bool may_be_ours(const char *name) {
    return (name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v' && name[2] == 'm');
}

struct entry_answer entry_dlsym(void *handle, const char *name, void *caller) {
    if (name == NULL || real_dlsym() == NULL)
        return (struct entry_answer){.forward = next_dlsym()};
    if (name[0] == 'd' && strcmp(name, "dlsym") == 0) /* whoever wants the real one gets the real one */
        return (struct entry_answer){.forward = (void *)real_dlsym()};
    if (!may_be_ours(name))
        return (struct entry_answer){.forward = next_dlsym()};
    const struct row *row = table_by_symbol(name);
    if (row == NULL || table_ours(row) == NULL)
        return (struct entry_answer){.forward = next_dlsym()};
    int saved_errno = errno;
    void *value;
    if (handle == RTLD_NEXT) {
        if (!answer_next(row, caller, &value))
            return (struct entry_answer){.forward = (void *)real_dlsym()};
    } else if (handle == RTLD_DEFAULT) {
        value = answer_default(row, caller);
    } else {
        value = real_dlsym()(handle, name);
        value = value == table_ours(row) ? answer_default(row, caller) : exchange(row, value);
    }
    if (value != NULL)
        dlerror(); /* what we looked for in vain on the way is not the caller's error */
    errno = saved_errno;
    return (struct entry_answer){.value = value};
}

CUresult cuInit(unsigned int flags) {
    CUresult result = real.cuInit(flags);
    if (result == CUDA_SUCCESS && agent_is_tenant())
        devices_begun(); /* from here on, cards have CUDA's order */
    return result;
}

/* The agent takes back credit for others. Pools may have shrunk meanwhile; asking them is no more than a question. */
static uint64_t take_credit(int device, uint64_t bytes) {
    struct visit visit;
    if (account_credit(device) < bytes && real_loaded() && visit_agent_enters()) {
        if (visit_begin(&visit, NULL))
            memory_settle_pools(false);
        visit_end(&visit);
        visit_agent_leaves();
    }
    return account_take_credit(device, bytes);
}

/* All that runs before the first CUDA call: the agent learns where to ask. */
__attribute__((constructor)) static void introduce(void) {
    static const struct agent_callbacks callbacks = {.take_credit = take_credit,
        .memory_held = account_held,
        .memory_settled = account_settled,
        .memory_granted = account_granted,
        .devices = devices_list,
        .ungated_lookups = resolve_ungated_lookups};
    agent_init(&callbacks);
}
