/*
 * handover_stamp.c - preloaded in front of the library by bench/handover.py: notes when the agent has seen its work
 * drained. The agent then says so on the page connection (struct wire_page_drained) or, without one, in its Return; both
 * go out by send(), which this stands in front of. One line a message to the file that GEMINI_STAMP names: the time
 * (CLOCK_MONOTONIC ns) before the send, and the message's size. It decides nothing and changes nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/core/wire.h"

static int stamps = -1;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("GEMINI_STAMP");
    if (path)
        stamps = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* A Return behind the ZMTP frame's head of 2 or 9 bytes, or the bare word. */
static int says_drained(const unsigned char *bytes, size_t size) {
    struct wire_page_drained word;
    struct wire_header header;

    if (size == sizeof word || size == sizeof word + sizeof(struct wire_return)) { /* which may stand behind it */
        memcpy(&word, bytes, sizeof word);
        if (word.magic == WIRE_MAGIC)
            return word.epoch != 0;
    }
    for (size_t head = 2; head <= 9; head += 7)
        if (size == head + sizeof(struct wire_return)) {
            memcpy(&header, bytes + head, sizeof header);
            return header.magic == WIRE_MAGIC && header.type == WIRE_RETURN;
        }
    return 0;
}

ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    if (stamps >= 0 && says_drained(bytes, size)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t entry[2] = {(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, size};
        if (write(stamps, entry, sizeof entry) < 0)
            stamps = -1;
    }
    return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
}
