/* options.c - parses the load generator's command line (options.h). */
#include "libhook/sim/load/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct load_options load_options = {.kernel_us = 100, .seconds = 10, .streams = 1, .threads = 1};

static const char usage[] =
    "usage: gemini-load [--kernel-us U] [--burst N] [--gap-us G] [--sync-every N] [--streams S|legacy|per-thread]\n"
    "                   [--threads T] [--graph N] [--alloc BYTES] [--device D] [--seconds S] [--json FILE]\n"
    "                   [--stamps FILE] [--bursts FILE]\n"
    "Launches kernels of U us (100), back to back and asynchronously. --burst N: after N launches a synchronise and\n"
    "--gap-us of host time. --graph N: graphs of N kernels. --seconds 0: until SIGTERM. --json -: to stdout.\n";

/* A number within [low, high]; ends the program with one line where it is none. */
static double number_option(const char *name, const char *text, double low, double high) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "gemini-load: --%s %s: give a number from %g to %g\n", name, text, low, high);
        exit(2);
    }
    return value;
}

void load_parse(int argc, char **argv) {
    enum { KERNEL, BURST, GAP, SYNC, STREAMS, THREADS, GRAPH, ALLOC, DEVICE, SECONDS, JSON, STAMPS, BURSTS, HELP };
    static const struct option names[] = {{"kernel-us", 1, 0, KERNEL}, {"burst", 1, 0, BURST}, {"gap-us", 1, 0, GAP},
        {"sync-every", 1, 0, SYNC}, {"streams", 1, 0, STREAMS}, {"threads", 1, 0, THREADS}, {"graph", 1, 0, GRAPH},
        {"alloc", 1, 0, ALLOC}, {"device", 1, 0, DEVICE}, {"seconds", 1, 0, SECONDS}, {"json", 1, 0, JSON},
        {"stamps", 1, 0, STAMPS}, {"bursts", 1, 0, BURSTS}, {"help", 0, 0, HELP}, {0, 0, 0, 0}};
    int which, row;
    while ((which = getopt_long(argc, argv, "", names, &row)) != -1) {
        const char *name = which == '?' ? "" : names[row].name;
        switch (which) {
        case KERNEL: load_options.kernel_us = number_option(name, optarg, 0, 1e9); break;
        case BURST: load_options.burst = (long)number_option(name, optarg, 1, 1e9); break;
        case GAP: load_options.gap_us = number_option(name, optarg, 0, 1e9); break;
        case SYNC: load_options.sync_every = (long)number_option(name, optarg, 1, 1e9); break;
        case THREADS: load_options.threads = (long)number_option(name, optarg, 1, MAX_THREADS); break;
        case GRAPH: load_options.graph = (long)number_option(name, optarg, 1, 100000); break;
        case ALLOC: load_options.alloc_bytes = (long)number_option(name, optarg, 0, 1e15); break;
        case DEVICE: load_options.device = (long)number_option(name, optarg, 0, 255); break;
        case SECONDS: load_options.seconds = number_option(name, optarg, 0, 1e9); break;
        case JSON: load_options.json = optarg; break;
        case STAMPS: load_options.stamps = optarg; break;
        case BURSTS: load_options.bursts = optarg; break;
        case STREAMS:
            load_options.legacy = strcmp(optarg, "legacy") == 0;
            load_options.per_thread = strcmp(optarg, "per-thread") == 0;
            if (!load_options.legacy && !load_options.per_thread)
                load_options.streams = (long)number_option(name, optarg, 1, MAX_STREAMS);
            break;
        case HELP: fputs(usage, stdout); exit(0);
        default: fputs("gemini-load: see gemini-load --help\n", stderr); exit(2);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "gemini-load: %s is no option; see gemini-load --help\n", argv[optind]);
        exit(2);
    }
    if (load_options.graph && load_options.stamps) {
        fputs("gemini-load: --stamps does not go with --graph, whose kernels keep one place; leave one out\n", stderr);
        exit(2);
    }
    if (load_options.gap_us > 0 && !load_options.burst && !load_options.sync_every)
        load_options.burst = 1;
    if (load_options.legacy && load_options.graph) {
        fputs("gemini-load: --graph cannot be captured on --streams legacy; give a number of streams\n", stderr);
        exit(2);
    }
}
