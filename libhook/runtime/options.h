/*
 * options.h - what the environment tells the library. One table in options.c: name, default, parser.
 *
 * Read once, at the first CUDA call, never earlier. A value that cannot be used costs one log line that names the value
 * and the mend, and its default takes its place: a typing error in the environment must not stop a program.
 */
#ifndef GEMINI_RUNTIME_OPTIONS_H
#define GEMINI_RUNTIME_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_WELL_KNOWN_SOCKET "/run/gemini/tenant.sock"
#define OPTIONS_SOCKET_MAX 108 /* sun_path, its NUL included */

struct options {
    char socket[OPTIONS_SOCKET_MAX]; /* path, without ipc://; empty: no tenant, the library is inert */
    uint64_t memory_limit_bytes;     /* informative: what the daemon says counts; 0: not said */
    bool run_on_loss;                /* without a daemon: false waits, true runs free */
    int log_level;                   /* enum log_level */
    char log_file[256];              /* empty: stderr */
};

/* The options of this process, parsed at the first call. Any thread; keeps errno. */
const struct options *options_of_process(void);

/* Parse `name=value` into `options`; returns 0, -ENOENT (no option of ours) or -EINVAL (what options_of_process logs). */
int options_parse(struct options *options, const char *name, const char *value);
void options_default(struct options *options);

#endif
