/* log.c - one write() per line, or none (log.h). */
#include "libhook/runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libhook/runtime/cancel.h"

#define LINE_MAX_BYTES 512

static int threshold = LOG_ERROR;
static char path[256];

void log_configure(int level, const char *file) {
    snprintf(path, sizeof path, "%s", file);
    __atomic_store_n(&threshold, level, __ATOMIC_RELEASE);
}

bool log_wants(enum log_level level) {
    return (int)level <= __atomic_load_n(&threshold, __ATOMIC_RELAXED);
}

/* A pipe without a reader would raise SIGPIPE, a full one would block us: look before writing. */
static bool writable(int fd) {
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    return poll(&ready, 1, 0) == 1 && (ready.revents & (POLLOUT | POLLERR | POLLNVAL)) == POLLOUT;
}

void log_line(enum log_level level, const char *format, ...) {
    char line[LINE_MAX_BYTES];
    va_list arguments;

    if (!log_wants(level))
        return;
    int saved = errno, cancel = cancel_hold();
    int length = snprintf(line, sizeof line, "gemini: ");
    va_start(arguments, format);
    int more = vsnprintf(line + length, sizeof line - 1 - (size_t)length, format, arguments);
    va_end(arguments);
    if (more > 0)
        length += more;
    if (length > LINE_MAX_BYTES - 2)
        length = LINE_MAX_BYTES - 2;
    line[length++] = '\n';
    int fd =
        path[0] ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644) : STDERR_FILENO;
    if (fd >= 0 && writable(fd)) {
        ssize_t written;
        do
            written = write(fd, line, (size_t)length);
        while (written < 0 && errno == EINTR);
    }
    if (path[0] && fd >= 0)
        close(fd);
    cancel_release(cancel);
    errno = saved;
}
