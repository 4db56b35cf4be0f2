/* mailbox.c - the list of memory questions (mailbox.h). */
#define _GNU_SOURCE
#include "libhook/runtime/mailbox.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/cancel.h"

struct request {
    struct request *next;
    int device;
    uint32_t flags;
    uint64_t bytes, credit_bytes;
    uint64_t serial; /* 0: not sent */
    uint64_t sent_ns;
    uint32_t done;   /* futex */
    struct mailbox_answer answer;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct request *first; /* changed under the lock; oldest first */
static uint64_t released_bytes[WIRE_MAX_DEVICES]; /* atomic */
static uint64_t exported_bytes[WIRE_MAX_DEVICES]; /* atomic; of all that is held, since the process began */

static void put(struct request *request) {
    pthread_mutex_lock(&lock);
    struct request **end = &first;
    while (*end)
        end = &(*end)->next;
    __atomic_store_n(end, request, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

/* After this the asking thread may return, and its stack is not ours any more. */
static void finish(struct request *request) {
    uint32_t *done = &request->done;

    __atomic_store_n(done, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, done, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

static void ask(struct request *request) {
    int saved = errno, cancel = cancel_hold(); /* the request lies on this thread's stack */

    put(request);
    agent_kick();
    while (!__atomic_load_n(&request->done, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &request->done, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0);
    cancel_release(cancel);
    errno = saved;
}

void mailbox_reserve(int device, uint64_t bytes, uint64_t credit_bytes, struct mailbox_answer *answer) {
    struct request request = {.device = device, .bytes = bytes, .credit_bytes = credit_bytes};

    ask(&request);
    *answer = request.answer;
}

void mailbox_ask_context(int device, uint64_t held_bytes, struct mailbox_answer *answer) {
    struct request request = {.device = device, .flags = WIRE_MEM_CONTEXT, .credit_bytes = held_bytes};

    ask(&request);
    *answer = request.answer;
}

void mailbox_note_exported(int device, int64_t more_bytes) {
    __atomic_add_fetch(&exported_bytes[device], (uint64_t)more_bytes, __ATOMIC_SEQ_CST);
}

void mailbox_tell_exported(int device, struct mailbox_answer *answer) {
    struct request request = {.device = device, .flags = WIRE_MEM_EXPORTED};

    ask(&request);
    *answer = request.answer;
}

void mailbox_repeat_exported(int device, int (*send)(void *message, int type), uint64_t serial) {
    struct wire_mem_reserve message;
    uint64_t bytes = __atomic_load_n(&exported_bytes[device], __ATOMIC_SEQ_CST);

    if (!bytes)
        return;
    wire_init(&message, WIRE_MEM_RESERVE, serial); /* nobody waits for the answer */
    message.device = (uint32_t)device;
    message.flags = WIRE_MEM_EXPORTED;
    message.credit_bytes = bytes;
    send(&message, WIRE_MEM_RESERVE);
}

void mailbox_release(int device, uint64_t bytes) {
    __atomic_add_fetch(&released_bytes[device], bytes, __ATOMIC_SEQ_CST);
    agent_kick();
}

static void flush_released(int (*send)(void *message, int type)) {
    for (int device = 0; device < WIRE_MAX_DEVICES; device++) {
        uint64_t bytes = __atomic_load_n(&released_bytes[device], __ATOMIC_RELAXED);
        if (!bytes)
            continue;
        bytes = __atomic_exchange_n(&released_bytes[device], 0, __ATOMIC_SEQ_CST);
        struct wire_mem_release message;
        wire_init(&message, WIRE_MEM_RELEASE, 0);
        message.device = (uint32_t)device;
        message.bytes = bytes;
        send(&message, WIRE_MEM_RELEASE); /* lost with its connection: Hello tells the whole then */
    }
}

void mailbox_flush(int (*send)(void *message, int type), uint64_t (*next_serial)(void), uint64_t now_ns) {
    flush_released(send);
    if (!__atomic_load_n(&first, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&lock);
    flush_released(send); /* again: what a thread released before its reservation goes before it, for it may need it */
    for (struct request *request = first; request; request = request->next) {
        if (request->serial)
            continue;
        struct wire_mem_reserve message;
        wire_init(&message, WIRE_MEM_RESERVE, next_serial());
        message.device = (uint32_t)request->device;
        message.flags = request->flags;
        message.bytes = request->bytes;
        message.credit_bytes = request->credit_bytes;
        if (request->flags & WIRE_MEM_EXPORTED) /* as it is now: of two threads' messages the later says no less */
            message.credit_bytes = __atomic_load_n(&exported_bytes[request->device], __ATOMIC_SEQ_CST);
        request->sent_ns = now_ns;
        if (!send(&message, WIRE_MEM_RESERVE)) /* a write to our own buffer or socket; it never blocks */
            request->serial = message.header.serial;
    }
    pthread_mutex_unlock(&lock);
}

void mailbox_on_reply(const struct wire_mem_reply *reply, void (*granted)(int device, uint64_t bytes)) {
    pthread_mutex_lock(&lock);
    struct request **at = &first, *request = NULL;
    for (; *at; at = &(*at)->next)
        if ((*at)->serial && (*at)->serial == reply->answers) {
            request = *at;
            __atomic_store_n(at, request->next, __ATOMIC_RELEASE);
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!request)
        return;
    request->answer = (struct mailbox_answer){.error = reply->granted ? 0 : -ENOMEM,
        .credit_bytes = reply->granted ? reply->credit_bytes : 0,
        .limit_bytes = reply->limit_bytes,
        .used_bytes = reply->used_bytes};
    if (granted && reply->granted && !(request->flags & (WIRE_MEM_CONTEXT | WIRE_MEM_EXPORTED)))
        granted(request->device, request->bytes + reply->credit_bytes);
    finish(request);
}

bool mailbox_overdue(uint64_t now_ns, uint64_t after_ns) {
    bool overdue = false;

    if (!__atomic_load_n(&first, __ATOMIC_ACQUIRE))
        return false;
    pthread_mutex_lock(&lock);
    for (struct request *request = first; request; request = request->next)
        overdue |= request->serial && now_ns > request->sent_ns + after_ns;
    pthread_mutex_unlock(&lock);
    return overdue;
}

bool mailbox_flushed(int device) {
    return !__atomic_load_n(&released_bytes[device], __ATOMIC_SEQ_CST);
}

void mailbox_on_connection(void) {
    pthread_mutex_lock(&lock);
    for (struct request *request = first; request; request = request->next)
        request->serial = 0;
    pthread_mutex_unlock(&lock);
    /* Releases not yet sent are part of what Hello tells (memory_held is asked after this). */
    for (int device = 0; device < WIRE_MAX_DEVICES; device++)
        __atomic_store_n(&released_bytes[device], 0, __ATOMIC_SEQ_CST);
}

void mailbox_refuse_all(int error) {
    pthread_mutex_lock(&lock);
    struct request *request = first;
    __atomic_store_n(&first, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    while (request) {
        struct request *next = request->next;
        request->answer = (struct mailbox_answer){.error = error};
        finish(request);
        request = next;
    }
}

void mailbox_reset_after_fork(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    first = NULL;
    for (int device = 0; device < WIRE_MAX_DEVICES; device++)
        released_bytes[device] = exported_bytes[device] = 0;
}
