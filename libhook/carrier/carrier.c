/* carrier.c - one thread, one epoll, one mutex (carrier.h). */
#define _GNU_SOURCE
#include "libhook/carrier/carrier.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "libhook/carrier/rights.h"

#define STOP UINT64_MAX        /* epoll data of the eventfd that ends the thread */
#define STRAYS_A_SECOND 1000   /* messages of a tenant that fit no order: far above what who returns tokens can say */
#define SECOND_NS 1000000000ull
#define TOLD_NS 2000000 /* by then the holder's Return is here, as a rule */
#define TAKEN_NS 400000 /* three times what the next tenant's first launch takes to be out on a small VM */

struct order {
    int number;
    struct wire_page *holder_page, *next_page;
    uint32_t holder_slot, next_slot;
    uint64_t holder_epoch, next_epoch;
    uint64_t not_before_ns;
    uint64_t wanting_from_ns; /* of one behind another: from when that is carried out on */
    bool by_message;          /* who is next waits for the interpreter's word */
};

/* The orders of one GPU: those before `next` were carried out and not told yet. */
struct line {
    uint32_t count, next;
    struct order order[CARRIER_AHEAD];
    struct carrier_done done[CARRIER_AHEAD];
};

struct client {
    bool taken; /* the interpreter has this number, and gives it back by carrier_forget */
    int fd;     /* our copy; -1: the connection has ended */
    uint32_t account;
    uint64_t drained; /* the last epoch that it said, if there was no order for it yet */
    bool idle;        /* ... and that it wants no more */
};

/* A tenant. What it has said for nothing since then, on all of its connections: who comes back begins no new count. */
struct account {
    uint32_t clients; /* numbers that are taken for it */
    uint32_t strays;
    uint64_t since_ns;
};

struct carrier {
    pthread_mutex_t mutex;
    pthread_t thread;
    int epoll, stop_fd, done_fd;
    struct line line[CARRIER_GPUS];
    struct client client[CARRIER_CLIENTS];
    int lowest; /* all numbers below it are taken */
    struct account account[CARRIER_ACCOUNTS];
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void tell(int fd) {
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* 0: not at all. */
static void tell_in(int timer_fd, long ns) {
    struct itimerspec at = {.it_value.tv_nsec = ns};
    timerfd_settime(timer_fd, 0, &at, NULL);
}

/*
 * With the mutex held: listen to it no more. Its number stays taken, for the interpreter does not know yet: were it
 * given to another, this client would still be known by it, and could say the other's word. Closing the only copy
 * takes it out of the epoll as well.
 */
static void hang_up(struct carrier *carrier, int number) {
    struct client *client = &carrier->client[number];

    if (client->fd < 0)
        return;
    epoll_ctl(carrier->epoll, EPOLL_CTL_DEL, client->fd, NULL);
    rights_close(client->fd);
    client->fd = -1;
    for (int gpu = 0; gpu < CARRIER_GPUS; gpu++) {
        struct line *line = &carrier->line[gpu];
        for (uint32_t i = line->next; i < line->count; i++)
            if (line->order[i].number == number)
                line->count = i;
    }
}

/*
 * `said` is the Return behind the holder's word, or NULL: from now on it is ours to tell, and the holder sees that. What
 * stands behind this order was decided for a holder that wants more: where it is `idle`, nothing does any more. While
 * there is more to carry out nobody is woken to hear of it, but for one that must tell it to who is next.
 */
static void carry_out(struct carrier *carrier, struct line *line, bool idle, const struct wire_return *said) {
    struct order *order = &line->order[line->next];
    struct carrier_done *done = &line->done[line->next++];

    if (idle)
        line->count = line->next;
    done->epoch = order->next_epoch;
    done->carried_ns = now_ns(); /* before anybody can launch under the new epoch */
    done->returned = said != NULL;
    if (line->next < line->count)
        line->order[line->next].wanting_from_ns += done->carried_ns;
    if (said) {
        done->said = *said;
        __atomic_store_n(&order->holder_page->gpu[order->holder_slot].taken, order->holder_epoch, __ATOMIC_RELEASE);
    }
    wire_page_store_epoch(order->holder_page, order->holder_slot, 0);
    wire_page_store_epoch(order->next_page, order->next_slot, order->next_epoch);
    /* Those beyond are woken by their library, which hears of the grant from one of the first. */
    syscall(SYS_futex, &order->next_page->gpu[order->next_slot].epoch, FUTEX_WAKE, CARRIER_WAKES, NULL, NULL, 0);
    if (order->by_message)
        tell_in(carrier->done_fd, 1);
    else if (!said || line->next == line->count)
        tell_in(carrier->done_fd, said ? TAKEN_NS : TOLD_NS);
}

/* Does the first order wait for just this word, and is it time? */
static bool fits(const struct line *line, int number, uint64_t epoch, bool idle) {
    const struct order *order = &line->order[line->next];

    if (line->next == line->count || order->number != number || order->holder_epoch != epoch)
        return false;
    uint64_t at_ns = now_ns();
    return at_ns >= order->not_before_ns && (idle || at_ns >= order->wanting_from_ns);
}

/* The Return behind a word: written in one piece with it, so it is there, or this is nonsense. */
static bool read_return(int fd, uint64_t epoch, struct wire_return *said) {
    return rights_recv(fd, said, sizeof *said) == (int64_t)sizeof *said &&
           wire_check(said, sizeof *said) == WIRE_RETURN && said->epoch == epoch;
}

/* May another order stand behind these? Only one for whom the last of them makes the holder: else, should one between
 * them be missing, a client could hand on what is another's. */
static bool has_room_behind(const struct line *line, uint64_t holder_epoch) {
    return line->next == 0 && line->count && line->count < CARRIER_AHEAD &&
           line->order[line->count - 1].next_epoch == holder_epoch;
}

/* With the mutex held: one message of this client. Returns false when there is none, or nobody to listen to. */
static bool hear(struct carrier *carrier, int number) {
    struct client *client = &carrier->client[number];
    struct wire_page_drained message;
    struct wire_return said;

    if (client->fd < 0)
        return false;
    int64_t count = rights_recv(client->fd, &message, sizeof message);
    if (count == -EAGAIN || count == -EINTR)
        return false;
    if (count != (int64_t)sizeof message || message.magic != WIRE_MAGIC) { /* the end, or nonsense */
        hang_up(carrier, number);
        return false;
    }
    bool idle = message.flags & WIRE_DRAINED_IDLE, returned = message.flags & WIRE_DRAINED_RETURN;
    if (returned && !read_return(client->fd, message.epoch, &said)) {
        hang_up(carrier, number);
        return false;
    }
    for (int gpu = 0; gpu < CARRIER_GPUS; gpu++)
        if (fits(&carrier->line[gpu], number, message.epoch, idle)) {
            carry_out(carrier, &carrier->line[gpu], idle, returned ? &said : NULL);
            return true;
        }
    client->drained = message.epoch;
    client->idle = idle;
    struct account *account = &carrier->account[client->account];
    uint64_t at_ns = now_ns();
    if (at_ns - account->since_ns > SECOND_NS) {
        account->since_ns = at_ns;
        account->strays = 0;
    }
    if (++account->strays > STRAYS_A_SECOND)
        hang_up(carrier, number);
    return true;
}

static void *run(void *argument) {
    struct carrier *carrier = argument;
    struct epoll_event events[16];

    for (;;) {
        int count = epoll_wait(carrier->epoll, events, 16, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.u64 == STOP)
                return NULL;
            pthread_mutex_lock(&carrier->mutex);
            hear(carrier, (int)events[i].data.u64); /* one each: a flood keeps nobody else waiting */
            pthread_mutex_unlock(&carrier->mutex);
        }
    }
}

struct carrier *carrier_start(void) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = STOP};
    sigset_t all, before;
    struct carrier *carrier = calloc(1, sizeof *carrier);

    if (!carrier)
        return NULL;
    for (int i = 0; i < CARRIER_CLIENTS; i++)
        carrier->client[i].fd = -1;
    pthread_mutex_init(&carrier->mutex, NULL);
    carrier->done_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    carrier->epoll = epoll_create1(EPOLL_CLOEXEC);
    carrier->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (carrier->epoll < 0 || carrier->stop_fd < 0 || carrier->done_fd < 0 ||
        epoll_ctl(carrier->epoll, EPOLL_CTL_ADD, carrier->stop_fd, &event))
        goto out;
    sigfillset(&all); /* signals are the loop thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&carrier->thread, NULL, run, carrier);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) {
        pthread_setname_np(carrier->thread, "gemini-carrier");
        return carrier;
    }
    errno = error;
out:
    if (carrier->epoll >= 0)
        close(carrier->epoll);
    if (carrier->stop_fd >= 0)
        close(carrier->stop_fd);
    if (carrier->done_fd >= 0)
        close(carrier->done_fd);
    free(carrier);
    return NULL;
}

int carrier_done_fd(const struct carrier *carrier) {
    return carrier->done_fd;
}

void carrier_stop(struct carrier *carrier) {
    tell(carrier->stop_fd);
    pthread_join(carrier->thread, NULL);
    for (int i = 0; i < CARRIER_CLIENTS; i++)
        hang_up(carrier, i);
    close(carrier->epoll);
    close(carrier->stop_fd);
    close(carrier->done_fd);
    pthread_mutex_destroy(&carrier->mutex);
    free(carrier);
}

int carrier_listen(struct carrier *carrier, int fd, uint32_t account) {
    struct account *of = &carrier->account[account %= CARRIER_ACCOUNTS];
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), number, result;

    if (copy < 0)
        return -errno;
    pthread_mutex_lock(&carrier->mutex);
    while (carrier->lowest < CARRIER_CLIENTS && carrier->client[carrier->lowest].taken)
        carrier->lowest++;
    number = carrier->lowest;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)number};
    if (number == CARRIER_CLIENTS || of->clients >= CARRIER_OF_ACCOUNT)
        result = -EUSERS;
    else if (epoll_ctl(carrier->epoll, EPOLL_CTL_ADD, copy, &event))
        result = -errno;
    else {
        carrier->client[number] = (struct client){.taken = true, .fd = copy, .account = account};
        of->clients++;
        result = number;
    }
    pthread_mutex_unlock(&carrier->mutex);
    if (result < 0)
        close(copy);
    return result;
}

void carrier_forget(struct carrier *carrier, int number) {
    if (number < 0 || number >= CARRIER_CLIENTS)
        return;
    pthread_mutex_lock(&carrier->mutex);
    hang_up(carrier, number);
    if (carrier->client[number].taken) {
        carrier->client[number].taken = false;
        carrier->account[carrier->client[number].account].clients--;
        if (number < carrier->lowest)
            carrier->lowest = number;
    }
    pthread_mutex_unlock(&carrier->mutex);
}

int carrier_prepare(struct carrier *carrier, uint32_t gpu, bool behind, int number, struct wire_page *holder_page,
    uint32_t holder_slot, uint64_t holder_epoch, struct wire_page *next_page, uint32_t next_slot, uint64_t next_epoch,
    uint64_t not_before_ns, uint64_t wanting_from_ns, bool by_message) {
    int result = -EINVAL;

    if (gpu >= CARRIER_GPUS || number < 0 || number >= CARRIER_CLIENTS || holder_slot >= WIRE_MAX_DEVICES ||
        next_slot >= WIRE_MAX_DEVICES || !holder_page || !next_page)
        return result;
    pthread_mutex_lock(&carrier->mutex);
    struct line *line = &carrier->line[gpu];
    const struct client *client = &carrier->client[number];
    if (!behind)
        line->count = line->next = 0;
    if (client->fd >= 0 && (!behind || has_room_behind(line, holder_epoch))) {
        line->order[line->count++] = (struct order){.number = number,
            .holder_page = holder_page,
            .next_page = next_page,
            .holder_slot = holder_slot,
            .next_slot = next_slot,
            .holder_epoch = holder_epoch,
            .next_epoch = next_epoch,
            .not_before_ns = not_before_ns,
            .wanting_from_ns = wanting_from_ns,
            .by_message = by_message};
        result = 0;
        if (!behind && fits(line, number, client->drained, client->idle)) /* it was quicker: its Return is a message */
            carry_out(carrier, line, client->idle, NULL);
    }
    pthread_mutex_unlock(&carrier->mutex);
    return result;
}

/* With the mutex held. The word may be here already, and our thread not yet awake. Returns how many were carried out. */
static int carried_out(struct carrier *carrier, const struct line *line) {
    while (line->next < line->count && hear(carrier, line->order[line->next].number)) {
    }
    return (int)line->next;
}

int carrier_carried(struct carrier *carrier, uint32_t gpu) {
    if (gpu >= CARRIER_GPUS)
        return 0;
    pthread_mutex_lock(&carrier->mutex);
    int count = carried_out(carrier, &carrier->line[gpu]);
    pthread_mutex_unlock(&carrier->mutex);
    return count;
}

int carrier_take_back(struct carrier *carrier, uint32_t gpu, struct carrier_done *done) {
    if (gpu >= CARRIER_GPUS)
        return 0;
    pthread_mutex_lock(&carrier->mutex);
    struct line *line = &carrier->line[gpu];
    int count = carried_out(carrier, line);
    memcpy(done, line->done, line->next * sizeof *done);
    line->count = line->next = 0;
    if (count)
        tell_in(carrier->done_fd, 0);
    pthread_mutex_unlock(&carrier->mutex);
    return count;
}
