/*
 * A word of our own is read as it is, one of another process by process_vm_readv, which needs nothing of that process: it
 * may be stopped. Memory that a program brought itself (cuMemHostRegister) is read so in any case: another thread may
 * have seen the wait end, and unmapped it, while we still look at an older state.
 */
#define _GNU_SOURCE
#include "libhook/sim/model/words.h"

#include <errno.h>
#include <sys/uio.h>

#include "libhook/sim/model/clock.h"

/* The eight bytes around it in one piece: the kernel copies them by whole words, fewer by bytes. 0 or an errno. */
static int read_from(uint64_t owner, uint64_t address, uint64_t *value) {
    int errors = errno;
    struct iovec to = {value, sizeof(*value)}, from = {(void *)(address & ~7ull), sizeof(*value)};
    int error = process_vm_readv((pid_t)(uint32_t)owner, &to, 1, &from, 1, 0) == (ssize_t)sizeof(*value) ? 0 : errno;
    errno = errors;
    return error;
}

static bool load(uint64_t self, uint64_t owner, uint64_t address, uint32_t how, uint64_t *value, bool *known) {
    *known = true;
    if (owner != self || how & SIM_WORD_STRANGE) {
        int error = read_from(owner, address, value);
        if (!error && !(how & SIM_WORD_WIDE))
            *value = (uint32_t)(*value >> (address & 4) * 8);
        if (!error)
            return true;
        if (owner != self || error == EFAULT) /* else a sandbox forbids the call */
            return *known = false;
    }
    *value = how & SIM_WORD_WIDE ? __atomic_load_n((uint64_t *)address, __ATOMIC_ACQUIRE)
                                 : __atomic_load_n((uint32_t *)address, __ATOMIC_ACQUIRE);
    return true;
}

static bool meets(const struct sim_entry *wait, uint64_t is) {
    uint64_t value = wait->until, all = wait->peers & SIM_WORD_WIDE ? UINT64_MAX : UINT32_MAX;
    switch (wait->peers & SIM_WORD_COMPARE) {
    case SIM_WORD_EQUAL: return is == value;
    case SIM_WORD_AND: return (is & value) != 0;
    case SIM_WORD_NOR: return (~(is | value) & all) != 0;
    default:
        return wait->peers & SIM_WORD_WIDE ? (int64_t)(is - value) >= 0
                                           : (int32_t)((uint32_t)is - (uint32_t)value) >= 0;
    }
}

bool words_look(const void *self, uint64_t owner, const struct sim_entry *wait, bool *known, uint64_t *by_ns) {
    uint64_t is;
    bool met = load(*(const uint64_t *)self, owner, wait->arg, wait->peers, &is, known) && meets(wait, is);
    *by_ns = sim_now();
    return met;
}

bool words_look_here(uint64_t self, const struct sim_entry *wait, uint32_t *low) {
    uint64_t is = 0;
    bool known;
    bool met = load(self, self, wait->arg, wait->peers, &is, &known) && meets(wait, is);
    *low = (uint32_t)is;
    return met;
}

void words_store(const struct sim_entry *write) {
    if (write->peers & SIM_WORD_WIDE)
        __atomic_store_n((uint64_t *)write->arg, write->until, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)write->arg, (uint32_t)write->until, __ATOMIC_RELEASE);
}
