/*
 * zmtp.h - the ZeroMQ Message Transport Protocol 3.1 (https://rfc.zeromq.org/spec/37/), as much of it as a DEALER with the
 * NULL mechanism needs to talk to a ROUTER. Bytes in, messages out: no socket, no clock, no allocation.
 *
 * The peer is the node daemon (libzmq), but nothing it sends is believed: every length is checked before it is used, a
 * message has one frame of at most ZMTP_MESSAGE_MAX bytes, and whatever else comes ends the connection (-EPROTO).
 */
#ifndef GEMINI_RUNTIME_ZMTP_H
#define GEMINI_RUNTIME_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZMTP_MESSAGE_MAX 1024
#define ZMTP_OUT_MAX 65536

enum zmtp_state { ZMTP_GREETING, ZMTP_HANDSHAKE, ZMTP_READY, ZMTP_BROKEN };

struct zmtp {
    enum zmtp_state state;
    size_t in_size;  /* bytes of `in` that are filled: one greeting, or one frame, not yet complete */
    size_t out_from; /* bytes of `out` that are sent already */
    size_t out_size;
    uint8_t in[9 + ZMTP_MESSAGE_MAX];
    uint8_t out[ZMTP_OUT_MAX];
};

/* Begin a connection: the greeting stands in `out`. */
void zmtp_start(struct zmtp *zmtp);

/* Take bytes that were read; `on_message` is called for each complete message (it may call zmtp_send). Returns 0, or
 * -EPROTO for what is no ZMTP of ours, -EMSGSIZE for a frame that is too long, -ENOBUFS where the answer finds no room:
 * the connection is to be closed, and `zmtp` takes no more. */
int zmtp_receive(struct zmtp *zmtp, const void *bytes, size_t size,
    void (*on_message)(void *context, const void *message, size_t size), void *context);

/* Queue one message. Returns 0, -ENOTCONN before the handshake is over, -EMSGSIZE, or -ENOBUFS. */
int zmtp_send(struct zmtp *zmtp, const void *message, size_t size);

/* What is to be written, and how much of it was. */
size_t zmtp_pending(const struct zmtp *zmtp, const void **bytes);
void zmtp_sent(struct zmtp *zmtp, size_t size);

#endif
