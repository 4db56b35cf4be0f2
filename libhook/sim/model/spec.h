/*
 * spec.h - the GEMINI_SIM grammar: what the simulated machine is made of (docs/simulator.md lists the keys).
 *
 *     GEMINI_SIM = key=value[,key=value...]      e.g.  gpus=2,memory=80GiB,name=NVIDIA H200,id=lab
 *
 * Pure: no I/O but reading the named kernel table and the file of a profile.
 */
#ifndef GEMINI_SIM_SPEC_H
#define GEMINI_SIM_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_DEVICES = 16, SIM_NAME = 64, SIM_ID = 48, SIM_PROFILE = 16, SIM_USERS = 4 };

struct sim_spec {
    char id[SIM_ID];
    char name[SIM_NAME];
    char users[SIM_USERS];     /* "own": the machine is this user's; "all": everybody's who names it so */
    char profile[SIM_PROFILE]; /* of roofline.h; empty: kernels take kernel_ns */
    uint32_t gpus;
    uint32_t driver_version;   /* as cuDriverGetVersion says it: 13000 */
    uint32_t strict;           /* calls without a current context are refused wherever they may be */
    uint32_t bounds;           /* a size beyond every address space is an invalid value */
    uint32_t fatal_handle;     /* a kernel where a function is asked for, or the other way, ends the process */
    uint32_t fatal_exit;       /* a call of another thread's after exit() ends the process */
    uint32_t hidden_pids;      /* NVML lists no process, as where pids are another namespace's */
    uint32_t overlap;          /* kernels of one process's streams run beside each other, as far as they fit */
    uint64_t memory_bytes;     /* of each card */
    uint64_t context_bytes;    /* what each context takes of the card */
    uint64_t growth_bytes;     /* ... and more with its first kernel */
    uint64_t slice_ns;         /* a context's time slice while others have work */
    uint64_t switch_ns;        /* idle time of a switch that preempts */
    uint64_t drained_ns;       /* idle time of a switch from a context with nothing to run */
    uint64_t release_ns;       /* from a store until a queue that waited for it goes on */
    uint64_t kernel_ns;        /* kernels of which nothing else is known */
    uint64_t load_ns;          /* host time of a function's first launch */
    uint64_t host_bytes_per_s; /* each of the two copy engines */
    uint64_t device_bytes_per_s; /* copies inside the card, and memsets, on the compute engine */
    uint64_t peer_bytes_per_s; /* copies between cards, on the compute engine of the source */
    uint64_t copy_latency_ns;  /* of every copy and memset */
};

/* Fill `spec` from text (NULL or "" for the defaults). `given`, if not NULL, gets a bit per key that the text names, by
 * the order of the table in spec.c. Returns 0, or -EINVAL with one line about the bad part in `why`. */
int sim_spec_parse(const char *text, struct sim_spec *spec, uint32_t *given, char *why, size_t why_size);

/* Do the two agree in every key of `given`? The id is not compared. */
bool sim_spec_agree(const struct sim_spec *a, const struct sim_spec *b, uint32_t given);

/* A number of where each key's field lies: another one in every build that would read another's machine wrongly. */
uint64_t sim_spec_layout(void);

/* The `kernels=FILE` of the text: kernel names and their times, one "NAME NANOSECONDS" a line, # comments. The file
 * is the process's own matter and no part of the machine. Returns the time of `name`, or 0 if it is not in the file. */
uint64_t sim_spec_kernel_ns(const char *text, const char *name);

#endif
