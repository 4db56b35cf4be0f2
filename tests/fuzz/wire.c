/*
 * wire.c - the wire decoder, and the client's side of the token that acts on what was decoded.
 *
 * The input is a list of frames, each with its length before it. wire_check() is compared with a second reading of
 * wire.h (fits(), below); what passes is given to one token machine, as runtime/agent.c does it, and the machine must
 * stay what token.h promises whatever a daemon says and whenever it says it.
 */
#include <errno.h>
#include <string.h>

#include "libhook/core/token.h"
#include "libhook/core/wire.h"
#include "tests/fuzz/fuzz.h"

static int ends(const char *text, size_t room) {
    return strnlen(text, room) < room;
}

/* Is this aligned, complete copy of a frame a message? */
static int fits(
    const union {
        struct wire_header header;
        struct wire_hello hello;
        struct wire_welcome welcome;
        struct wire_grant grant;
        struct wire_error error;
        uint8_t bytes[WIRE_MAX_SIZE];
    } * frame,
    size_t size) {
    const struct wire_header *header = &frame->header;

    if (size < sizeof *header || header->magic != WIRE_MAGIC || header->version != WIRE_VERSION ||
        header->size != size || !wire_size(header->type) || wire_size(header->type) != size)
        return 0;
    switch (header->type) {
    case WIRE_HELLO:
        return frame->hello.device_count <= WIRE_MAX_DEVICES && ends(frame->hello.program, 32) &&
               ends(frame->hello.library, 32);
    case WIRE_WELCOME:
        for (int i = 0; i < WIRE_MAX_DEVICES; i++)
            if (frame->welcome.device[i].page_slot >= WIRE_MAX_DEVICES)
                return 0;
        return frame->welcome.device_count <= WIRE_MAX_DEVICES && ends(frame->welcome.tenant, 64);
    case WIRE_ERROR: return ends(frame->error.text, 160);
    case WIRE_MEM_REPLY: return ((const struct wire_mem_reply *)frame)->device < WIRE_MAX_DEVICES;
    default: return frame->grant.device < WIRE_MAX_DEVICES; /* stands first in all others */
    }
}

struct client {
    struct token token;
    uint64_t now_ns;
    unsigned gate_open, held_before;
};

/* One look at a world that the input chooses. */
static void step(struct client *client, uint8_t world, uint64_t inflight_ns) {
    struct token *token = &client->token;
    struct token_view view = {
        .inflight_ns = inflight_ns,
        .idle_since_ns = world & 1 ? client->now_ns : 0,
        .patience_ns = 1000000,
        .waiting = world >> 1 & 1,
        .needed = world >> 1 & 1,
        .connected = world >> 2 & 1,
        .page_agrees = world >> 3 & 1,
        .inside = world >> 4 & 1,
        .drained = world >> 5 & 1,
        .shut = world >> 6 & 1,
        .stands = world >> 7,
    };
    uint64_t epoch = token_held(token);
    int before = (int)token->state;
    uint32_t actions = token_step(token, &view, client->now_ns);

    fuzz_require(token->state < TOKEN_STATES && token_state_name((int)token->state));
    fuzz_require(actions < 2 * TOKEN_VOID);
    if (actions & (TOKEN_OPEN_GATE | TOKEN_ADMIT)) {
        fuzz_require(!(actions & TOKEN_CLOSE_GATE) || before == TOKEN_OPEN);
        fuzz_require(epoch != 0);
        client->gate_open = 1;
    }
    if (actions & TOKEN_CLOSE_GATE)
        client->gate_open = 0;
    /* Only what is held and not closing may be open; only who is drained, or stands still, gives back, and
     * only what it held. */
    fuzz_require(!client->gate_open || token->state == TOKEN_OPEN || token->state == TOKEN_VALVE);
    bool over = view.drained || view.stands;
    fuzz_require(!(actions & (TOKEN_SEND_RETURN | TOKEN_VOID)) || (over && before == TOKEN_DRAINING));
    fuzz_require(token_held(token) == 0 || token_held(token) == epoch);
    if (actions & TOKEN_SEND_RETURN) {
        struct token_return out;
        token_returned(token, &view, &out);
        fuzz_require(out.epoch == epoch && epoch != 0 && token_held(token) == 0);
        fuzz_require(out.held_ns <= client->now_ns);
    }
}

static void act(struct client *client, const uint8_t *frame) {
    struct wire_grant grant;
    struct wire_revoke revoke;

    switch (frame[3]) {
    case WIRE_GRANT:
    case WIRE_EXTEND:
        memcpy(&grant, frame, sizeof grant);
        uint64_t held = token_held(&client->token);
        bool taken = (frame[3] == WIRE_GRANT ? token_on_grant : token_on_extend)(&client->token, grant.epoch,
            grant.quota_ns, grant.lease_ns, grant.cap_ns, grant.flags & WIRE_GRANT_CONTENDED, client->now_ns);
        fuzz_require(!taken || token_held(&client->token) == grant.epoch);
        fuzz_require(!held || token_held(&client->token) == held);
        break;
    case WIRE_REVOKE:
        memcpy(&revoke, frame, sizeof revoke);
        fuzz_require(!token_on_revoke(&client->token, revoke.epoch) || token_held(&client->token) == revoke.epoch);
        break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct client client = {.now_ns = 1000000000ull};

    token_init(&client.token);
    while (size >= 4) { /* length, the world, how much later */
        size_t length = (size_t)data[0] | (size_t)(data[1] & 15) << 8;
        uint8_t world = data[2];
        client.now_ns += 1ull << (data[3] & 31);
        int connection = data[1] >> 7;
        data += 4;
        size -= 4;
        if (length > size)
            length = size;
        uint8_t *frame = malloc(length + 1); /* its end is watched, and its start lies at an odd address */
        memcpy(frame + 1, data, length);
        int kind = wire_check(frame + 1, length);
        union {
            struct wire_header header;
            struct wire_hello hello;
            struct wire_welcome welcome;
            struct wire_grant grant;
            struct wire_error error;
            uint8_t bytes[WIRE_MAX_SIZE];
        } copy;
        memset(&copy, 0, sizeof copy);
        memcpy(copy.bytes, data, length < sizeof copy ? length : sizeof copy);
        fuzz_require((kind > 0) == (length <= sizeof copy && fits((const void *)&copy, length)));
        fuzz_require(kind > 0 ? kind == copy.header.type && wire_size(kind) == length
                              : kind == -EMSGSIZE || kind == -EPROTO || kind == -EPROTONOSUPPORT || kind == -EINVAL);
        if (kind > 0)
            act(&client, frame + 1);
        free(frame);
        if (connection)
            token_on_connection(&client.token);
        step(&client, world, 1ull << (world & 15) * 4);
        data += length;
        size -= length;
    }
    return 0;
}

static size_t put_frame(uint8_t *out, size_t at, int type, uint64_t epoch, uint8_t world, uint8_t later) {
    uint64_t message[WIRE_MAX_SIZE / 8];
    size_t size = wire_size(type);

    wire_init(message, type, at);
    if (type == WIRE_GRANT || type == WIRE_EXTEND) {
        struct wire_grant *grant = (void *)message;
        grant->epoch = epoch;
        grant->quota_ns = 10000000;
        grant->lease_ns = 30000000;
        grant->cap_ns = 1000000;
        grant->flags = epoch & 1;
    } else if (type == WIRE_REVOKE) {
        ((struct wire_revoke *)(void *)message)->epoch = epoch;
    }
    out[at] = (uint8_t)size;
    out[at + 1] = (uint8_t)(size >> 8);
    out[at + 2] = world;
    out[at + 3] = later;
    memcpy(out + at + 4, message, size);
    return at + 4 + size;
}

size_t fuzz_seed(unsigned index, uint8_t *out) {
    size_t at = 0;

    if (index >= 4)
        return 0;
    if (index == 0) { /* one of each */
        for (int type = WIRE_HELLO; type <= WIRE_USED; type++)
            at = put_frame(out, at, type, 3, 0x0E, 10);
        return at;
    }
    at = put_frame(out, at, WIRE_WELCOME, 0, 0x0E, 10);
    for (uint64_t epoch = 1; epoch < 4 + index; epoch++) { /* asked, granted, extended, revoked, drained, returned */
        at = put_frame(out, at, WIRE_GRANT, epoch, 0x0E, 10);
        at = put_frame(out, at, WIRE_EXTEND, epoch, 0x0E, index == 1 ? 23 : 10);
        at = put_frame(out, at, WIRE_REVOKE, epoch, 0x1E, 10);
        at = put_frame(out, at, WIRE_MEM_REPLY, epoch, index == 2 ? 0x0E : 0x2E, 10);
        at = put_frame(out, at, WIRE_MEM_RECALL, epoch, 0x2F, index == 3 ? 31 : 10);
        at = put_frame(out, at, WIRE_STATS, epoch, 0x2E, 10);
    }
    return at;
}
