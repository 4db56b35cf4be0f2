/* options.h - what the load generator's command line says. */
#ifndef GEMINI_SIM_LOAD_OPTIONS_H
#define GEMINI_SIM_LOAD_OPTIONS_H

#include <stdbool.h>

enum { MAX_STREAMS = 64, MAX_THREADS = 256 };

struct load_options {
    double kernel_us, gap_us, seconds;
    long burst, sync_every, streams, graph, threads, device, alloc_bytes;
    const char *json, *stamps, *bursts;
    bool legacy, per_thread;
};
extern struct load_options load_options;

/* Read the words of a command line; ends the program with one line where they are none of ours, or with the usage. */
void load_parse(int argc, char **argv);

#endif
