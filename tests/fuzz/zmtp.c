/*
 * zmtp.c - the ZMTP decoder on bytes from a peer that is not to be believed.
 *
 * Three decoders hear the same bytes: one in a single piece, one in pieces of random size, and one that answers each
 * message while its output is taken away haltingly. What the first two say is compared with a second reading of the
 * protocol (expected(), below: written from the RFC and zmtp.h, for the whole stream at once).
 */
#include <string.h>
#include <strings.h>

#include "libhook/core/zmtp.h"
#include "tests/fuzz/fuzz.h"

#define OUT_MAX 65536

struct heard {
    struct zmtp *echo; /* answer each message on this one, or NULL */
    uint64_t hash;
    unsigned messages;
};

static uint64_t mix(uint64_t hash, const uint8_t *bytes, size_t size) {
    hash = (hash ^ size) * 0x100000001B3ull;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001B3ull;
    return hash;
}

static void on_message(void *context, const void *message, size_t size) {
    struct heard *heard = context;

    fuzz_require(size <= ZMTP_MESSAGE_MAX);
    heard->hash = mix(heard->hash, message, size);
    heard->messages++;
    if (heard->echo) {
        int error = zmtp_send(heard->echo, message, size);
        fuzz_require(error == 0 || heard->echo->out_size > OUT_MAX - ZMTP_MESSAGE_MAX - 9);
    }
}

static void sound(const struct zmtp *zmtp) {
    fuzz_require(zmtp->in_size <= sizeof zmtp->in && zmtp->out_size <= zmtp->out_room);
    fuzz_require(zmtp->out_from <= zmtp->out_size && zmtp->state <= ZMTP_BROKEN);
}

/* Properties of READY: pairs of (name, value); a Socket-Type must say ROUTER. */
static int ready_fits(const uint8_t *at, const uint8_t *end) {
    while (at != end) {
        const uint8_t *name = at + 1, *value = name + *at + 4;
        if (value > end)
            return 0;
        uint64_t size = (uint64_t)value[-4] << 24 | (uint64_t)value[-3] << 16 | (uint64_t)value[-2] << 8 | value[-1];
        if (size > (uint64_t)(end - value))
            return 0;
        if (*at == 11 && !strncasecmp((const char *)name, "Socket-Type", 11) &&
            !(size == 6 && !memcmp(value, "ROUTER", 6)))
            return 0;
        at = value + size;
    }
    return 1;
}

/* What a decoder has to say of the whole stream: its messages, and whether it is broken at the end. */
static int expected(const uint8_t *data, size_t size, struct heard *heard) {
    static const char NULL_MECHANISM[20] = "NULL";
    int ready = 0;

    if ((size >= 1 && data[0] != 0xFF) || (size >= 10 && data[9] != 0x7F) || (size >= 11 && data[10] < 3) ||
        (size >= 32 && memcmp(data + 12, NULL_MECHANISM, 20) != 0))
        return 1;
    if (size < 64)
        return 0;
    const uint8_t *at = data + 64, *end = data + size;
    while (at != end) {
        int is_long = *at & 2, command = *at & 4;
        uint64_t length = 0;
        if (end - at < 2 || end - at < (is_long ? 9 : 2))
            return 0; /* may be refused already for what is there: see the caller */
        if (*at > 7 || (command && *at & 1))
            return 1;
        for (int i = 1; i < (is_long ? 9 : 2); i++)
            length = length << 8 | at[i];
        if (length > ZMTP_MESSAGE_MAX)
            return 1;
        const uint8_t *body = at + (is_long ? 9 : 2);
        if (length > (uint64_t)(end - body))
            return 0;
        at = body + length;
        if (!command) {
            if (!ready || body[is_long ? -9 : -2] & 1)
                return 1;
            on_message(heard, body, length);
            continue;
        }
        if (!length || length < 1u + *body)
            return 1;
        const uint8_t *rest = body + 1 + *body;
        if (!ready) {
            if (*body != 5 || memcmp(body + 1, "READY", 5) != 0 || !ready_fits(rest, at))
                return 1;
            ready = 1;
        } else if (*body == 4 && !memcmp(body + 1, "PING", 4)) {
            if (at - rest < 2 || at - rest > 18)
                return 1;
        } else if (*body == 5 && !memcmp(body + 1, "ERROR", 5)) {
            return 1;
        }
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct zmtp whole, pieces, echo;
    static uint8_t out[3][OUT_MAX];
    struct heard of_whole = {0}, of_pieces = {0}, of_echo = {.echo = &echo}, reference = {0};

    if (size < 8)
        return 0;
    uint64_t chunk_seed = 0;
    memcpy(&chunk_seed, data, 8); /* how to cut what follows */
    data += 8;
    size -= 8;
    zmtp_start(&whole, ZMTP_DEALER, out[0], OUT_MAX);
    zmtp_start(&pieces, ZMTP_DEALER, out[1], OUT_MAX);
    zmtp_start(&echo, ZMTP_DEALER, out[2], OUT_MAX);
    int broken = expected(data, size, &reference);
    int error = zmtp_receive(&whole, data, size, on_message, &of_whole);
    int in_pieces = 0, in_echo = 0;
    for (size_t at = 0; at < size;) {
        chunk_seed = chunk_seed * 6364136223846793005ull + 1442695040888963407ull;
        size_t length = 1 + (size_t)(chunk_seed >> 33) % (chunk_seed & 1 << 16 ? 700 : 12);
        if (length > size - at)
            length = size - at;
        /* A copy of just that size: reading past its end is seen. */
        uint8_t *piece = malloc(length);
        memcpy(piece, data + at, length);
        int before = pieces.state == ZMTP_BROKEN;
        unsigned messages = of_pieces.messages;
        in_pieces = zmtp_receive(&pieces, piece, length, on_message, &of_pieces);
        fuzz_require(!before || (in_pieces && messages == of_pieces.messages));
        in_echo = zmtp_receive(&echo, piece, length, on_message, &of_echo);
        free(piece);
        sound(&pieces);
        sound(&echo);
        const uint8_t *bytes;
        size_t pending = zmtp_pending(&echo, &bytes);
        fuzz_require(pending <= OUT_MAX);
        zmtp_sent(&echo, pending / 2);
        at += length;
    }
    sound(&whole);
    fuzz_require(!error == !in_pieces && whole.state == pieces.state && (error != 0) == (whole.state == ZMTP_BROKEN));
    fuzz_require(of_whole.hash == of_pieces.hash && of_whole.messages == of_pieces.messages);
    fuzz_require(error || (whole.in_size == pieces.in_size && whole.out_size == pieces.out_size));
    fuzz_require(error || in_echo == 0 || in_echo == -105 /* ENOBUFS */);
    /* A stream that ends inside of a header may be refused for what is already wrong there, not only when it is whole. */
    fuzz_require(reference.messages == of_whole.messages && reference.hash == of_whole.hash);
    fuzz_require(!broken || error);
    fuzz_require(broken || !error || whole.in_size);
    if (whole.state == ZMTP_READY) {
        fuzz_require(zmtp_send(&whole, data, size) == (size > ZMTP_MESSAGE_MAX ? -90 /* EMSGSIZE */ : 0) ||
                     whole.out_size + size + 9 > OUT_MAX);
        sound(&whole);
    }
    return 0;
}

static size_t put(uint8_t *out, size_t at, const void *bytes, size_t size) {
    memcpy(out + at, bytes, size);
    return at + size;
}

size_t fuzz_seed(unsigned index, uint8_t *out) {
    static const uint8_t GREETING[64] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1, 'N', 'U', 'L', 'L'};
    static const char READY[] = "\4\51\5READY\13Socket-Type\0\0\0\6ROUTER\10Identity\0\0\0\0";
    static const char PING[] = "\4\13\4PING\0\7ctx!";
    size_t at = put(out, 0, "\1\2\3\4\5\6\7\10", 8);

    if (index >= 6)
        return 0;
    at = put(out, at, GREETING, sizeof GREETING);
    if (index == 0)
        return at;
    at = put(out, at, READY, sizeof READY - 1);
    for (unsigned i = 1; i < index; i++) {
        at = put(out, at, "\0\5hello\0\0", 9);
        at = put(out, at, PING, sizeof PING - 1);
        at = put(out, at, "\2\0\0\0\0\0\0\1\4", 9); /* a long frame of 260 bytes */
        memset(out + at, (int)i, 260);
        at += 260;
    }
    if (index == 4)
        at = put(out, at, "\4\6\5ERROR", 8);
    if (index == 5)
        at = put(out, at, "\1\3one\0\3two", 10);
    return at;
}
