/*
 * Making, finding and leaving the machine: /dev/shm/gemini-sim-UID-ID, a sparse file of which only what is used takes
 * memory. It is made under another name and linked into place when it is complete, so nobody meets half a machine.
 */
#define _GNU_SOURCE
#include "libhook/sim/model/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libhook/sim/model/clock.h"

/* Of one made by another build, in which a field may lie elsewhere, nothing may be read. */
static uint64_t magic_of_this_build(void) {
    return SIM_MAGIC ^ sizeof(struct sim_machine) ^ (uint64_t)sizeof(struct sim_state) << 32 ^ sim_spec_layout();
}

#define UNKNOWN_TIME UINT64_MAX

/* Whether /proc counts processes as we do; it does not where they are counted anew and nothing is mounted for it. */
static bool proc_is_ours(void) {
    char self[16];
    ssize_t length = readlink("/proc/self", self, sizeof(self) - 1);
    self[length < 0 ? 0 : length] = 0;
    return length > 0 && atoi(self) == getpid();
}

/* Field 22 of /proc/PID/stat, counted from behind the command, which may hold anything. 0: no such process;
 * UNKNOWN_TIME: we cannot look (out of descriptors, say). */
static uint64_t start_time(pid_t pid) {
    char path[40], text[1024];
    if (!proc_is_ours())
        return kill(pid, 0) && errno == ESRCH ? 0 : UNKNOWN_TIME;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ESRCH ? 0 : UNKNOWN_TIME;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = 0;
    char *at = strrchr(text, ')'), *rest = NULL;
    char state = at && at[1] ? at[2] : 'X';
    if (state == 'Z' || state == 'X')
        return 0;
    at = strtok_r(at + 2, " ", &rest);
    for (int field = 3; at && field < 22; field++)
        at = strtok_r(NULL, " ", &rest);
    return at ? strtoull(at, NULL, 10) : 0;
}

bool machine_same_process(struct sim_process *process) {
    uint64_t claimed = atomic_load(&process->start_time),
             is = start_time((pid_t)(uint32_t)atomic_load(&process->owner));
    return is && (!claimed || is == UNKNOWN_TIME || claimed == is);
}

void machine_free_seat(struct sim_process *process, uint64_t owner) {
    if (atomic_load(&process->owner) != owner)
        return;
    /* First this: whoever claims the seat next is its owner before its own start time stands here, and must not be
     * taken for a stranger with the time of the one before. A claimer whose time is wiped is known by its pid alone. */
    atomic_store(&process->start_time, 0);
    atomic_compare_exchange_strong(&process->owner, &owner, 0);
}

void machine_uuid(const struct sim_machine *machine, uint32_t device, uint8_t uuid[16]) {
    uint64_t hash = 0xcbf29ce484222325u ^ device; /* FNV-1a over the id, stirred (splitmix64) for each half */
    for (const char *c = machine->spec.id; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    for (int i = 0; i < 16; i += 8) {
        uint64_t word = hash += 0x9e3779b97f4a7c15u;
        word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
        word = (word ^ word >> 27) * 0x94d049bb133111ebu;
        word ^= word >> 31;
        memcpy(uuid + i, &word, 8);
    }
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x40); /* shaped like a random UUID */
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

void machine_uuid_text(const struct sim_machine *machine, uint32_t device, char text[48]) {
    uint8_t u[16];
    char *at = text + sprintf(text, "GPU");
    machine_uuid(machine, device, u);
    for (int i = 0; i < 16; i++)
        at += sprintf(at, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

static void begin(struct sim_machine *machine, const struct sim_spec *spec) {
    machine->magic = magic_of_this_build();
    machine->bytes = sizeof(*machine);
    machine->spec = *spec;
    machine->first.now_ns = sim_now();
    for (int d = 0; d < SIM_DEVICES; d++) {
        machine->first.device[d].current = -1;
        for (int k = 0; k < SIM_COPIES; k++)
            machine->first.device[d].copying[k] = -1;
    }
}

static struct sim_machine *map(int fd) {
    struct sim_machine *machine =
        mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return machine == MAP_FAILED ? NULL : machine;
}

static bool for_all(const struct sim_spec *spec) {
    return strcmp(spec->users, "all") == 0;
}

/* A complete machine at `path`. With `replace` it takes the place of what is there, else -EEXIST. */
static int create(const char *path, const struct sim_spec *spec, bool replace) {
    char draft[256];
    snprintf(draft, sizeof(draft), "%s.%d.new", path, (int)getpid());
    int fd = open(draft, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), error = 0;
    if (fd < 0)
        return -errno;
    if (for_all(spec))
        fchmod(fd, 0666); /* whatever the umask; who may not shall see it when opening */
    struct sim_machine *machine = ftruncate(fd, sizeof(*machine)) ? NULL : map(fd);
    if (machine) {
        begin(machine, spec);
        munmap(machine, sizeof(*machine));
        if (replace ? rename(draft, path) : link(draft, path))
            error = -errno;
    } else {
        error = -errno;
    }
    unlink(draft);
    close(fd);
    return error;
}

static bool anyone_there(struct sim_machine *machine) {
    for (int i = 0; i < SIM_PROCESSES; i++)
        if (atomic_load(&machine->process[i].owner) && machine_same_process(&machine->process[i]))
            return true;
    return false;
}

/* Map the machine of this path, making or replacing it where that is due. */
static int enter(const char *path, const struct sim_spec *spec, uint32_t given, bool make, struct sim_machine **out) {
    for (int tries = 0; tries < 100; tries++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT && make) {
            int error = create(path, spec, false);
            if (error && error != -EEXIST)
                return error;
            continue;
        }
        if (fd < 0)
            return -errno;
        struct stat status;
        bool fits = fstat(fd, &status) == 0 && status.st_size == (off_t)sizeof(struct sim_machine);
        struct sim_machine *machine = fits ? map(fd) : NULL;
        close(fd);
        fits = machine && machine->magic == magic_of_this_build();
        if (fits && (sim_spec_agree(&machine->spec, spec, given) || anyone_there(machine))) {
            *out = machine;
            return 0;
        }
        if (machine)
            munmap(machine, sizeof(*machine));
        if (!make)
            return -EPROTO;
        int error = create(path, spec, true);
        if (error)
            return error;
    }
    return -EAGAIN;
}

/* A seat of its own for this process; also after a death that nobody has noticed yet. */
static int claim(struct sim_machine *machine, int *number, uint64_t *owner_out) {
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SIM_PROCESSES; i++) {
            struct sim_process *process = &machine->process[i];
            uint64_t nobody = 0;
            uint64_t owner = (uint64_t)(atomic_fetch_add(&machine->incarnations, 1) + 1) << 32 | (uint32_t)getpid();
            if (atomic_load(&process->owner) || !atomic_compare_exchange_strong(&process->owner, &nobody, owner))
                continue;
            uint64_t started = start_time(getpid());
            atomic_store(&process->start_time, started == UNKNOWN_TIME ? 0 : started);
            *number = i;
            *owner_out = owner;
            return 0;
        }
        for (int i = 0; i < SIM_PROCESSES; i++) {
            uint64_t owner = atomic_load(&machine->process[i].owner);
            if (owner && !machine_same_process(&machine->process[i]))
                machine_free_seat(&machine->process[i], owner);
        }
    }
    return -EUSERS;
}

int machine_join(const char *text, bool make, struct sim_machine **machine, int *number, uint64_t *owner, char *why,
    size_t why_size) {
    struct sim_spec spec;
    uint32_t given;
    char path[160], lock[176];
    int error = sim_spec_parse(text, &spec, &given, why, why_size);
    if (error)
        return error;
    if (for_all(&spec))
        snprintf(path, sizeof(path), "/dev/shm/gemini-sim-all-%s", spec.id);
    else
        snprintf(path, sizeof(path), "/dev/shm/gemini-sim-%u-%s", (unsigned)geteuid(), spec.id);
    /* Two starters must not replace one another's machine; a starter that was stopped must not stop the others. */
    snprintf(lock, sizeof(lock), "%s.lock", path);
    int lock_fd = make ? open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    for (int i = 0; lock_fd >= 0 && flock(lock_fd, LOCK_EX | LOCK_NB) && i < 200; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    error = enter(path, &spec, given, make, machine);
    if (!error)
        error = claim(*machine, number, owner);
    if (lock_fd >= 0)
        close(lock_fd);
    if (error)
        snprintf(why, why_size, "%s: %s", path, strerror(-error));
    return error;
}
