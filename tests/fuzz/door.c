/*
 * door.c - the daemon's side of ZMTP, and the check of each message behind it, on bytes from a process of a tenant.
 *
 * Two of them hear the same bytes, one in a single piece and one in pieces of random size, each with no more room for its
 * answers than it needs. What they say is compared with a second reading of the protocol (expected(), below), messages
 * and answers alike: so no answer has a byte that was not asked for.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "libhook/core/wire.h"
#include "libhook/core/zmtp.h"
#include "tests/fuzz/fuzz.h"

struct said {
    uint64_t messages, answers; /* hashes */
    unsigned count;
};

static uint64_t mix(uint64_t hash, const void *bytes, size_t size) {
    const uint8_t *from = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ from[i]) * 0x100000001B3ull + 1;
    return hash;
}

static void on_message(struct said *said, const uint8_t *message, size_t size) {
    fuzz_require(size <= ZMTP_MESSAGE_MAX);
    uint8_t *copy = malloc(size ? size : 1); /* of just that size: reading past its end is seen */
    memcpy(copy, message, size);
    int kind = wire_check(copy, size);
    fuzz_require(kind <= 0 || wire_size((uint8_t)kind) == size);
    said->messages = mix(said->messages, copy, size) + size;
    said->count++;
    free(copy);
}

static void write_out(struct zmtp *zmtp, struct said *said) {
    const uint8_t *bytes;
    size_t size = zmtp_pending(zmtp, &bytes);
    fuzz_require(size <= ZMTP_ANSWERS_MAX);
    said->answers = mix(said->answers, bytes, size);
    zmtp_sent(zmtp, size);
}

/* All of these bytes; 0, or what ended it. */
static int hear(struct zmtp *zmtp, const uint8_t *bytes, size_t size, struct said *said, int writes) {
    for (;;) {
        size_t used;
        int taken = zmtp_take(zmtp, bytes, size, &used);
        fuzz_require(used <= size && zmtp->in_size <= sizeof zmtp->in && zmtp->out_size <= zmtp->out_room);
        fuzz_require((taken < 0) == (zmtp->state == ZMTP_BROKEN));
        if (writes)
            write_out(zmtp, said);
        if (taken == ZMTP_MESSAGE)
            on_message(said, zmtp->message, zmtp->message_size);
        if (taken <= 0)
            return taken;
        bytes += used;
        size -= used;
    }
}

/* Pairs of (name, value); one of them says DEALER. */
static int is_dealer(const uint8_t *at, const uint8_t *end) {
    int typed = 0;
    while (at != end) {
        const uint8_t *name = at + 1, *value = name + *at + 4;
        if (value > end)
            return 0;
        uint64_t size = (uint64_t)value[-4] << 24 | (uint64_t)value[-3] << 16 | (uint64_t)value[-2] << 8 | value[-1];
        if (size > (uint64_t)(end - value))
            return 0;
        if (*at == 11 && !strncasecmp((const char *)name, "Socket-Type", 11)) {
            if (size != 6 || memcmp(value, "DEALER", 6) != 0)
                return 0;
            typed = 1;
        }
        if (*at == 8 && !strncasecmp((const char *)name, "Identity", 8) && size > 255)
            return 0;
        at = value + size;
    }
    return typed;
}

/* What has to be said to the whole stream; -1: it is wrong, 0: it is right as far as its frames are whole. */
static int expected(const uint8_t *data, size_t size, struct said *said) {
    static const uint8_t GREETING[64] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1, 'N', 'U', 'L', 'L'};
    static const char READY[] = "\4\51\5READY\13Socket-Type\0\0\0\6ROUTER\10Identity\0\0\0\0";
    int ready = 0;

    said->answers = mix(said->answers, GREETING, sizeof GREETING);
    if ((size >= 1 && data[0] != 0xFF) || (size >= 10 && data[9] != 0x7F) || (size >= 11 && data[10] < 3) ||
        (size >= 32 && memcmp(data + 12, GREETING + 12, 20) != 0) || (size >= 33 && data[32]))
        return -1;
    if (size < 64)
        return 0;
    said->answers = mix(said->answers, READY, sizeof READY - 1);
    for (const uint8_t *at = data + 64, *end = data + size; at != end;) {
        size_t header = *at & 2 ? 9 : 2;
        int command = *at & 4;
        if (*at > 7 || *at & 1 || (!command && !ready))
            return -1;
        if ((size_t)(end - at) < header)
            return 0;
        uint64_t length = 0;
        for (size_t i = 1; i < header; i++)
            length = length << 8 | at[i];
        if (length > ZMTP_MESSAGE_MAX)
            return -1;
        const uint8_t *body = at + header;
        if (length > (uint64_t)(end - body))
            return 0;
        at = body + length;
        if (!command) {
            on_message(said, body, length);
            continue;
        }
        if (!length || length < 1u + *body)
            return -1;
        const uint8_t *rest = body + 1 + *body;
        size_t left = (size_t)(at - rest);
        if (!ready) {
            if (*body != 5 || memcmp(body + 1, "READY", 5) != 0 || !is_dealer(rest, at))
                return -1;
            ready = 1;
        } else if (*body == 4 && !memcmp(body + 1, "PING", 4)) {
            if (left < 2 || left > 18)
                return -1;
            uint8_t pong[7 + 16] = {4, (uint8_t)(5 + left - 2), 4, 'P', 'O', 'N', 'G'};
            memcpy(pong + 7, rest + 2, left - 2);
            said->answers = mix(said->answers, pong, 7 + left - 2);
        } else if (*body != 4 || memcmp(body + 1, "PONG", 4) != 0 || left > 16) {
            return -1;
        }
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct zmtp whole, pieces, mute;
    struct said of_whole = {0}, of_pieces = {0}, of_mute = {0}, reference = {0};
    uint64_t chunk_seed = 0;

    if (size < 8)
        return 0;
    memcpy(&chunk_seed, data, 8); /* how to cut what follows */
    data += 8;
    size -= 8;
    uint8_t *out[3];
    struct zmtp *all[3] = {&whole, &pieces, &mute};
    for (int i = 0; i < 3; i++) {
        out[i] = malloc(ZMTP_ANSWERS_MAX);
        zmtp_start(all[i], ZMTP_ROUTER, out[i], ZMTP_ANSWERS_MAX);
    }
    int broken = expected(data, size, &reference);
    int error = hear(&whole, data, size, &of_whole, 1);
    int muted = hear(&mute, data, size, &of_mute, 0); /* nobody takes its answers away */
    int in_pieces = 0;
    for (size_t at = 0; at < size && !in_pieces;) {
        chunk_seed = chunk_seed * 6364136223846793005ull + 1442695040888963407ull;
        size_t length = 1 + (size_t)(chunk_seed >> 33) % (chunk_seed & 1 << 16 ? 700 : 12);
        if (length > size - at)
            length = size - at;
        uint8_t *piece = malloc(length);
        memcpy(piece, data + at, length);
        in_pieces = hear(&pieces, piece, length, &of_pieces, 1);
        free(piece);
        at += length;
    }
    write_out(&whole, &of_whole);
    write_out(&pieces, &of_pieces);
    fuzz_require(!broken == !error && error == in_pieces && whole.state == pieces.state);
    fuzz_require(muted == error || muted == -ENOBUFS);
    fuzz_require(of_whole.messages == reference.messages && of_whole.count == reference.count);
    fuzz_require(of_pieces.messages == reference.messages && of_pieces.count == reference.count);
    fuzz_require(of_whole.answers == reference.answers && of_pieces.answers == reference.answers);
    for (int i = 0; i < 3; i++)
        free(out[i]);
    return 0;
}

static size_t put(uint8_t *out, size_t at, const void *bytes, size_t size) {
    memcpy(out + at, bytes, size);
    return at + size;
}

size_t fuzz_seed(unsigned index, uint8_t *out) {
    static const uint8_t GREETING[64] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1, 'N', 'U', 'L', 'L'};
    static const char READY[] = "\4\51\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\0";
    static const char PING[] = "\4\13\4PING\0\7ctx!";
    struct wire_token_request asked = {0};
    size_t at = put(out, 0, "\1\2\3\4\5\6\7\10", 8);

    if (index >= 7)
        return 0;
    at = put(out, at, GREETING, sizeof GREETING);
    if (index == 0)
        return at;
    at = put(out, at, READY, sizeof READY - 1);
    wire_init(&asked, WIRE_TOKEN_REQUEST, index);
    for (unsigned i = 1; i < index * (index < 6 ? 1 : 4); i++) {
        uint8_t header[ZMTP_HEADER_MAX];
        at = put(out, at, header, zmtp_header(header, sizeof asked));
        at = put(out, at, &asked, sizeof asked);
        at = put(out, at, PING, sizeof PING - 1);
    }
    if (index == 4)
        at = put(out, at, "\4\6\4PONGx", 8);
    if (index == 5)
        at = put(out, at, "\1\3one\0\3two", 10);
    return at;
}
