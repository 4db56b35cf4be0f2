/* options.c - the one table of what the environment may say (options.h). */
#include "libhook/runtime/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "libhook/runtime/cancel.h"
#include "libhook/runtime/forks.h"
#include "libhook/runtime/log.h"

static int parse_socket(struct options *options, const char *value) {
    if (!strncmp(value, "ipc://", 6))
        value += 6;
    if (value[0] != '/' || strlen(value) >= sizeof options->socket)
        return -EINVAL;
    strcpy(options->socket, value);
    return 0;
}

static int parse_memory_limit(struct options *options, const char *value) {
    char *end;

    if (value[0] < '0' || value[0] > '9') /* strtoull would take " -1" for 2^64 - 1 */
        return -EINVAL;
    errno = 0;
    unsigned long long bytes = strtoull(value, &end, 10);
    if (errno || *end)
        return -EINVAL;
    options->memory_limit_bytes = bytes;
    return 0;
}

static int parse_loss(struct options *options, const char *value) {
    if (strcmp(value, "wait") && strcmp(value, "run"))
        return -EINVAL;
    options->run_on_loss = value[0] == 'r';
    return 0;
}

static int parse_log_level(struct options *options, const char *value) {
    static const char *const NAMES[] = {"error", "warn", "info", "debug"};

    for (int i = 0; i < 4; i++)
        if (!strcmp(value, NAMES[i])) {
            options->log_level = i;
            return 0;
        }
    return -EINVAL;
}

static int parse_log_file(struct options *options, const char *value) {
    if (!*value || strlen(value) >= sizeof options->log_file)
        return -EINVAL;
    strcpy(options->log_file, value);
    return 0;
}

static const struct option {
    const char *name;
    int (*parse)(struct options *options, const char *value);
    const char *mend;
} TABLE[] = {
    {"GEMINI_LOG", parse_log_level, "use error, warn, info or debug"},
    {"GEMINI_LOG_FILE", parse_log_file, "use a path of at most 255 bytes"},
    {"GEMINI_SOCKET", parse_socket, "use an absolute path of at most 107 bytes, with or without ipc://"},
    {"GEMINI_MEMORY_LIMIT", parse_memory_limit, "use a number of bytes"},
    {"GEMINI_ON_BACKEND_LOSS", parse_loss, "use wait or run"},
};
#define OPTION_COUNT (sizeof TABLE / sizeof *TABLE)

void options_default(struct options *options) {
    memset(options, 0, sizeof *options);
}

int options_parse(struct options *options, const char *name, const char *value) {
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (!strcmp(name, TABLE[i].name))
            return TABLE[i].parse(options, value);
    return -ENOENT;
}

/* 0: not read; 1: one thread reads; 2: there. A thread that loses the race waits: reading takes microseconds. */
static int state;
static struct options process_options;

/* The thread that read is not in the child, which would wait for it for ever. */
static void forget_in_child(void) {
    if (state == 1)
        state = 0;
}

const struct options *options_of_process(void) {
    static int watching;

    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == 2)
        return &process_options;
    int saved = errno, expected = 0, cancel = cancel_hold();
    forks_watch(&watching, forget_in_child);
    if (!__atomic_compare_exchange_n(&state, &expected, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != 2)
            usleep(50);
        cancel_release(cancel);
        errno = saved;
        return &process_options;
    }
    bool refused[OPTION_COUNT] = {false};
    options_default(&process_options);
    /* Setuid and the like: whoever started it may not tell it where to connect or what to write. It is no tenant. */
    for (size_t i = 0; i < OPTION_COUNT && !getauxval(AT_SECURE); i++) {
        const char *value = getenv(TABLE[i].name);
        if (value && *value)
            refused[i] = TABLE[i].parse(&process_options, value) != 0;
    }
    if (!process_options.socket[0] && !getauxval(AT_SECURE) && !access(OPTIONS_WELL_KNOWN_SOCKET, F_OK))
        strcpy(process_options.socket, OPTIONS_WELL_KNOWN_SOCKET);
    log_configure(process_options.log_level, process_options.log_file);
    __atomic_store_n(&state, 2, __ATOMIC_RELEASE);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (refused[i])
            log_line(LOG_ERROR, "%s=%.200s cannot be used; %s", TABLE[i].name, getenv(TABLE[i].name), TABLE[i].mend);
    cancel_release(cancel);
    errno = saved;
    return &process_options;
}
