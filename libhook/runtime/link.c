/* link.c - connect, read, write, come back (link.h). */
#include "libhook/runtime/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKOFF_FIRST_NS 5000000ull
#define BACKOFF_LAST_NS 100000000ull
#define HANDSHAKE_NS 2000000000ull

void link_open(struct link *link, const char *path, const struct link_events *events, void *context) {
    memset(link, 0, sizeof *link);
    strncpy(link->path, path, sizeof link->path - 1);
    link->fd = -1;
    link->zmtp.out = link->out;
    link->backoff_ns = BACKOFF_FIRST_NS;
    link->events = events;
    link->context = context;
}

void link_close(struct link *link) {
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->up = false;
}

static void go_down(struct link *link, int error, uint64_t now_ns) {
    bool tell = link->up || !link->told_down;

    link_close(link);
    link->retry_ns = now_ns + link->backoff_ns;
    link->backoff_ns = link->backoff_ns * 2 > BACKOFF_LAST_NS ? BACKOFF_LAST_NS : link->backoff_ns * 2;
    link->told_down = true;
    if (tell)
        link->events->on_down(link->context, error);
}

static void try_connect(struct link *link, uint64_t now_ns) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, link->path, sizeof address.sun_path);
    link->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    link->lacking = link->fd < 0 ? -errno : 0;
    if (link->fd < 0 || connect(link->fd, (struct sockaddr *)&address, sizeof address)) {
        go_down(link, -errno, now_ns); /* also EAGAIN: the daemon's backlog is full */
        return;
    }
    link->handshake_end_ns = now_ns + HANDSHAKE_NS;
    zmtp_start(&link->zmtp, ZMTP_DEALER, link->out, sizeof link->out);
}

static void message_arrived(void *context, const void *message, size_t size) {
    struct link *link = context;
    link->events->on_message(link->context, message, size);
}

static int read_all(struct link *link) {
    char bytes[4096];

    for (;;) {
        ssize_t count = recv(link->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count == 0)
            return -ECONNRESET;
        if (count < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        int before = link->zmtp.state;
        /* The handshake's end is told before the first message: feed that part on its own is not needed, for the
         * daemon says nothing before our Hello. */
        int error = zmtp_receive(&link->zmtp, bytes, (size_t)count, message_arrived, link);
        if (error)
            return error;
        if (before != ZMTP_READY && link->zmtp.state == ZMTP_READY) {
            link->up = true;
            link->told_down = false;
            link->backoff_ns = BACKOFF_FIRST_NS;
            link->events->on_up(link->context);
        }
        if (count < (ssize_t)sizeof bytes)
            return 0;
    }
}

static int write_all(struct link *link) {
    const uint8_t *bytes;
    size_t size;

    while ((size = zmtp_pending(&link->zmtp, &bytes))) {
        ssize_t count = send(link->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        zmtp_sent(&link->zmtp, (size_t)count);
    }
    return 0;
}

void link_step(struct link *link, short ready, uint64_t now_ns) {
    int error = 0;

    if (link->fd < 0) {
        if (now_ns < link->retry_ns)
            return;
        try_connect(link, now_ns);
        if (link->fd < 0)
            return;
        ready = POLLOUT;
    }
    if (ready & (POLLIN | POLLHUP | POLLERR))
        error = read_all(link);
    if (!error)
        error = write_all(link);
    if (!error && !link->up && now_ns >= link->handshake_end_ns)
        error = -ETIMEDOUT;
    if (error)
        go_down(link, error, now_ns);
}

void link_drop(struct link *link, uint64_t now_ns, uint64_t wait_ns) {
    if (link->fd < 0)
        return;
    go_down(link, -ECONNREFUSED, now_ns);
    link->retry_ns = now_ns + wait_ns;
}

short link_interest(const struct link *link) {
    const uint8_t *bytes;
    return (short)(POLLIN | (zmtp_pending(&link->zmtp, &bytes) ? POLLOUT : 0));
}

uint64_t link_deadline(const struct link *link) {
    if (link->fd < 0)
        return link->retry_ns;
    return link->up ? UINT64_MAX : link->handshake_end_ns;
}

int link_send(struct link *link, const void *message, size_t size) {
    if (!link->up)
        return -ENOTCONN;
    int error = zmtp_send(&link->zmtp, message, size);
    if (!error)
        error = write_all(link);
    if (error) /* a daemon that reads no more, or is gone: the next step finds the descriptor closed */
        shutdown(link->fd, SHUT_RDWR);
    return error;
}
