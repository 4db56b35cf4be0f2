/*
 * probe.c - gemini-probe: what a card's driver does, where Gemini relies on it. It needs no daemon, no Python and no network.
 *
 *     gemini-probe [--harmless] [--only PROBE]... [FILE]      writes FILE, or to stdout
 *
 * Every probe runs in a process of its own, with its own time limit; FILE is written anew after each, so what was found
 * stays whatever comes. `answers` is all that was seen; `profile` what of it a simulated card can take over, by the keys
 * of GEMINI_SIM: GEMINI_SIM=profile=FILE is a card that behaves like this one (docs/simulator.md). `probes` says how each
 * ended. --harmless leaves out those that keep the card busy for longer than some tenths of a second.
 */
#define _GNU_SOURCE
#include "libhook/probe/probe.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWERS = 256, TEXT = 200, LIMIT_MS = 20000 };

static const struct probe {
    const char *name;
    void (*run)(void);
    bool harmless;
} probes[] = {
    {"card", probe_card, true},
    {"memory", probe_memory, true},
    {"refusals", probe_refusals, true},
    {"no-context", probe_no_context, true},
    {"captures", probe_captures, true},
    {"costs", probe_costs, true},
    {"loading", probe_loading, true},
    {"queue", probe_queue, false},
    {"copies", probe_copies, false},
    {"slices", probe_slices, false},
    {"clock", probe_clock, false},
};
enum { PROBES = sizeof(probes) / sizeof(probes[0]) };

/* Which answers a simulated card takes over, under which key of GEMINI_SIM, in which unit. */
static const struct key {
    const char *key, *answer, *unit;
} keys[] = {
    {"profile", "data_sheet", ""},
    {"name", "card_name", ""},
    {"driver", "driver", ""},
    {"memory", "memory_bytes", "B"},
    {"context", "context_bytes", "B"},
    {"strict", "strict", ""},
    {"slice", "slice_ns", "ns"},
    {"switch", "switch_ns", "ns"},
    {"host_bandwidth", "host_bytes_per_s", "B"},
    {"device_bandwidth", "device_bytes_per_s", "B"},
    {"copy_latency", "copy_latency_ns", "ns"},
};
enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

static struct {
    char name[64], value[TEXT];
    bool number;
} answers[ANSWERS];
static int answer_count;
static char endings[PROBES][TEXT];
static int to_parent = -1;

/* In a probe's process: a line to the parent, "name TAB n|t TAB value". */
static void tell(const char *name, char kind, const char *value) {
    char line[TEXT + 80];
    int length = snprintf(line, sizeof(line), "%s\t%c\t%s\n", name, kind, value);
    if (length > 0 && (size_t)length < sizeof(line) && write(to_parent, line, (size_t)length) < 0)
        _exit(1);
}

void say(const char *name, double value) {
    char text[40];
    snprintf(text, sizeof(text), "%.10g", value);
    tell(name, 'n', text);
}

void say_text(const char *name, const char *value) {
    tell(name, 't', value);
}

void need(int code, const char *call) {
    char text[TEXT];
    if (code == SUCCESS)
        return;
    snprintf(text, sizeof(text), "%.60s answered %d", call, code);
    tell("", 't', text);
    _exit(1);
}

static void take(char *line, int probe) {
    char *kind = strchr(line, '\t');
    if (kind == NULL || kind[1] == '\0' || kind[2] != '\t')
        return;
    *kind = '\0';
    if (*line == '\0') {
        snprintf(endings[probe], TEXT, "%.150s", kind + 3);
        return;
    }
    int at = 0;
    while (at < answer_count && strcmp(answers[at].name, line) != 0)
        at++;
    if (at == ANSWERS)
        return;
    if (at == answer_count)
        answer_count++;
    snprintf(answers[at].name, sizeof(answers[at].name), "%.60s", line);
    snprintf(answers[at].value, TEXT, "%.190s", kind + 3);
    answers[at].number = kind[1] == 'n';
}

/* To the probe's end, or to that of its time. */
static void listen(int from, int probe, pid_t child) {
    char text[4096];
    size_t had = 0;
    uint64_t deadline = now_ns() + LIMIT_MS * 1000000ull;
    for (;;) {
        uint64_t now = now_ns();
        struct pollfd ready = {.fd = from, .events = POLLIN};
        if (now >= deadline || poll(&ready, 1, (int)((deadline - now) / 1000000) + 1) == 0) {
            snprintf(endings[probe], TEXT, "did not end within %d s", LIMIT_MS / 1000);
            break;
        }
        ssize_t got = read(from, text + had, sizeof(text) - 1 - had);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        had += (size_t)got;
        text[had] = '\0';
        char *line = text;
        for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            take(line, probe);
        }
        had -= (size_t)(line - text);
        memmove(text, line, had);
    }
    kill(-child, SIGKILL); /* and whom it started */
}

static void run(int probe) {
    int ends[2], status;
    if (pipe(ends) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever ends the parent wants no more of it */
        close(ends[0]);
        to_parent = ends[1];
        probes[probe].run();
        _exit(0); /* without the driver's own end: it is the kernel's matter to clean up */
    }
    setpgid(child, child);
    close(ends[1]);
    if (child > 0) {
        listen(ends[0], probe, child);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        if (endings[probe][0] == '\0') {
            if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
                snprintf(endings[probe], TEXT, "ended by signal %d", WTERMSIG(status));
            else
                strcpy(endings[probe], "ok");
        }
    }
    close(ends[0]);
}

static void quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++)
        if ((unsigned char)*text >= ' ')
            fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', out);
}

static void write_answers(FILE *out) {
    const char *between = "";
    fputs("{\n \"profile\": {", out);
    for (int i = 0; i < KEYS; i++)
        for (int j = 0; j < answer_count; j++)
            if (strcmp(answers[j].name, keys[i].answer) == 0) {
                char text[TEXT + 8];
                if (answers[j].number) /* whole numbers: a simulated card counts in bytes and nanoseconds */
                    snprintf(text, sizeof(text), "%.0f%s", strtod(answers[j].value, NULL), keys[i].unit);
                else
                    snprintf(text, sizeof(text), "%s%s", answers[j].value, keys[i].unit);
                fprintf(out, "%s\n  \"%s\": ", between, keys[i].key);
                quoted(out, text);
                between = ",";
            }
    fputs("\n },\n \"answers\": {", out);
    between = "";
    for (int i = 0; i < answer_count; i++) {
        fprintf(out, "%s\n  \"%s\": ", between, answers[i].name);
        if (answers[i].number)
            fputs(answers[i].value, out);
        else
            quoted(out, answers[i].value);
        between = ",";
    }
    fputs("\n },\n \"probes\": {", out);
    between = "";
    for (int i = 0; i < PROBES; i++)
        if (endings[i][0] != '\0') {
            fprintf(out, "%s\n  \"%s\": ", between, probes[i].name);
            quoted(out, endings[i]);
            between = ",";
        }
    fputs("\n }\n}\n", out);
}

/* Whole or not at all: under another name first. */
static int save(const char *path) {
    char beside[4096];
    snprintf(beside, sizeof(beside), "%s.new", path);
    FILE *out = fopen(beside, "we");
    if (out == NULL)
        return -1;
    write_answers(out);
    return fclose(out) != 0 || rename(beside, path) != 0 ? -1 : 0;
}

static bool wanted(int probe, int count, char **words, bool harmless) {
    bool named = false, any = false;
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(words[i], "--only") == 0) {
            any = true;
            named = named || strcmp(words[i + 1], probes[probe].name) == 0;
        }
    return any ? named : probes[probe].harmless || !harmless;
}

int main(int count, char **words) {
    const char *path = NULL;
    bool harmless = false;
    for (int i = 1; i < count; i++)
        if (strcmp(words[i], "--harmless") == 0)
            harmless = true;
        else if (strcmp(words[i], "--only") == 0 && i + 1 < count)
            i++;
        else if (words[i][0] != '-' && path == NULL)
            path = words[i];
        else {
            fprintf(stderr, "usage: gemini-probe [--harmless] [--only PROBE]... [FILE]\n");
            return 2;
        }
    for (int i = 0; i < PROBES; i++) {
        if (!wanted(i, count, words, harmless))
            continue;
        run(i);
        if (path != NULL && save(path) != 0) {
            fprintf(stderr, "gemini-probe: %s: %s\n", path, strerror(errno));
            return 1;
        }
    }
    if (path == NULL)
        write_answers(stdout);
    for (int i = 0; i < PROBES; i++)
        if (endings[i][0] != '\0' && strcmp(endings[i], "ok") != 0)
            return 1;
    return 0;
}
