#include "libhook/sim/model/spec.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libhook/sim/model/profile.h"
#include "libhook/sim/model/roofline.h"

enum kind { TEXT, PROFILE, COUNT, BYTES, BYTES_OR_NONE, TIME, VERSION, FLAG, FILENAME };

static const struct key {
    const char *name;
    enum kind kind;
    size_t offset, size;
    const char *fallback;
} keys[] = {
#define KEY(name, kind, field, fallback)                                                                               \
    {name, kind, offsetof(struct sim_spec, field), sizeof(((struct sim_spec *)0)->field), fallback}
    KEY("id", TEXT, id, "default"),
    KEY("users", TEXT, users, "own"),
    KEY("name", TEXT, name, "NVIDIA H200 (simulated)"),
    KEY("gpus", COUNT, gpus, "1"),
    KEY("profile", PROFILE, profile, NULL),
    KEY("driver", VERSION, driver_version, "13.0"),
    KEY("strict", FLAG, strict, "on"),
    KEY("bounds", FLAG, bounds, "off"),
    KEY("fatal_exit", FLAG, fatal_exit, "off"),
    KEY("fatal_handle", FLAG, fatal_handle, "off"),
    KEY("hidden_pids", FLAG, hidden_pids, "off"),
    KEY("overlap", FLAG, overlap, "off"),
    KEY("memory", BYTES, memory_bytes, "80GiB"),
    KEY("context", BYTES, context_bytes, "32MiB"),
    KEY("growth", BYTES_OR_NONE, growth_bytes, "0"),
    KEY("slice", TIME, slice_ns, "1024us"),
    KEY("switch", TIME, switch_ns, "50us"),
    KEY("drained", TIME, drained_ns, "25us"),
    KEY("release", TIME, release_ns, "2us"),
    KEY("kernel", TIME, kernel_ns, "10us"),
    KEY("load", TIME, load_ns, "0"),
    KEY("host_bandwidth", BYTES, host_bytes_per_s, "50GB"),
    KEY("device_bandwidth", BYTES, device_bytes_per_s, "2000GB"),
    KEY("peer_bandwidth", BYTES, peer_bytes_per_s, "300GB"),
    KEY("copy_latency", TIME, copy_latency_ns, "1500ns"),
    {"kernels", FILENAME, 0, 0, NULL},
};
enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

static const struct {
    const char *suffix;
    double factor;
} units[] = {
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"kB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"ns", 1.0},
    {"us", 1e3},
    {"ms", 1e6},
    {"s", 1e9},
    {"B", 1.0},
    {"", 1.0},
};

uint64_t sim_spec_layout(void) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        for (const char *c = keys[i].name; *c; c++)
            hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
        hash = (hash ^ keys[i].offset << 16 ^ keys[i].size) * 0x100000001b3u;
    }
    return hash;
}

/* A number with a unit, e.g. 80GiB or 1.5us. Bytes and times share one table; a wrong mixture is the user's own fun. */
static int scaled(const char *text, uint64_t *value) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || !(number >= 0)) /* strtod knows "nan" too */
        return -EINVAL;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].suffix) == 0) {
            if (number * units[i].factor > 9e18)
                return -EINVAL;
            *value = (uint64_t)(number * units[i].factor);
            return 0;
        }
    return -EINVAL;
}

static int set(struct sim_spec *spec, const struct key *key, const char *text) {
    char *field = (char *)spec + key->offset;
    uint64_t value;
    int major, minor;
    switch (key->kind) {
    case FILENAME: return 0;
    case TEXT:
        if (strlen(text) == 0 || strlen(text) >= key->size || (strcmp(key->name, "id") == 0 && strchr(text, '/')) ||
            (strcmp(key->name, "users") == 0 && strcmp(text, "own") != 0 && strcmp(text, "all") != 0))
            return -EINVAL;
        memset(field, 0, key->size);
        memcpy(field, text, strlen(text));
        return 0;
    case PROFILE:
        if (profile_is_file(text))
            return 0; /* read when all is known that stands beside it */
        if (!*text || strlen(text) >= key->size || !roofline_of(text))
            return -EINVAL;
        memset(field, 0, key->size);
        for (size_t i = 0; text[i]; i++)
            field[i] = (char)tolower((unsigned char)text[i]);
        return 0;
    case COUNT:
        if (scaled(text, &value) || value < 1 || value > SIM_DEVICES)
            return -EINVAL;
        *(uint32_t *)field = (uint32_t)value;
        return 0;
    case VERSION:
        if (sscanf(text, "%d.%d", &major, &minor) != 2 || major < 11 || major > 99 || minor < 0 || minor > 99)
            return -EINVAL;
        *(uint32_t *)field = (uint32_t)(major * 1000 + minor * 10);
        return 0;
    case FLAG:
        if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
            return -EINVAL;
        *(uint32_t *)field = strcmp(text, "on") == 0;
        return 0;
    case BYTES:
    case BYTES_OR_NONE:
    case TIME:
        if (scaled(text, &value) || (key->kind == BYTES && value == 0))
            return -EINVAL;
        *(uint64_t *)field = value;
        return 0;
    }
    return -EINVAL;
}

/* The next "key=value" of the text; the value ends at a comma that starts another key, so names may hold commas. */
static const char *next(const char *text, char *key, size_t key_size, char *value, size_t value_size) {
    const char *equals = strchr(text, '=');
    if (!equals || (size_t)(equals - text) >= key_size)
        return NULL;
    memcpy(key, text, (size_t)(equals - text));
    key[equals - text] = 0;
    const char *end = equals + 1;
    for (;;) {
        end += strcspn(end, ",");
        if (!*end)
            break;
        const char *after = end + 1;
        size_t word = strcspn(after, "=,");
        if (after[word] == '=' || !*after)
            break;
        end = after;
    }
    if ((size_t)(end - equals - 1) >= value_size)
        return NULL;
    memcpy(value, equals + 1, (size_t)(end - equals - 1));
    value[end - equals - 1] = 0;
    return *end ? end + 1 : end;
}

/* How a card is less kind than what stands where no profile is named (docs/simulator.md says where it is from). */
static const struct {
    const char *name, *value;
} unkind[] = {
    {"overlap", "on"},
    {"bounds", "on"},
    {"context", "500MiB"},
    {"growth", "100MiB"},
    {"switch", "100us"},
    {"load", "500us"},
};

/* What the profile says of the card, where the text does not. */
static void fill_in(struct sim_spec *spec, uint32_t seen) {
    const struct roofline *card = roofline_of(spec->profile);
    for (int i = 0; i < KEYS; i++) {
        if (seen & 1u << i)
            continue;
        if (strcmp(keys[i].name, "name") == 0)
            set(spec, &keys[i], card->name);
        else if (strcmp(keys[i].name, "memory") == 0)
            spec->memory_bytes = card->memory_bytes;
        else if (strcmp(keys[i].name, "device_bandwidth") == 0)
            spec->device_bytes_per_s = card->bytes_per_s;
        for (size_t k = 0; k < sizeof(unkind) / sizeof(unkind[0]); k++)
            if (strcmp(keys[i].name, unkind[k].name) == 0)
                set(spec, &keys[i], unkind[k].value);
    }
}

/* What the file of a profile is read into: keys that are named beside it stay as they are. */
struct filling {
    struct sim_spec *spec;
    uint32_t named, filled;
    char *why;
    size_t why_size;
};

static int fill_one(const char *name, const char *value, void *data) {
    struct filling *filling = data;
    for (int i = 1; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) != 0 || (filling->named & 1u << i))
            continue;
        if (set(filling->spec, &keys[i], value)) {
            snprintf(filling->why, filling->why_size, "GEMINI_SIM: '%.60s' is no value for %s", value, name);
            return -ERANGE;
        }
        filling->filled |= 1u << i;
    }
    return 0; /* one that is not known here was seen by a newer probe */
}

static int fill_from(const char *path, struct filling *filling) {
    int result = profile_read(path, fill_one, filling);
    if (result && result != -ERANGE)
        snprintf(filling->why, filling->why_size, "GEMINI_SIM: profile=%.120s: %s", path,
            result == -EINVAL ? "has no profile in it" : strerror(-result));
    return result ? -EINVAL : 0;
}

int sim_spec_parse(const char *text, struct sim_spec *spec, uint32_t *given, char *why, size_t why_size) {
    char file[256] = "";
    uint32_t seen = 0;
    memset(spec, 0, sizeof(*spec));
    for (int i = 0; i < KEYS; i++)
        if (keys[i].fallback)
            set(spec, &keys[i], keys[i].fallback);
    while (text && *text) {
        char name[32], value[256];
        const char *rest = next(text, name, sizeof(name), value, sizeof(value));
        int i = 0;
        while (rest && i < KEYS && strcmp(keys[i].name, name) != 0)
            i++;
        if (!rest || i == KEYS) {
            snprintf(why, why_size, "GEMINI_SIM: '%.60s' is no key=value of the simulator", text);
            return -EINVAL;
        }
        if (set(spec, &keys[i], value)) {
            snprintf(why, why_size, "GEMINI_SIM: '%.60s' is no value for %s", value, name);
            return -EINVAL;
        }
        if (keys[i].kind == PROFILE && profile_is_file(value)) {
            memcpy(file, value, sizeof(file));
            text = rest;
            continue; /* no data sheet: the file may name one */
        }
        seen |= 1u << i;
        text = rest;
    }
    struct filling filling = {spec, seen, 0, why, why_size};
    if (*file && fill_from(file, &filling))
        return -EINVAL;
    seen |= filling.filled;
    if (*spec->profile)
        fill_in(spec, seen);
    if (given)
        *given = seen;
    return 0;
}

bool sim_spec_agree(const struct sim_spec *a, const struct sim_spec *b, uint32_t given) {
    for (int i = 1; i < KEYS; i++)
        if ((given & 1u << i) &&
            memcmp((const char *)a + keys[i].offset, (const char *)b + keys[i].offset, keys[i].size) != 0)
            return false;
    return true;
}

uint64_t sim_spec_kernel_ns(const char *text, const char *name) {
    char key[32], value[256], line[512], word[400];
    unsigned long long found = 0, ns;
    while (text && *text) {
        text = next(text, key, sizeof(key), value, sizeof(value));
        if (!text || strcmp(key, "kernels") != 0)
            continue;
        FILE *file = fopen(value, "re");
        while (file && fgets(line, sizeof(line), file))
            if (sscanf(line, "%399s %llu", word, &ns) == 2 && word[0] != '#' && strcmp(word, name) == 0)
                found = ns;
        if (file)
            fclose(file);
    }
    return found;
}
