/*
 * wire.c - what makes a frame a message. Pure: no I/O, no clock, no allocation.
 *
 * The table below is the whole codec: the structs are the encoding (wire.h), so all that is left is to refuse what does
 * not fit. It runs on bytes from the other side, so it reads nothing before the size says that it is there, and it
 * copies fields out instead of casting, for a frame may lie at any address.
 */
#include "libhook/core/wire.h"

#include <errno.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian, and so must be the machine"
#endif

/* No padding that the compiler chose: the sizes are what the fields add up to. tests/golden/wire.json pins the bytes.
 */
_Static_assert(sizeof(struct wire_header) == 16, "header");
_Static_assert(sizeof(struct wire_hello) == 16 + 8 + 4 * 4 + 32 + 32 + 256 + 128 + 128, "hello");
_Static_assert(sizeof(struct wire_welcome) == 16 + 8 + 4 * 4 + 64 + 16 * 24, "welcome");
_Static_assert(sizeof(struct wire_page) == 64 + 16 * 64, "page");
_Static_assert(sizeof(struct wire_welcome) <= WIRE_MAX_SIZE && sizeof(struct wire_hello) <= WIRE_MAX_SIZE, "max");

#define NONE UINT16_MAX

/* Where a message carries a thing with a range; NONE where it does not. */
static const struct layout {
    uint16_t size;
    uint16_t device;    /* offset of a uint32_t below WIRE_MAX_DEVICES */
    uint16_t count;     /* offset of a uint32_t up to WIRE_MAX_DEVICES */
    uint16_t text[2];   /* offsets of strings */
    uint16_t length[2]; /* room of each, its NUL included */
} LAYOUT[] = {
#define PLAIN(type) sizeof(struct type), offsetof(struct type, device), NONE, {NONE, NONE}, {0, 0}
    [WIRE_HELLO] = {sizeof(struct wire_hello), NONE, offsetof(struct wire_hello, device_count),
        {offsetof(struct wire_hello, program), offsetof(struct wire_hello, library)}, {32, 32}},
    [WIRE_WELCOME] = {sizeof(struct wire_welcome), NONE, offsetof(struct wire_welcome, device_count),
        {offsetof(struct wire_welcome, tenant), NONE}, {64, 0}},
    [WIRE_TOKEN_REQUEST] = {PLAIN(wire_token_request)},
    [WIRE_GRANT] = {PLAIN(wire_grant)},
    [WIRE_EXTEND] = {PLAIN(wire_grant)},
    [WIRE_REVOKE] = {PLAIN(wire_revoke)},
    [WIRE_RETURN] = {PLAIN(wire_return)},
    [WIRE_MEM_RESERVE] = {PLAIN(wire_mem_reserve)},
    [WIRE_MEM_REPLY] = {PLAIN(wire_mem_reply)},
    [WIRE_MEM_RELEASE] = {PLAIN(wire_mem_release)},
    [WIRE_MEM_RECALL] = {PLAIN(wire_mem_recall)},
    [WIRE_STATS] = {PLAIN(wire_stats)},
    [WIRE_USED] = {PLAIN(wire_used)},
    [WIRE_ERROR] = {sizeof(struct wire_error), NONE, NONE, {offsetof(struct wire_error, text), NONE}, {160, 0}},
#undef PLAIN
};

size_t wire_size(int type) {
    if (type < 0 || type >= (int)(sizeof LAYOUT / sizeof *LAYOUT))
        return 0;
    return LAYOUT[type].size;
}

static uint32_t u32_at(const void *frame, size_t offset) {
    uint32_t value;
    memcpy(&value, (const char *)frame + offset, sizeof value);
    return value;
}

int wire_check(const void *frame, size_t size) {
    struct wire_header header;

    if (size < sizeof header || size > WIRE_MAX_SIZE)
        return -EMSGSIZE;
    memcpy(&header, frame, sizeof header);
    if (header.magic != WIRE_MAGIC)
        return -EPROTO;
    if (header.version != WIRE_VERSION)
        return -EPROTONOSUPPORT;
    if (!wire_size(header.type))
        return -EPROTO;
    const struct layout *layout = &LAYOUT[header.type];
    if (header.size != size || layout->size != size)
        return -EMSGSIZE;
    if (layout->device != NONE && u32_at(frame, layout->device) >= WIRE_MAX_DEVICES)
        return -EINVAL;
    if (layout->count != NONE && u32_at(frame, layout->count) > WIRE_MAX_DEVICES)
        return -EINVAL;
    for (int i = 0; i < 2; i++)
        if (layout->text[i] != NONE && !memchr((const char *)frame + layout->text[i], 0, layout->length[i]))
            return -EINVAL;
    if (header.type == WIRE_WELCOME)
        for (size_t i = 0; i < WIRE_MAX_DEVICES; i++)
            if (u32_at(frame, offsetof(struct wire_welcome, device) + i * sizeof(struct wire_welcome_device) +
                                  offsetof(struct wire_welcome_device, page_slot)) >= WIRE_MAX_DEVICES)
                return -EINVAL;
    return header.type;
}

int wire_init(void *message, int type, uint64_t serial) {
    size_t size = wire_size(type);

    if (!size)
        return -EINVAL;
    memset(message, 0, size);
    struct wire_header header = {
        .magic = WIRE_MAGIC, .version = WIRE_VERSION, .type = (uint8_t)type, .size = (uint32_t)size, .serial = serial};
    memcpy(message, &header, sizeof header);
    return 0;
}

void wire_page_init(struct wire_page *page, uint64_t incarnation) {
    memset(page, 0, sizeof *page);
    page->magic = WIRE_MAGIC;
    page->version = WIRE_VERSION;
    page->incarnation = incarnation;
}

void wire_page_store_epoch(struct wire_page *page, uint32_t slot, uint64_t epoch) {
    __atomic_store_n(&page->gpu[slot].epoch, epoch, __ATOMIC_RELEASE);
}

uint64_t wire_page_load_epoch(const struct wire_page *page, uint32_t slot) {
    return __atomic_load_n(&page->gpu[slot].epoch, __ATOMIC_ACQUIRE);
}
