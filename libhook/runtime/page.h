/*
 * page.h - the daemon's page (struct wire_page in core/wire.h), as this process sees it.
 *
 * The memory that page_of_process() points to stays mapped at one address for the life of the process. At first it is
 * an own, writable page (the local words, which the agent stores itself). When the daemon's read-only page has come,
 * page_step() puts it over that, in one mmap(MAP_FIXED). Launching threads may therefore read it at any time.
 *
 * Owned by the agent thread, like the link; it never blocks.
 */
#ifndef GEMINI_RUNTIME_PAGE_H
#define GEMINI_RUNTIME_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "libhook/core/wire.h"

enum page_state { PAGE_NONE, PAGE_WAITING, PAGE_MAPPED };

struct page {
    enum page_state state;
    int fd; /* the connection, kept open: the daemon knows us by it; -1: none */
    struct wire_page *map;
};

int page_open(struct page *page); /* the local page; returns 0 or -errno */
/* Connect to SOCKET.page and ask for the page. Failing is no fault: the local words go on. */
void page_connect(struct page *page, const char *socket_path, uint64_t client_nonce);
/* The descriptor is readable: take the page. Returns true when the daemon's page has just been mapped. */
bool page_step(struct page *page);
/* The connection was lost, or another daemon is there. With `local` the own words take the daemon's place. */
void page_disconnect(struct page *page, bool local);
/* Tell the daemon on the short way that nothing launched under this epoch runs any more; the Return follows, or goes
 * with it where it is not NULL and this daemon takes it so (page_has_taken). `flags`: WIRE_DRAINED_*. */
void page_tell_drained(
    const struct page *page, uint32_t slot, uint64_t epoch, uint16_t flags, const struct wire_return *message);
/* Has the daemon the Return of this epoch, behind its word? Ask when the page shows the epoch no more. */
bool page_has_taken(const struct page *page, uint32_t slot, uint64_t epoch);
/* Without the daemon's page: what the daemon would have stored. */
void page_store_local(struct page *page, uint32_t slot, uint64_t epoch);

#endif
