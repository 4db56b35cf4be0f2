/* mark.c - marks on descriptors of exported memory (mark.h). */
#define _GNU_SOURCE
#include "libhook/hooks/mark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libhook/core/wire.h"

static const uint64_t FROM = 1ull << 62; /* marks begin here; with the longest of them a lock ends below 2^63 */
static const uint64_t LONGEST = 1ull << 60;

void mark_set(int fd, uint64_t mark, uint64_t bytes) {
    int kept = errno;
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    if (mark != 0 && mark < WIRE_MARKS && bytes != 0 && bytes <= LONGEST) {
        lock.l_start = (off_t)(FROM + mark);
        lock.l_len = (off_t)bytes;
        (void)fcntl(fd, F_OFD_SETLK, &lock);
    }
    errno = kept;
}

/* Of decimal digits alone, and no more than an offset may be; 0 else. No function of the C library that newer ones have
 * under another name. */
static uint64_t number(const char *text) {
    uint64_t found = 0;

    for (; *text; text++) {
        if (*text < '0' || *text > '9' || found > INT64_MAX / 10)
            return 0;
        found = found * 10 + (uint64_t)(*text - '0');
    }
    return found;
}

/* "lock:  1: OFDLCK ADVISORY  READ -1 00:01:42 4611686018427387905 4611686018429485056" */
static uint64_t read_line(char *line, uint64_t *bytes) {
    enum { WORDS = 9, KIND = 2, HOW = 4, START = 7, END = 8 };
    char *word[WORDS], *rest = line;
    int words = 0;

    while (words < WORDS && (word[words] = strtok_r(rest, " \t", &rest)) != NULL)
        words++;
    if (words < WORDS || strcmp(word[0], "lock:") != 0 || strcmp(word[KIND], "OFDLCK") != 0 ||
        strcmp(word[HOW], "READ") != 0)
        return 0;
    uint64_t start = number(word[START]), end = number(word[END]);
    if (start <= FROM || start - FROM >= WIRE_MARKS || end < start || end - start >= LONGEST)
        return 0;
    *bytes = end - start + 1;
    return start - FROM;
}

uint64_t mark_get(int fd, uint64_t *bytes) {
    char path[40], text[4096];
    int kept = errno;
    uint64_t mark = 0;
    size_t size = 0;

    *bytes = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    while (info >= 0 && size < sizeof text - 1) {
        ssize_t count = read(info, text + size, sizeof text - 1 - size);
        if (count <= 0)
            break;
        size += (size_t)count;
    }
    if (info >= 0)
        close(info);
    text[size] = 0;
    char *rest = text, *line;
    while (mark == 0 && (line = strtok_r(rest, "\n", &rest)) != NULL)
        mark = read_line(line, bytes);
    errno = kept;
    return mark;
}
