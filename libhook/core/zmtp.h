/*
 * zmtp.h - the ZeroMQ Message Transport Protocol 3.1 (https://rfc.zeromq.org/spec/37/) with the NULL mechanism, as much of
 * it as a DEALER and a ROUTER need that say messages of one frame. Bytes in, messages out: no socket, no clock, no
 * allocation. Both ends of a tenant's connection stand on it: the library's is the DEALER, the daemon's the ROUTER.
 *
 * Nothing that the peer sends is believed: every length is checked before it is used, a message has one frame of at most
 * ZMTP_MESSAGE_MAX bytes, and whatever else comes ends the connection. Of the properties that a peer names only its
 * Socket-Type matters; an Identity may have 255 bytes, and means nothing.
 */
#ifndef GEMINI_CORE_ZMTP_H
#define GEMINI_CORE_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define ZMTP_MESSAGE_MAX 1024
#define ZMTP_HEADER_MAX 9
#define ZMTP_ANSWERS_MAX 256 /* room that greeting, READY and the answers to some PINGs need */

enum zmtp_role { ZMTP_DEALER, ZMTP_ROUTER };
enum zmtp_state { ZMTP_GREETING, ZMTP_HANDSHAKE, ZMTP_READY, ZMTP_BROKEN };
enum zmtp_taken { ZMTP_ALL = 0, ZMTP_MESSAGE = 1, ZMTP_COMMAND = 2 };

struct zmtp {
    int role;
    int state;
    size_t in_size;  /* bytes of `in` that are filled: one greeting, or one frame, not yet complete */
    size_t out_from; /* bytes of `out` that are sent already */
    size_t out_size;
    size_t out_room;
    uint8_t *out;              /* the caller's */
    const uint8_t *message;    /* what zmtp_take() found last: good until the next call */
    size_t message_size;
    uint8_t in[1033]; /* ZMTP_HEADER_MAX + ZMTP_MESSAGE_MAX */
};

/* Begin a connection: the greeting stands in `out`, which has room for ZMTP_ANSWERS_MAX bytes at least. */
void zmtp_start(struct zmtp *zmtp, int role, uint8_t *out, size_t room);

/* Take bytes that were read up to the end of one message or command; `used` is how many. Returns ZMTP_MESSAGE, and the
 * message in `message`; ZMTP_COMMAND for what ended a part of the handshake, or was answered or passed over;
 * ZMTP_ALL where the bytes ended first; or -EPROTO for what is no ZMTP of ours, -E2BIG for a message of several frames,
 * -EMSGSIZE for a frame that is too long, -ENOBUFS where the answer finds no room: then the connection is to be closed,
 * and no more is taken. */
int zmtp_take(struct zmtp *zmtp, const uint8_t *bytes, size_t size, size_t *used);

/* The header of a message of this size (at most ZMTP_MESSAGE_MAX bytes) into `to`; how long it is. */
size_t zmtp_header(uint8_t *to, size_t size);

/* What is to be written, and how much of it was. */
size_t zmtp_pending(const struct zmtp *zmtp, const uint8_t **bytes);
void zmtp_sent(struct zmtp *zmtp, size_t size);
/* cffi: end */

/* Take all bytes; `on_message` is called for each message (it may call zmtp_send). Returns 0, or as zmtp_take(). */
int zmtp_receive(struct zmtp *zmtp, const void *bytes, size_t size,
    void (*on_message)(void *context, const void *message, size_t size), void *context);

/* Queue one message. Returns 0, -ENOTCONN before the handshake is over, -EMSGSIZE, or -ENOBUFS. */
int zmtp_send(struct zmtp *zmtp, const void *message, size_t size);

#endif
