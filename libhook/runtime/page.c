/* page.c - receive the daemon's page, look at its seals, and map it in place of our own (page.h). */
#define _GNU_SOURCE
#include "libhook/runtime/page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "libhook/runtime/log.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define PAGE_BYTES ((sizeof(struct wire_page) + 4095) & ~4095ul)
/* Without these the daemon's file could shrink under us (SIGBUS in a stranger's process). */
#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW)

int page_open(struct page *page) {
    page->fd = -1;
    page->state = PAGE_NONE;
    void *map = mmap(page->map, PAGE_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | (page->map ? MAP_FIXED : 0), -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    page->map = map;
    return 0;
}

void page_connect(struct page *page, const char *socket_path, uint64_t client_nonce) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct wire_page_hello hello = {.magic = WIRE_MAGIC, .version = WIRE_VERSION, .client_nonce = client_nonce};
    size_t length = strlen(socket_path);

    if (length + sizeof ".page" > sizeof address.sun_path)
        return;
    memcpy(address.sun_path, socket_path, length);
    memcpy(address.sun_path + length, ".page", sizeof ".page");
    page->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (page->fd < 0)
        return;
    if (connect(page->fd, (struct sockaddr *)&address, sizeof address) ||
        send(page->fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello) {
        close(page->fd);
        page->fd = -1;
        return;
    }
    page->state = PAGE_WAITING;
}

static int take(struct page *page, int memory, const struct wire_page_offer *offer) {
    struct stat stat;

    if (offer->magic != WIRE_MAGIC || offer->version != WIRE_VERSION)
        return -EPROTO;
    if (fstat(memory, &stat) || !S_ISREG(stat.st_mode) || stat.st_size < (off_t)sizeof(struct wire_page) ||
        offer->size < sizeof(struct wire_page))
        return -EINVAL;
    int seals = fcntl(memory, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED || !(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
        return -EPERM;
    /* Look before it takes the place of the local words. */
    const struct wire_page *view = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, memory, 0);
    if (view == MAP_FAILED)
        return -errno;
    bool fits = view->magic == WIRE_MAGIC && view->version == WIRE_VERSION && view->incarnation == offer->incarnation;
    munmap((void *)view, PAGE_BYTES);
    if (!fits)
        return -EPROTO;
    if (mmap(page->map, PAGE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, memory, 0) == MAP_FAILED)
        return -errno;
    return 0;
}

bool page_step(struct page *page) {
    struct wire_page_offer offer;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = &offer, .iov_len = sizeof offer};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t count = recvmsg(page->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    int memory = -1;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    for (struct cmsghdr *header = count > 0 ? CMSG_FIRSTHDR(&message) : NULL; header;
        header = CMSG_NXTHDR(&message, header))
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && memory < 0)
            memcpy(&memory, CMSG_DATA(header), sizeof memory);
    if (page->state != PAGE_WAITING || count <= 0) { /* closed by the daemon, or chatter that we do not know */
        if (memory >= 0)
            close(memory);
        if (count <= 0)
            page_disconnect(page, false);
        return false;
    }
    int error = count == (ssize_t)sizeof offer && memory >= 0 ? take(page, memory, &offer) : -EPROTO;
    if (memory >= 0)
        close(memory);
    if (error) {
        log_line(LOG_WARN, "the daemon's page cannot be used (%s); going on by messages alone", strerror(-error));
        page->state = PAGE_NONE; /* the connection stays: it is how the daemon knows of our death */
        return false;
    }
    page->state = PAGE_MAPPED;
    return true;
}

/* An own page with the same words takes the place of the daemon's, in one step: no thread sees anything between. */
static void go_local(struct page *page) {
    struct wire_page *own = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (own == MAP_FAILED)
        return; /* the old page stays: its words fit no new grant, so the gate stays closed */
    for (uint32_t slot = 0; slot < WIRE_MAX_DEVICES; slot++)
        wire_page_store_epoch(own, slot, wire_page_load_epoch(page->map, slot));
    if (mremap(own, PAGE_BYTES, PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, page->map) == MAP_FAILED) {
        munmap(own, PAGE_BYTES);
        return;
    }
    page->state = PAGE_NONE;
}

void page_disconnect(struct page *page, bool local) {
    if (page->fd >= 0)
        close(page->fd);
    page->fd = -1;
    if (local && page->state == PAGE_MAPPED)
        go_local(page);
    if (page->state == PAGE_WAITING)
        page->state = PAGE_NONE;
}

void page_store_local(struct page *page, uint32_t slot, uint64_t epoch) {
    if (page->state != PAGE_MAPPED)
        wire_page_store_epoch(page->map, slot, epoch);
}

void page_tell_drained(
    const struct page *page, uint32_t slot, uint64_t epoch, uint16_t flags, const struct wire_return *message) {
    struct {
        struct wire_page_drained word;
        struct wire_return behind;
    } out = {.word = {.magic = WIRE_MAGIC, .page_slot = (uint16_t)slot, .flags = flags, .epoch = epoch}};
    size_t size = sizeof out.word;

    if (page->state != PAGE_MAPPED || page->fd < 0)
        return;
    if (message && page->map->features & WIRE_PAGE_TAKES_RETURNS) {
        out.word.flags |= WIRE_DRAINED_RETURN;
        out.behind = *message;
        size = sizeof out;
    }
    send(page->fd, &out, size, MSG_DONTWAIT | MSG_NOSIGNAL); /* a hint: if it is lost, the Return says it too */
}

bool page_has_taken(const struct page *page, uint32_t slot, uint64_t epoch) {
    return page->state == PAGE_MAPPED && __atomic_load_n(&page->map->gpu[slot].taken, __ATOMIC_ACQUIRE) == epoch;
}
