/* zmtp.c - the incremental decoder: one greeting or one frame at a time is gathered in `in` (zmtp.h). */
#include "libhook/core/zmtp.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define GREETING_SIZE 64
#define MORE 0x01
#define LONG 0x02
#define COMMAND 0x04
#define AS_SERVER 32 /* byte of the greeting: 0 with the NULL mechanism */

/* Signature, version 3.1, mechanism NULL, not a server, filler. */
static const uint8_t GREETING[GREETING_SIZE] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1, 'N', 'U', 'L', 'L', [32] = 0};

#define READY_OF(type)                                                                                                 \
    "\5READY"                                                                                                          \
    "\13Socket-Type\0\0\0\6" type "\10Identity\0\0\0\0"
static const char READY[2][sizeof READY_OF("DEALER")] = {READY_OF("DEALER"), READY_OF("ROUTER")};
static const char PEER[2][7] = {"ROUTER", "DEALER"}; /* the Socket-Type of the other end */

static size_t put_header(uint8_t *to, uint8_t flags, size_t size) {
    if (size <= 255) {
        to[0] = flags;
        to[1] = (uint8_t)size;
        return 2;
    }
    to[0] = flags | LONG;
    for (int i = 0; i < 8; i++)
        to[1 + i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
    return ZMTP_HEADER_MAX;
}

size_t zmtp_header(uint8_t *to, size_t size) {
    return put_header(to, 0, size);
}

static int append(struct zmtp *zmtp, uint8_t flags, const void *body, size_t size) {
    uint8_t header[ZMTP_HEADER_MAX];
    size_t header_size = put_header(header, flags, size);

    if (zmtp->out_from) { /* keep the room in one piece; what is pending is short as a rule */
        memmove(zmtp->out, zmtp->out + zmtp->out_from, zmtp->out_size - zmtp->out_from);
        zmtp->out_size -= zmtp->out_from;
        zmtp->out_from = 0;
    }
    if (header_size + size > zmtp->out_room - zmtp->out_size)
        return -ENOBUFS;
    uint8_t *to = zmtp->out + zmtp->out_size;
    memcpy(to, header, header_size);
    memcpy(to + header_size, body, size);
    zmtp->out_size += header_size + size;
    return 0;
}

void zmtp_start(struct zmtp *zmtp, int role, uint8_t *out, size_t room) {
    zmtp->role = role;
    zmtp->state = ZMTP_GREETING;
    zmtp->in_size = zmtp->out_from = zmtp->message_size = 0;
    zmtp->message = NULL;
    zmtp->out = out;
    zmtp->out_room = room;
    memcpy(zmtp->out, GREETING, sizeof GREETING);
    zmtp->out_size = sizeof GREETING;
}

static bool greeting_fits(const uint8_t *in, size_t size, int role) {
    static const char NULL_MECHANISM[20] = "NULL";

    if (size >= 1 && in[0] != 0xFF)
        return false;
    if (size >= 10 && in[9] != 0x7F)
        return false;
    if (size >= 11 && in[10] < 3)
        return false;
    if (size >= 32 && memcmp(in + 12, NULL_MECHANISM, sizeof NULL_MECHANISM) != 0)
        return false;
    return size <= AS_SERVER || role == ZMTP_DEALER || !in[AS_SERVER];
}

/* The properties of READY: that the peer's socket type is the one that we talk to; a DEALER need not say it to us. */
static int check_ready(int role, const uint8_t *body, size_t size) {
    bool typed = role == ZMTP_DEALER;

    while (size) {
        size_t name = body[0];
        if (size < 1 + name + 4)
            return -EPROTO;
        const uint8_t *length = body + 1 + name;
        size_t value = (size_t)length[0] << 24 | (size_t)length[1] << 16 | (size_t)length[2] << 8 | length[3];
        if (value > size - (1 + name + 4))
            return -EPROTO;
        if (name == 11 && !strncasecmp((const char *)body + 1, "Socket-Type", 11)) {
            if (value != 6 || memcmp(length + 4, PEER[role], 6) != 0)
                return -EPROTO;
            typed = true;
        }
        if (name == 8 && !strncasecmp((const char *)body + 1, "Identity", 8) && value > 255)
            return -EPROTO;
        body += 1 + name + 4 + value;
        size -= 1 + name + 4 + value;
    }
    return typed ? 0 : -EPROTO;
}

static bool is_named(const uint8_t *body, const char *name) {
    return body[0] == strlen(name) && !memcmp(body + 1, name, body[0]);
}

static int on_command(struct zmtp *zmtp, const uint8_t *body, size_t size) {
    if (!size || size < 1u + body[0])
        return -EPROTO;
    const uint8_t *rest = body + 1 + body[0];
    size_t left = size - 1 - body[0];

    if (zmtp->state == ZMTP_HANDSHAKE) {
        if (!is_named(body, "READY") || check_ready(zmtp->role, rest, left))
            return -EPROTO;
        zmtp->state = ZMTP_READY;
        return 0;
    }
    if (is_named(body, "PING")) {
        uint8_t pong[5 + 16] = "\4PONG";
        if (left < 2 || left > 2 + 16) /* a time to live, and a context of at most 16 bytes to be echoed */
            return -EPROTO;
        memcpy(pong + 5, rest + 2, left - 2);
        return append(zmtp, COMMAND, pong, 5 + left - 2);
    }
    if (is_named(body, "PONG"))
        return left <= 16 || zmtp->role == ZMTP_DEALER ? 0 : -EPROTO;
    if (is_named(body, "ERROR"))
        return -EPROTO;
    return zmtp->role == ZMTP_DEALER ? 0 : -EPROTO; /* what later daemons may add */
}

/* How many bytes the frame in `in` has in all, as far as that can be told: 0 if more of its header is needed. */
static int frame_size(const struct zmtp *zmtp, size_t *header, size_t *total) {
    const uint8_t *in = zmtp->in;

    *total = 0;
    if (!zmtp->in_size)
        return 0;
    if (in[0] > 7 || (in[0] & (COMMAND | MORE)) == (COMMAND | MORE))
        return -EPROTO;
    if (!(in[0] & COMMAND) && zmtp->state != ZMTP_READY)
        return -EPROTO;
    if (in[0] & MORE)
        return -E2BIG;
    *header = in[0] & LONG ? ZMTP_HEADER_MAX : 2;
    if (zmtp->in_size < *header)
        return 0;
    uint64_t body = in[1];
    if (*header == ZMTP_HEADER_MAX)
        for (int i = 2; i < 9; i++)
            body = body << 8 | in[i];
    if (body > ZMTP_MESSAGE_MAX)
        return -EMSGSIZE;
    *total = *header + (size_t)body;
    return 0;
}

static int on_frame(struct zmtp *zmtp, size_t header, size_t total) {
    if (zmtp->in[0] & COMMAND) {
        int error = on_command(zmtp, zmtp->in + header, total - header);
        return error ? error : ZMTP_COMMAND;
    }
    zmtp->message = zmtp->in + header;
    zmtp->message_size = total - header;
    return ZMTP_MESSAGE;
}

static int on_greeting(struct zmtp *zmtp) {
    if (!greeting_fits(zmtp->in, zmtp->in_size, zmtp->role))
        return -EPROTO;
    if (zmtp->in_size < GREETING_SIZE)
        return ZMTP_ALL;
    zmtp->in_size = 0;
    zmtp->state = ZMTP_HANDSHAKE;
    int error = append(zmtp, COMMAND, READY[zmtp->role], sizeof READY[0] - 1);
    return error ? error : ZMTP_COMMAND;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t gather(struct zmtp *zmtp, const uint8_t *from, size_t size, size_t want) {
    size_t taken = least(want - zmtp->in_size, size);
    memcpy(zmtp->in + zmtp->in_size, from, taken);
    zmtp->in_size += taken;
    return taken;
}

static int take(struct zmtp *zmtp, const uint8_t *from, size_t size, size_t *used) {
    while (*used < size) {
        size_t header = 0, total = 0;
        if (zmtp->state == ZMTP_GREETING) {
            *used += gather(zmtp, from + *used, size - *used, GREETING_SIZE);
            int taken = on_greeting(zmtp);
            if (taken)
                return taken;
            continue;
        }
        int error = frame_size(zmtp, &header, &total);
        if (error)
            return error;
        *used += gather(zmtp, from + *used, size - *used, total ? total : zmtp->in_size < 2 ? 2 : ZMTP_HEADER_MAX);
        error = frame_size(zmtp, &header, &total);
        if (error)
            return error;
        if (total && zmtp->in_size == total) {
            zmtp->in_size = 0; /* its bytes stay until the next call */
            return on_frame(zmtp, header, total);
        }
    }
    return ZMTP_ALL;
}

int zmtp_take(struct zmtp *zmtp, const uint8_t *bytes, size_t size, size_t *used) {
    *used = 0;
    if (zmtp->state == ZMTP_BROKEN)
        return -EPROTO;
    int taken = take(zmtp, bytes, size, used);
    if (taken < 0)
        zmtp->state = ZMTP_BROKEN;
    return taken;
}

int zmtp_receive(struct zmtp *zmtp, const void *bytes, size_t size,
    void (*on_message)(void *context, const void *message, size_t size), void *context) {
    const uint8_t *from = bytes;

    for (;;) {
        size_t used;
        int taken = zmtp_take(zmtp, from, size, &used);
        if (taken <= ZMTP_ALL)
            return taken;
        from += used;
        size -= used;
        if (taken == ZMTP_MESSAGE)
            on_message(context, zmtp->message, zmtp->message_size);
    }
}

int zmtp_send(struct zmtp *zmtp, const void *message, size_t size) {
    if (zmtp->state != ZMTP_READY)
        return -ENOTCONN;
    if (size > ZMTP_MESSAGE_MAX)
        return -EMSGSIZE;
    return append(zmtp, 0, message, size);
}

size_t zmtp_pending(const struct zmtp *zmtp, const uint8_t **bytes) {
    *bytes = zmtp->out + zmtp->out_from;
    return zmtp->out_size - zmtp->out_from;
}

void zmtp_sent(struct zmtp *zmtp, size_t size) {
    zmtp->out_from += size;
    if (zmtp->out_from == zmtp->out_size)
        zmtp->out_from = zmtp->out_size = 0;
}
