#define _GNU_SOURCE
#include "libhook/sim/driver/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRANULE = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *table; /* sorted by address; holes of the heap are BLOCK_FREE */
static size_t blocks, room;
static int memory_fd = -1;
static uint64_t heap_base, heap_bytes;

static size_t lower_bound(uint64_t address) {
    size_t low = 0, high = blocks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert(size_t at, const struct block *what) {
    if (blocks == room) {
        size_t more = room ? 2 * room : 256;
        struct block *grown = realloc(table, more * sizeof(*table));
        if (!grown)
            return false;
        table = grown;
        room = more;
    }
    memmove(&table[at + 1], &table[at], (blocks - at) * sizeof(*table));
    table[at] = *what;
    blocks++;
    return true;
}

static void erase(size_t at) {
    memmove(&table[at], &table[at + 1], (--blocks - at) * sizeof(*table));
}

static bool open_heap(void) {
    int errors = errno;
    memory_fd = memfd_create("gemini-sim-memory", MFD_CLOEXEC);
    for (heap_bytes = 1ull << 43; memory_fd >= 0 && heap_bytes > 1ull << 28; heap_bytes /= 2) {
        if (ftruncate(memory_fd, (off_t)heap_bytes))
            continue;
        void *base = mmap(NULL, heap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_fd, 0);
        if (base != MAP_FAILED) {
            heap_base = (uint64_t)base;
            errno = errors;
            return insert(lower_bound(heap_base), &(struct block){.address = heap_base, .room = heap_bytes});
        }
    }
    return false;
}

uint64_t heap_take(const struct block *what, uint64_t alignment) {
    uint64_t found = 0, need = (what->bytes + GRANULE - 1) / GRANULE * GRANULE;
    pthread_mutex_lock(&lock);
    if (!heap_base && !open_heap())
        goto out;
    for (size_t i = 0; i < blocks; i++) {
        struct block hole = table[i];
        if (hole.kind != BLOCK_FREE)
            continue;
        uint64_t start = (hole.address + alignment - 1) / alignment * alignment;
        if (start + need < start || start + need > hole.address + hole.room)
            continue;
        struct block taken = *what, after = {.address = start + need};
        taken.address = start;
        taken.room = need;
        after.room = hole.address + hole.room - after.address;
        if (start == hole.address)
            erase(i);
        else
            table[i++].room = start - hole.address;
        if (!insert(i, &taken))
            goto out;
        if (after.room)
            insert(i + 1, &after);
        found = start;
        break;
    }
out:
    pthread_mutex_unlock(&lock);
    return found;
}

bool heap_enter(const struct block *what) {
    pthread_mutex_lock(&lock);
    size_t at = lower_bound(what->address);
    if (what->kind == BLOCK_MAPPED) /* behind the reservation with the same start */
        while (at < blocks && table[at].address == what->address && table[at].kind == BLOCK_RESERVED)
            at++;
    bool done = insert(at, what);
    pthread_mutex_unlock(&lock);
    return done;
}

/* The entry that starts at the address; of a reservation and a mapping with one start, the mapping. */
static size_t exact(uint64_t address) {
    size_t at = lower_bound(address);
    while (at + 1 < blocks && table[at + 1].address == address)
        at++;
    return at < blocks && table[at].address == address && table[at].kind != BLOCK_FREE ? at : SIZE_MAX;
}

static void merge_hole(size_t at) {
    if (at + 1 < blocks && table[at + 1].kind == BLOCK_FREE &&
        table[at + 1].address == table[at].address + table[at].room) {
        table[at].room += table[at + 1].room;
        erase(at + 1);
    }
    if (at > 0 && table[at - 1].kind == BLOCK_FREE && table[at - 1].address + table[at - 1].room == table[at].address) {
        table[at - 1].room += table[at].room;
        erase(at);
    }
}

bool heap_give(uint64_t address, struct block *out) {
    pthread_mutex_lock(&lock);
    size_t at = exact(address);
    bool found = at != SIZE_MAX;
    if (found) {
        *out = table[at];
        if (address >= heap_base && address < heap_base + heap_bytes) {
            uint64_t first = (address - heap_base + 4095) & ~4095ull;
            uint64_t last = (address - heap_base + out->room) & ~4095ull;
            int errors = errno;
            if (last > first)
                fallocate(memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first, (off_t)(last - first));
            errno = errors;
            table[at] = (struct block){.address = address, .room = out->room};
            merge_hole(at);
        } else {
            erase(at);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool heap_find(uint64_t address, struct block *out) {
    bool found = false;
    pthread_mutex_lock(&lock);
    size_t at = lower_bound(address + 1);
    while (at-- > 0 && !found) {
        const struct block *b = &table[at];
        uint64_t bytes = b->bytes ? b->bytes : 1;
        if (b->kind != BLOCK_FREE && address - b->address < bytes) {
            *out = *b;
            found = true;
        } else if (b->kind != BLOCK_MAPPED) {
            break; /* only mappings have another block, their reservation, around them */
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool heap_update(uint64_t address, const struct block *what) {
    pthread_mutex_lock(&lock);
    size_t at = exact(address);
    if (at != SIZE_MAX)
        table[at] = *what;
    pthread_mutex_unlock(&lock);
    return at != SIZE_MAX;
}

bool heap_next(uint64_t address, struct block *out) {
    pthread_mutex_lock(&lock);
    size_t at = lower_bound(address);
    while (at < blocks && table[at].kind == BLOCK_FREE)
        at++;
    bool found = at < blocks;
    if (found)
        *out = table[at];
    pthread_mutex_unlock(&lock);
    return found;
}

int heap_descriptor(uint64_t address, uint64_t *offset) {
    *offset = address - heap_base;
    return memory_fd;
}

void heap_forget_all(void) {
    pthread_mutex_init(&lock, NULL);
    if (memory_fd >= 0)
        close(memory_fd);
    if (heap_base)
        munmap((void *)heap_base, heap_bytes);
    free(table);
    table = NULL;
    blocks = room = 0;
    heap_base = heap_bytes = 0;
    memory_fd = -1;
}
