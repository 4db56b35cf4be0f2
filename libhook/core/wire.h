/*
 * wire.h - the messages between a client (one process of a tenant) and the node daemon.
 *
 * One message is one ZeroMQ frame: a fixed little-endian struct that begins with struct wire_header. The structs have
 * no padding that the compiler chose, so encoding is a copy; wire.c checks magic, version, type and size of what
 * arrives. Python reads and writes the very same structs through cffi (libhook/build.py parses the part between the two
 * "cffi:" marks), so nothing about a message is written down twice.
 *
 * All times are durations in nanoseconds: the two sides need not share a clock. `device` is always the index into the
 * list of UUIDs that the client sent in its Hello (its CUDA ordinals), never the daemon's own numbering.
 * An epoch numbers one grant of one GPU to one tenant; it never repeats, not even over restarts of the daemon.
 */
#ifndef GEMINI_CORE_WIRE_H
#define GEMINI_CORE_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define WIRE_MAGIC 0x4D47 /* "GM" */
#define WIRE_VERSION 1
#define WIRE_MAX_DEVICES 16
#define WIRE_USED_EVERY_NS 10000000ull /* under a shared grant the daemon hears so often what was used */
#define WIRE_MAX_SIZE 1024 /* no message is larger; what is larger is refused */

enum wire_type {
    WIRE_HELLO = 1,         /* client: who I am, my devices, what I hold (also after a reconnection) */
    WIRE_WELCOME = 2,       /* daemon: your limits; sent again when they change */
    WIRE_TOKEN_REQUEST = 3, /* client: I want the token of a device; with RENEW: I still hold it */
    WIRE_GRANT = 4,         /* daemon: the token is yours for quota_ns */
    WIRE_EXTEND = 5,        /* daemon: the grant you hold has been prolonged */
    WIRE_REVOKE = 6,        /* daemon: close the gate, drain, return */
    WIRE_RETURN = 7,        /* client: drained; what was measured */
    WIRE_MEM_RESERVE = 8,   /* client: may I allocate; bytes 0 only asks for the figures */
    WIRE_MEM_REPLY = 9,     /* daemon: answer to MemReserve */
    WIRE_MEM_RELEASE = 10,  /* client: these bytes are free again */
    WIRE_MEM_RECALL = 11,   /* daemon: give back unused credit */
    WIRE_STATS = 12,        /* client: cumulative counters, for metrics only */
    WIRE_ERROR = 13,        /* daemon: why the connection is about to be closed */
    WIRE_USED = 14          /* client: what it used under a shared grant */
};

struct wire_header {
    uint16_t magic;
    uint8_t version;
    uint8_t type;    /* enum wire_type */
    uint32_t size;   /* of the whole message */
    uint64_t serial; /* the sender's own count; a reply names the serial it answers */
};

enum wire_hello_flags {
    WIRE_HELLO_AGAIN = 1 /* a reconnection: held_epoch and memory_bytes are meant */
};

struct wire_hello {
    struct wire_header header;
    uint64_t client_nonce; /* random, chosen once per process image; also sent over the page socket */
    uint32_t pid;          /* in the client's own pid namespace: for people, never for decisions */
    uint32_t device_count;
    uint32_t flags;
    uint32_t reserved;
    char program[32]; /* comm of the process, for people */
    char library[32]; /* version of the library, for people */
    uint8_t uuid[16][16];
    uint64_t held_epoch[16];   /* epoch whose work may still be running, or 0 */
    uint64_t memory_bytes[16]; /* what this process has allocated and holds as credit */
};

struct wire_welcome_device {
    uint64_t memory_limit_bytes; /* of the tenant on this device; 0: not limited */
    uint64_t memory_used_bytes;  /* by the whole tenant */
    uint32_t page_slot;          /* index into struct wire_page.gpu */
    uint32_t managed;            /* 0: this device is not shared by this daemon; its gate stays open */
};

struct wire_welcome {
    struct wire_header header;
    uint64_t incarnation; /* of the daemon: changes with every start */
    uint32_t device_count;
    uint32_t request_ppm; /* of one GPU's time, informative */
    uint32_t limit_ppm;
    uint32_t latency_class; /* 1: class latency */
    char tenant[64];
    struct wire_welcome_device device[16];
};

enum wire_token_flags {
    WIRE_TOKEN_RENEW = 1,    /* I hold `epoch` and go on (or drain still): prolong my lease */
    WIRE_TOKEN_DRAINING = 2, /* with RENEW: the gate is closed, work is still running */
    WIRE_TOKEN_FORESEEN = 4  /* with DRAINING: no longer yet than what is in flight may take */
};

struct wire_token_request {
    struct wire_header header;
    uint32_t device;
    uint32_t flags;
    uint64_t epoch;    /* with RENEW: the epoch held */
    uint64_t burst_ns; /* estimated GPU time of the next burst; 0: unknown */
    uint64_t gap_ns;   /* estimated idle time after it; 0: unknown */
    uint32_t waiting_threads;
    uint32_t reserved;
};

enum wire_grant_flags {
    WIRE_GRANT_CONTENDED = 1, /* somebody else waits or may come: the cap is short, the quota ends */
    WIRE_GRANT_JOINED = 2,    /* the tenant held the token already: this is what is left of it */
    WIRE_GRANT_PREPARED = 4,  /* not yet: from the moment when the page shows this epoch; it may never come to that */
    WIRE_GRANT_SHARED = 8     /* others run beside it: a Used when that begins, and each WIRE_USED_EVERY_NS */
};

struct wire_grant { /* Grant and Extend */
    struct wire_header header;
    uint32_t device;
    uint32_t flags;
    uint64_t epoch;
    uint64_t quota_ns; /* from the receipt of this message; an Extend replaces the earlier figure */
    uint64_t lease_ns; /* from the receipt: after it the daemon takes the token for lost, unless renewed */
    uint64_t cap_ns;   /* the most estimated GPU time that may be in flight */
};

enum wire_revoke_reason {
    WIRE_REVOKE_NEWCOMER = 1, /* somebody else wants an uncontended token */
    WIRE_REVOKE_PREEMPT = 2,  /* a tenant that is owed more, or of class latency, takes over */
    WIRE_REVOKE_LIMIT = 3,    /* the limit's bucket is empty */
    WIRE_REVOKE_LEASE = 4,    /* your lease ran out: whatever you still launch is charged */
    WIRE_REVOKE_SHUTDOWN = 5
};

struct wire_revoke {
    struct wire_header header;
    uint32_t device;
    uint32_t reason;
    uint64_t epoch;
};

enum wire_return_flags {
    WIRE_RETURN_WANT_MORE = 1,  /* threads wait at the gate: this is the next TokenRequest too */
    WIRE_RETURN_IDLE = 2,       /* given back before the quota's end, for lack of work */
    WIRE_RETURN_UNCONFIRMED = 4 /* the drain could not be observed (context destroyed, error) */
};

struct wire_return {
    struct wire_header header;
    uint32_t device;
    uint32_t flags;
    uint64_t epoch;
    uint64_t held_ns;    /* receipt of the Grant to drain confirmed, by the client's clock */
    uint64_t busy_ns;    /* GPU time of the work launched under this grant, measured or estimated */
    uint64_t overuse_ns; /* past the quota */
    uint64_t idle_ns;    /* last work seen finished -> sending this */
    uint64_t launches;
    uint64_t burst_ns; /* estimates, as in TokenRequest */
    uint64_t gap_ns;
};

enum wire_mem_flags {
    WIRE_MEM_CONTEXT = 1, /* reserves nothing: what did the context take that I have just made, my first on this device?
                            Besides it I hold `credit_bytes`. The reply's credit_bytes is that; 0: nobody can say.
                            WIRE_CONTEXT_KNOWN instead: I have made none yet. The reply is what the tenant's are known to
                            take; 0: that was not looked for; WIRE_CONTEXT_KNOWN: it was, in vain */
    WIRE_MEM_EXPORTED = 2 /* reserves nothing, `bytes` is 0: of what I hold, `credit_bytes` in all may live on elsewhere
                             when I end, for others may have descriptors of it. The reply's credit_bytes is the mark,
                             from 1 to WIRE_MARKS - 1, that its descriptors are to bear: who imports memory of this mark
                             pays nothing, the tenant is charged already */
};
#define WIRE_MARKS 2305843009213693952 /* 2^61 */
#define WIRE_CONTEXT_KNOWN 2305843009213693952 /* 2^61, more than anybody holds */

struct wire_mem_reserve {
    struct wire_header header;
    uint32_t device;
    uint32_t flags;
    uint64_t bytes; /* needed; 0: only tell me the figures */
    uint64_t credit_bytes; /* wanted beyond that, if it costs nobody anything */
};

struct wire_mem_reply {
    struct wire_header header;
    uint64_t answers; /* serial of the MemReserve */
    uint32_t device;
    uint32_t granted; /* 1: bytes are reserved; 0: refused */
    uint64_t credit_bytes;
    uint64_t limit_bytes; /* 0: not limited */
    uint64_t used_bytes; /* by the whole tenant, with this reservation */
};

enum wire_mem_release_flags {
    WIRE_MEM_RELEASE_RECALLED = 1, /* this answers a MemRecall */
    WIRE_MEM_RELEASE_WHOLE = 2 /* `bytes` is all that this process holds now, credit included: set the book to it */
};

struct wire_mem_release {
    struct wire_header header;
    uint32_t device;
    uint32_t flags;
    uint64_t bytes;
};

struct wire_mem_recall {
    struct wire_header header;
    uint32_t device;
    uint32_t reserved;
    uint64_t bytes; /* answer with one MemRelease of as much unused credit as there is (also 0) */
};

struct wire_stats {
    struct wire_header header;
    uint32_t device;
    uint32_t reserved;
    uint64_t launches;
    uint64_t busy_ns;
    uint64_t gate_waits;
    uint64_t gate_wait_ns;
    uint64_t valve_admissions;
    uint64_t ungated_lookups; /* driver entries newer than the table that were handed out as they are */
    uint64_t copies_h2d_bytes;
    uint64_t copies_d2h_bytes;
};

struct wire_used { /* counts of all of the process's life on this device, so that one that is lost does not matter */
    struct wire_header header;
    uint32_t device;
    uint32_t reserved;
    uint64_t epoch;
    uint64_t busy_ns; /* GPU time of its work, by its own belief: no span tells beside others' work */
    uint64_t waited_ns; /* for which work of it was ready and the card did others' */
};

struct wire_error {
    struct wire_header header;
    uint64_t answers; /* serial of the message at fault, or 0 */
    uint32_t code; /* errno value */
    uint32_t reserved;
    char text[160]; /* one line, NUL-terminated */
};

/*
 * The page: a memfd that the daemon writes and the client maps read-only, one per tenant. It is passed with SCM_RIGHTS
 * over a plain Unix stream socket whose path is that of the ZeroMQ socket plus ".page": the client connects, sends
 * struct wire_page_hello, receives struct wire_page_offer with the descriptor, and keeps the connection open.
 * The daemon takes the peer's pidfd from that connection and joins it to the client by client_nonce.
 * A thread of the client may sleep on the low half of an epoch in the page (a shared futex; the daemon wakes it).
 */
struct wire_page_hello {
    uint32_t magic; /* WIRE_MAGIC */
    uint32_t version;
    uint64_t client_nonce;
};

struct wire_page_offer {
    uint32_t magic;
    uint32_t version;
    uint64_t incarnation;
    uint64_t size; /* of the memfd */
};

/* Client to daemon over the same connection, just before the Return of that epoch: nothing launched under it runs any
 * more. It is only a hint for speed (carrier.h): whoever is not heard here is heard by its Return. Where the page says
 * that the daemon takes it, the Return itself stands behind the word, in the same write; it has arrived if the page then
 * names that epoch as taken, and must be sent as a message if not. */
struct wire_page_drained {
    uint32_t magic;
    uint16_t page_slot;
    uint16_t flags;
    uint64_t epoch;
};
#define WIRE_DRAINED_IDLE 1u /* and it wants no more for now: the Return will not have WANT_MORE */
#define WIRE_DRAINED_RETURN 2u /* struct wire_return of that epoch stands behind this word */

struct wire_page_gpu {
    uint64_t epoch; /* the epoch under which this tenant may launch on this GPU now, or 0; daemon writes (release) */
    uint64_t taken; /* the last epoch whose Return it took from behind its word; it writes this before `epoch` */
    uint64_t reserved[6];
};

#define WIRE_PAGE_TAKES_RETURNS 1u /* feature: a Return may stand behind its word */

struct wire_page {
    uint32_t magic;
    uint32_t version;
    uint64_t incarnation;
    uint64_t features; /* of the daemon; 0 from an older one */
    uint64_t reserved[5];
    struct wire_page_gpu gpu[16];
};

/*
 * wire_check() looks at a frame that came from outside: magic, version, a known type, exactly that type's size, in the
 * header as in the frame, counts and device indices within range, strings that end. Returns the type, or -EMSGSIZE
 * (cut, too long, or not its type's size), -EPROTO (magic or a type nobody knows), -EPROTONOSUPPORT (another version),
 * -EINVAL (a field out of range). The frame need not be aligned. Flags that are not known are not refused.
 */
int wire_check(const void *frame, size_t size);
/* The size of a message of this type, or 0 for a type that nobody knows. */
size_t wire_size(int type);
/* Zeroes the message and writes its header. `message` has room for wire_size(type). Returns 0 or -EINVAL. */
int wire_init(void *message, int type, uint64_t serial);

/* The page: the daemon initialises and stores (release), the client loads (acquire). */
void wire_page_init(struct wire_page *page, uint64_t incarnation);
void wire_page_store_epoch(struct wire_page *page, uint32_t slot, uint64_t epoch);
uint64_t wire_page_load_epoch(const struct wire_page *page, uint32_t slot);
/* cffi: end */

#endif
