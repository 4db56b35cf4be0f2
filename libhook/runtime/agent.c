/*
 * agent.c - the one thread of the library in a tenant's process: it owns the connection, the page and the timers.
 *
 * Life. The first CUDA call that matters comes through agent_attach() (attachment.c), which has the thread started: all
 * signals blocked, a small stack, named gemini-agent. In a forked child its copies of our descriptors are closed, and
 * every gate is closed; the child's own first call starts a new agent.
 *
 * Work. One poll() over the link, the page's socket and an eventfd by which other threads say "look"; its timeout is the
 * earliest deadline of the seats. After each wake-up every seat is stepped: the machine is level triggered.
 *
 * Loss of the daemon is decided here and nowhere else (on_down): mode `wait` keeps what is held to its end and then
 * waits, mode `run` opens every gate until a daemon answers again.
 */
#define _GNU_SOURCE
#include "libhook/runtime/agent.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libhook/core/wire.h"
#include "libhook/driver/real.h"
#include "libhook/runtime/agent_kick.h"
#include "libhook/runtime/agent_memory.h"
#include "libhook/runtime/attachment.h"
#include "libhook/runtime/gate.h"
#include "libhook/runtime/gate_open.h"
#include "libhook/runtime/link.h"
#include "libhook/runtime/log.h"
#include "libhook/runtime/mailbox.h"
#include "libhook/runtime/options.h"
#include "libhook/runtime/page.h"
#include "libhook/runtime/seat.h"
#include "libhook/runtime/thread.h"
#include "libhook/runtime/visit.h"

#define LIBRARY_VERSION "0.1.0"
#define STATS_NS 1000000000ull
#define ANSWER_NS 500000000ull  /* a reservation not answered for so long: the answer is lost, or the daemon */
#define PATIENCE_MOST_NS 16000000000ull
#define HELLO_AGAIN_NS 500000000ull /* without a Welcome for so long, Hello is said again; it may be said twice */
#define REFUSED_NS 1000000000ull    /* after an Error the daemon reads nothing more: connect anew, but not at once */
#define COMPLAIN_NS 500000000ull /* for how long nobody may listen before a person is told */
#define SILENT_NS 5000000000ull  /* the same where somebody listens, who may be kept from running, as we may be */

static struct agent_callbacks hooks;
static char program[16]; /* comm of the thread that attached */

static const struct need A_PAGE = {"memory for the agent", "raise RLIMIT_AS (ulimit -v)"};
static const struct need AN_EVENTFD = {
    "an eventfd", "raise RLIMIT_NOFILE (ulimit -n), or allow eventfd2 in the seccomp profile"};
static const struct need A_THREAD = {"a thread", "raise RLIMIT_NPROC (ulimit -u), pids.max or RLIMIT_AS (ulimit -v)"};
static const struct need A_SOCKET = {"a socket", "raise RLIMIT_NOFILE (ulimit -n)"};

/* The agent's own; nobody else touches it while it runs. */
static struct {
    struct link link;
    struct page page;
    struct seat_world world;
    struct seat seats[WIRE_MAX_DEVICES];
    uint32_t device_count;
    uint64_t nonce;
    uint64_t serial;
    uint64_t incarnation;
    uint64_t started_ns, stats_ns, used_ns, hello_ns;
    uint64_t lacking_ns; /* since when no socket can be had; 0: one can */
    uint64_t hello_patience_ns, answer_patience_ns; /* doubled each time: who is only slow is not to be pushed */
    bool ever_up, complained, run_on_loss, refused, told_refused;
} agent = {.link.fd = -1, .page.fd = -1};

/* ---- messages ---- */

static uint64_t next_serial(void) {
    return ++agent.serial;
}

static int send_message(void *message, int type) {
    struct wire_header *header = message;

    if (!header->serial)
        header->serial = next_serial();
    return link_send(&agent.link, message, wire_size(type));
}

static uint64_t more_patience(uint64_t patience_ns, uint64_t first_ns) {
    uint64_t doubled_ns = patience_ns ? 2 * patience_ns : first_ns;
    return doubled_ns < PATIENCE_MOST_NS ? doubled_ns : PATIENCE_MOST_NS;
}

static void say_hello(void) {
    struct wire_hello hello;

    wire_init(&hello, WIRE_HELLO, 0);
    hello.client_nonce = agent.nonce;
    hello.pid = (uint32_t)getpid();
    hello.device_count = agent.device_count;
    hello.flags = agent.ever_up ? WIRE_HELLO_AGAIN : 0;
    memcpy(hello.program, program, sizeof program);
    memcpy(hello.library, LIBRARY_VERSION, sizeof LIBRARY_VERSION);
    if (hooks.devices)
        hooks.devices(hello.uuid);
    for (uint32_t i = 0; i < agent.device_count; i++) {
        hello.held_epoch[i] = token_held(&agent.seats[i].token);
        hello.memory_bytes[i] = hooks.memory_held ? hooks.memory_held((int)i) : 0;
    }
    agent.hello_ns = gate_now();
    agent.hello_patience_ns = more_patience(agent.hello_patience_ns, HELLO_AGAIN_NS);
    send_message(&hello, WIRE_HELLO);
}

static void on_welcome(const struct wire_welcome *welcome) {
    bool another = agent.incarnation != welcome->incarnation;

    for (uint32_t i = 0; i < agent.device_count; i++) {
        struct seat *seat = &agent.seats[i];
        if (another)
            seat_on_daemon(seat, &agent.world, gate_now());
        bool managed = i < welcome->device_count && welcome->device[i].managed;
        seat->slot = welcome->device[i].page_slot;
        agent_memory_on_welcome(
            i, managed, welcome->device[i].memory_limit_bytes, welcome->device[i].memory_used_bytes);
        agent_memory_repeat_exported(i, send_message, next_serial);
        if (managed && seat->gate->free)
            gate_close(seat->gate);
        seat->managed = managed;
        if (!managed)
            seat_run_free(seat);
    }
    if (another)
        log_line(LOG_INFO, "tenant %s of daemon %llx, %u device(s)", welcome->tenant,
            (unsigned long long)welcome->incarnation, agent.device_count);
    agent.incarnation = welcome->incarnation;
    agent.world.connected = true;
    agent.ever_up = true;
    agent.told_refused = false;
    agent.hello_patience_ns = 0;
    if (!agent.answer_patience_ns)
        agent.answer_patience_ns = ANSWER_NS;
    attachment_set(WELCOMED);
}

static void on_message(void *context, const void *frame, size_t size) {
    union {
        struct wire_header header;
        struct wire_welcome welcome;
        struct wire_grant grant;
        struct wire_revoke revoke;
        struct wire_mem_reply reply;
        struct wire_mem_recall recall;
        struct wire_error error;
    } message;
    uint64_t now_ns = gate_now();
    int type = wire_check(frame, size);

    (void)context;
    if (type < 0 || size > sizeof message) {
        log_line(LOG_WARN, "the daemon sent what is no message (%s); gemini check tells whether it is of this version",
            strerror(type < 0 ? -type : EPROTO));
        return;
    }
    memcpy(&message, frame, size);
    switch (type) {
    case WIRE_WELCOME: on_welcome(&message.welcome); break;
    case WIRE_GRANT: seat_on_grant(&agent.seats[message.grant.device], &agent.world, &message.grant, now_ns); break;
    case WIRE_EXTEND: seat_on_extend(&agent.seats[message.grant.device], &agent.world, &message.grant, now_ns); break;
    case WIRE_REVOKE: seat_on_revoke(&agent.seats[message.revoke.device], &agent.world, &message.revoke, now_ns); break;
    case WIRE_MEM_REPLY:
        agent_memory_on_reply(&message.reply, &hooks);
        agent.answer_patience_ns = ANSWER_NS;
        break;
    case WIRE_MEM_RECALL: agent_memory_on_recall(&message.recall, &hooks, send_message); break;
    case WIRE_ERROR:
        if (!agent.told_refused)
            log_line(LOG_ERROR, "the daemon refuses this process: %s", message.error.text);
        agent.refused = agent.told_refused = true;
        break;
    default: break;
    }
}

static void on_up(void *context) {
    (void)context;
    /* The old daemon's page says nothing any more; the new one's comes by itself if it can. */
    page_disconnect(&agent.page, true);
    for (uint32_t i = 0; i < WIRE_MAX_DEVICES; i++) {
        seat_unprepare(&agent.seats[i], &agent.world, gate_now());
        if (agent.seats[i].managed)
            page_store_local(&agent.page, agent.seats[i].slot, token_held(&agent.seats[i].token));
        token_on_connection(&agent.seats[i].token);
    }
    page_connect(&agent.page, agent.link.path, agent.nonce);
    mailbox_on_connection();
    say_hello();
}

static void on_down(void *context, int error) {
    (void)context;
    agent.world.connected = false;
    for (uint32_t i = 0; i < agent.device_count; i++) {
        token_on_connection(&agent.seats[i].token);
        seat_unprepare(&agent.seats[i], &agent.world, gate_now());
    }
    if (agent.ever_up)
        log_line(LOG_WARN, "the daemon at %s is gone (%s); %s", agent.link.path, strerror(-error),
            agent.run_on_loss ? "running free until it is back" : "waiting for it");
    if (!agent.run_on_loss)
        return;
    for (uint32_t i = 0; i < WIRE_MAX_DEVICES; i++)
        seat_run_free(&agent.seats[i]);
    mailbox_refuse_all(-ENOTCONN);
    attachment_set(FREE);
}

/* ---- the thread ---- */

static uint64_t complaint_due_ns(void) {
    if (agent.ever_up || agent.complained || agent.world.connected)
        return UINT64_MAX;
    return agent.started_ns + (agent.link.fd < 0 ? COMPLAIN_NS : SILENT_NS);
}

static void complain_once(uint64_t now_ns) {
    if (now_ns < complaint_due_ns())
        return;
    agent.complained = true;
    log_line(LOG_ERROR, "GEMINI_SOCKET=%s does not answer; %s", agent.link.path,
        agent.run_on_loss ? "running without it"
                          : "waiting: start the daemon, or set GEMINI_ON_BACKEND_LOSS=run to go on without it");
}

/* Without a socket nobody can be asked: who waits for an answer waits AGENT_LACKING_NS at most. Tried again for ever. */
static void look_for_lack(uint64_t now_ns) {
    bool closed = agent_closed();

    if (!agent.link.lacking || agent.run_on_loss) {
        agent.lacking_ns = 0;
        if (closed)
            attachment_set(agent.ever_up ? WELCOMED : STARTING);
        return;
    }
    if (!agent.lacking_ns) {
        agent.lacking_ns = now_ns;
        agent.complained = true; /* this is why nobody answers */
        attachment_complain(&A_SOCKET, agent.link.lacking);
    }
    if (now_ns < agent.lacking_ns + AGENT_LACKING_NS)
        return;
    if (!closed)
        attachment_set(CLOSED);
    mailbox_refuse_all(-ENOMEM);
}

/* Is there memory to report, or an answer to wait for, in a process that has nothing else to do? */
static bool owes_something(uint64_t now_ns) {
    if (mailbox_overdue(now_ns, 0))
        return true;
    for (uint32_t i = 0; i < agent.device_count; i++)
        if (agent_memory_owes_report(i, &hooks))
            return true;
    return false;
}

static uint64_t step_seats(uint64_t now_ns) {
    uint64_t deadline_ns = UINT64_MAX;
    bool admit = false;

    for (uint32_t i = 0; i < agent.device_count; i++) {
        uint64_t due_ns = seat_step(&agent.seats[i], &agent.world, now_ns, &admit);
        if (due_ns < deadline_ns)
            deadline_ns = due_ns;
    }
    for (uint32_t i = 0; i < agent.device_count; i++)
        if (admit)
            seat_admit(&agent.seats[i]);
        else
            seat_stop_admitting(&agent.seats[i]);
    if (now_ns >= agent.used_ns + WIRE_USED_EVERY_NS) {
        agent.used_ns = now_ns;
        for (uint32_t i = 0; i < agent.device_count; i++)
            if (seat_is_shared(&agent.seats[i]))
                seat_tell_used(&agent.seats[i], &agent.world);
    }
    for (uint32_t i = 0; i < agent.device_count; i++)
        if (seat_is_shared(&agent.seats[i]) && agent.used_ns + WIRE_USED_EVERY_NS < deadline_ns)
            deadline_ns = agent.used_ns + WIRE_USED_EVERY_NS;
    if (now_ns >= agent.stats_ns + STATS_NS) {
        agent.stats_ns = now_ns;
        for (uint32_t i = 0; i < agent.device_count; i++) {
            seat_stats(&agent.seats[i], &agent.world);
            if (agent.world.connected)
                agent_memory_report(i, &hooks, send_message);
        }
    }
    return deadline_ns;
}

/* The page is taken after Welcome: only then has the daemon heard what we hold, and its words say so. */
static void wait_until(uint64_t deadline_ns, short ready[2]) {
    static const struct timespec BLIND = {.tv_sec = 0, .tv_nsec = 1000000};
    struct pollfd fds[3] = {{.fd = attachment_event(), .events = POLLIN},
        {.fd = agent.link.fd, .events = link_interest(&agent.link)},
        {.fd = agent.world.connected ? agent.page.fd : -1, .events = POLLIN}};
    uint64_t now_ns = gate_now(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left_ns / 1000000000), .tv_nsec = (long)(left_ns % 1000000000)};
    uint64_t count;

    ready[0] = ready[1] = 0;
    int count_ready = ppoll(fds, 3, deadline_ns == UINT64_MAX ? NULL : &timeout, NULL);
    if (count_ready < 0 &&
        errno == EINVAL) { /* RLIMIT_NOFILE is below three: none can be waited for, so all are tried */
        syscall(SYS_nanosleep, &BLIND, NULL);
        for (int i = 0; i < 3; i++)
            fds[i].revents = fds[i].fd < 0 ? 0 : fds[i].events;
    } else if (count_ready <= 0) {
        return;
    }
    if (fds[0].revents && read(fds[0].fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return;
    ready[0] = fds[1].revents;
    ready[1] = fds[2].revents;
}

static void *run(void *nothing) {
    short ready[2];

    thread_begins("gemini-agent");
    link_step(&agent.link, 0, gate_now());
    for (;;) {
        uint64_t now_ns = gate_now();
        mailbox_flush(send_message, next_serial, now_ns);
        uint64_t deadline_ns = step_seats(now_ns);
        uint64_t link_ns = link_deadline(&agent.link);
        deadline_ns = link_ns < deadline_ns ? link_ns : deadline_ns;
        if (complaint_due_ns() < deadline_ns)
            deadline_ns = complaint_due_ns();
        if (agent.world.connected && agent.stats_ns + STATS_NS < deadline_ns &&
            (deadline_ns != UINT64_MAX || owes_something(now_ns)))
            deadline_ns = agent.stats_ns + STATS_NS;
        if (agent.link.up && !agent.world.connected && agent.hello_ns + agent.hello_patience_ns < deadline_ns)
            deadline_ns = agent.hello_ns + agent.hello_patience_ns;
        wait_until(deadline_ns, ready);
        now_ns = gate_now();
        if (ready[0] || now_ns >= link_deadline(&agent.link))
            link_step(&agent.link, ready[0], now_ns);
        uint64_t wait_ns = agent.refused ? REFUSED_NS : 0;
        bool overdue = agent.world.connected && mailbox_overdue(now_ns, agent.answer_patience_ns);
        if (overdue)
            agent.answer_patience_ns = more_patience(agent.answer_patience_ns, ANSWER_NS);
        if (agent.refused || overdue) {
            agent.refused = false;
            link_drop(&agent.link, now_ns, wait_ns);
        }
        if (agent.link.up && !agent.world.connected && now_ns >= agent.hello_ns + agent.hello_patience_ns)
            say_hello();
        if (ready[1] && agent.page.fd >= 0)
            page_step(&agent.page);
        look_for_lack(now_ns);
        complain_once(now_ns);
    }
    return nothing;
}

/* ---- starting, forking ---- */

static void after_fork_in_child(void) {
    link_close(&agent.link);
    page_disconnect(&agent.page, false);
    if (agent.page.map)
        page_open(&agent.page); /* local words again, at the same address */
    mailbox_reset_after_fork();
    gate_reset_after_fork();
    agent_memory_reset_after_fork();
}

static int start(const struct options *options, const struct need **lacks) {
    static const struct link_events EVENTS = {.on_up = on_up, .on_message = on_message, .on_down = on_down};
    uint8_t uuid[WIRE_MAX_DEVICES][16];

    *lacks = &A_PAGE;
    int error = page_open(&agent.page);
    if (error)
        return error;
    *lacks = &AN_EVENTFD;
    error = attachment_open_event();
    if (error)
        return error;
    int count = hooks.devices ? hooks.devices(uuid) : 0;
    agent.device_count = count < 0 ? 0 : count > WIRE_MAX_DEVICES ? WIRE_MAX_DEVICES : (uint32_t)count;
    for (uint32_t i = 0; i < WIRE_MAX_DEVICES; i++)
        seat_init(&agent.seats[i], i);
    agent.world =
        (struct seat_world){.page = &agent.page, .send = send_message, .ungated_lookups = hooks.ungated_lookups};
    agent.serial = agent.incarnation = 0;
    agent.lacking_ns = 0;
    agent.ever_up = agent.complained = false;
    agent.run_on_loss = options->run_on_loss;
    agent.started_ns = agent.stats_ns = agent.used_ns = gate_now();
    if (getrandom(&agent.nonce, sizeof agent.nonce, 0) != sizeof agent.nonce)
        agent.nonce = agent.started_ns ^ (uint64_t)getpid() << 40;
    link_open(&agent.link, options->socket, &EVENTS, NULL);
    gate_start();
    prctl(PR_GET_NAME, program);
    visit_end_at_exit();
    *lacks = &A_THREAD;
    error = thread_start(run);
    if (error)
        attachment_close_event();
    return error;
}

void agent_init(const struct agent_callbacks *callbacks) {
    static const struct attachment_start BY_THREAD = {start, after_fork_in_child};

    hooks = *callbacks;
    attachment_init(&BY_THREAD);
}
