/* zmtp.c - the incremental decoder: one greeting or one frame at a time is gathered in `in` (zmtp.h). */
#include "libhook/runtime/zmtp.h"

#include <errno.h>
#include <string.h>

#define GREETING_SIZE 64
#define MORE 0x01
#define LONG 0x02
#define COMMAND 0x04

/* Signature, version 3.1, mechanism NULL, not a server, filler. */
static const uint8_t GREETING[GREETING_SIZE] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1, 'N', 'U', 'L', 'L', [32] = 0};

static const char READY[] = "\5READY"
                            "\13Socket-Type\0\0\0\6DEALER"
                            "\10Identity\0\0\0\0";

static int append(struct zmtp *zmtp, uint8_t flags, const void *body, size_t size) {
    size_t header = size > 255 ? 9 : 2;

    if (zmtp->out_from) { /* keep the room in one piece; what is pending is short as a rule */
        memmove(zmtp->out, zmtp->out + zmtp->out_from, zmtp->out_size - zmtp->out_from);
        zmtp->out_size -= zmtp->out_from;
        zmtp->out_from = 0;
    }
    if (header + size > sizeof zmtp->out - zmtp->out_size)
        return -ENOBUFS;
    uint8_t *to = zmtp->out + zmtp->out_size;
    to[0] = flags | (header == 9 ? LONG : 0);
    if (header == 2)
        to[1] = (uint8_t)size;
    else
        for (int i = 0; i < 8; i++)
            to[1 + i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
    memcpy(to + header, body, size);
    zmtp->out_size += header + size;
    return 0;
}

void zmtp_start(struct zmtp *zmtp) {
    zmtp->state = ZMTP_GREETING;
    zmtp->in_size = zmtp->out_from = 0;
    memcpy(zmtp->out, GREETING, sizeof GREETING);
    zmtp->out_size = sizeof GREETING;
}

static bool greeting_fits(const uint8_t *in, size_t size) {
    static const char NULL_MECHANISM[20] = "NULL";

    if (size >= 1 && in[0] != 0xFF)
        return false;
    if (size >= 10 && in[9] != 0x7F)
        return false;
    if (size >= 11 && in[10] < 3)
        return false;
    return size < 32 || !memcmp(in + 12, NULL_MECHANISM, sizeof NULL_MECHANISM);
}

/* The properties of READY: only the peer's socket type matters. */
static int check_ready(const uint8_t *body, size_t size) {
    while (size) {
        size_t name = body[0];
        if (size < 1 + name + 4)
            return -EPROTO;
        const uint8_t *length = body + 1 + name;
        size_t value = (size_t)length[0] << 24 | (size_t)length[1] << 16 | (size_t)length[2] << 8 | length[3];
        if (value > size - (1 + name + 4))
            return -EPROTO;
        if (name == 11 && !strncasecmp((const char *)body + 1, "Socket-Type", 11) &&
            (value != 6 || memcmp(length + 4, "ROUTER", 6)))
            return -EPROTO;
        body += 1 + name + 4 + value;
        size -= 1 + name + 4 + value;
    }
    return 0;
}

static int on_command(struct zmtp *zmtp, const uint8_t *body, size_t size) {
    if (!size || size < 1u + body[0])
        return -EPROTO;
    size_t name = body[0];
    const uint8_t *rest = body + 1 + name;
    size_t left = size - 1 - name;

    if (zmtp->state == ZMTP_HANDSHAKE) {
        if (name != 5 || memcmp(body + 1, "READY", 5) || check_ready(rest, left))
            return -EPROTO;
        zmtp->state = ZMTP_READY;
        return 0;
    }
    if (name == 4 && !memcmp(body + 1, "PING", 4)) {
        uint8_t pong[5 + 16] = "\4PONG";
        if (left < 2 || left > 2 + 16) /* a time to live, and a context of at most 16 bytes to be echoed */
            return -EPROTO;
        memcpy(pong + 5, rest + 2, left - 2);
        return append(zmtp, COMMAND, pong, 5 + left - 2);
    }
    if (name == 5 && !memcmp(body + 1, "ERROR", 5))
        return -EPROTO;
    return 0; /* PONG, and what later versions may add */
}

/* How many bytes the frame in `in` has in all, as far as that can be told: 0 if more of its header is needed. */
static int frame_size(const struct zmtp *zmtp, size_t *header, size_t *total) {
    const uint8_t *in = zmtp->in;

    *total = 0;
    if (zmtp->in_size < 2)
        return zmtp->in_size && in[0] > 7 ? -EPROTO : 0;
    if (in[0] > 7 || (in[0] & (COMMAND | MORE)) == (COMMAND | MORE))
        return -EPROTO;
    *header = in[0] & LONG ? 9 : 2;
    if (zmtp->in_size < *header)
        return 0;
    uint64_t body = in[1];
    if (*header == 9)
        for (int i = 2; i < 9; i++)
            body = body << 8 | in[i];
    if (*header == 9 && in[1])
        return -EMSGSIZE; /* the top byte of 64 bits is set */
    if (body > ZMTP_MESSAGE_MAX)
        return -EMSGSIZE;
    *total = *header + (size_t)body;
    return 0;
}

static int on_frame(struct zmtp *zmtp, size_t header, size_t total,
    void (*on_message)(void *context, const void *message, size_t size), void *context) {
    uint8_t flags = zmtp->in[0];

    if (flags & COMMAND)
        return on_command(zmtp, zmtp->in + header, total - header);
    if (zmtp->state != ZMTP_READY || (flags & MORE))
        return -EPROTO;
    on_message(context, zmtp->in + header, total - header);
    return 0;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static int receive(struct zmtp *zmtp, const uint8_t *from, size_t size,
    void (*on_message)(void *context, const void *message, size_t size), void *context) {
    while (size) {
        size_t want, header = 0, total = 0;
        if (zmtp->state == ZMTP_GREETING) {
            want = GREETING_SIZE - zmtp->in_size;
        } else {
            int error = frame_size(zmtp, &header, &total);
            if (error)
                return error;
            if (total)
                want = total - zmtp->in_size;
            else
                want = zmtp->in_size < 2 ? 2 - zmtp->in_size : 9 - zmtp->in_size;
        }
        size_t taken = least(want, size);
        memcpy(zmtp->in + zmtp->in_size, from, taken);
        zmtp->in_size += taken;
        from += taken;
        size -= taken;
        if (zmtp->state == ZMTP_GREETING) {
            if (!greeting_fits(zmtp->in, zmtp->in_size))
                return -EPROTO;
            if (zmtp->in_size < GREETING_SIZE)
                return 0;
            zmtp->in_size = 0;
            zmtp->state = ZMTP_HANDSHAKE;
            int error = append(zmtp, COMMAND, READY, sizeof READY - 1);
            if (error)
                return error;
            continue;
        }
        int error = frame_size(zmtp, &header, &total);
        if (!error && total && zmtp->in_size == total) {
            error = on_frame(zmtp, header, total, on_message, context);
            zmtp->in_size = 0;
        }
        if (error)
            return error;
    }
    return 0;
}

int zmtp_receive(struct zmtp *zmtp, const void *bytes, size_t size,
    void (*on_message)(void *context, const void *message, size_t size), void *context) {
    if (zmtp->state == ZMTP_BROKEN)
        return -EPROTO;
    int error = receive(zmtp, bytes, size, on_message, context);
    if (error)
        zmtp->state = ZMTP_BROKEN;
    return error;
}

int zmtp_send(struct zmtp *zmtp, const void *message, size_t size) {
    if (zmtp->state != ZMTP_READY)
        return -ENOTCONN;
    if (size > ZMTP_MESSAGE_MAX)
        return -EMSGSIZE;
    return append(zmtp, 0, message, size);
}

size_t zmtp_pending(const struct zmtp *zmtp, const void **bytes) {
    *bytes = zmtp->out + zmtp->out_from;
    return zmtp->out_size - zmtp->out_from;
}

void zmtp_sent(struct zmtp *zmtp, size_t size) {
    zmtp->out_from += size;
    if (zmtp->out_from == zmtp->out_size)
        zmtp->out_from = zmtp->out_size = 0;
}
