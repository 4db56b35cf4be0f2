/*
 * options.c - what the environment says, read by the library (runtime/options.c) and by the simulated driver
 * (sim/model/spec.c). The input's first byte chooses the option, the rest is its value.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "libhook/runtime/options.h"
#include "libhook/sim/model/spec.h"
#include "tests/fuzz/fuzz.h"

static const char *const NAMES[] = {
    "GEMINI_LOG", "GEMINI_LOG_FILE", "GEMINI_SOCKET", "GEMINI_MEMORY_LIMIT", "GEMINI_ON_BACKEND_LOSS", "GEMINI_OTHER"};
#define NAME_COUNT (sizeof NAMES / sizeof *NAMES)

/* A decimal number that fits, as a person would read it: digits and nothing else. */
static int is_number(const char *text, uint64_t *value) {
    *value = 0;
    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9' || *value > (UINT64_MAX - (uint64_t)(*at - '0')) / 10)
            return 0;
        *value = *value * 10 + (uint64_t)(*at - '0');
    }
    return *text != 0;
}

static void check_option(const char *name, const char *value) {
    struct options before, options;
    size_t length = strlen(value);
    uint64_t number;
    int fits = 0;

    memset(&options, 0x5A, sizeof options);
    options.run_on_loss = false;
    before = options;
    int error = options_parse(&options, name, value);
    if (!strcmp(name, "GEMINI_LOG"))
        fits = !strcmp(value, "error") || !strcmp(value, "warn") || !strcmp(value, "info") || !strcmp(value, "debug");
    else if (!strcmp(name, "GEMINI_LOG_FILE"))
        fits = length >= 1 && length <= 255;
    else if (!strcmp(name, "GEMINI_SOCKET"))
        fits = !strncmp(value, "ipc:///", 7) ? length <= 6 + 107 : value[0] == '/' && length <= 107;
    else if (!strcmp(name, "GEMINI_MEMORY_LIMIT"))
        fits = is_number(value, &number);
    else if (!strcmp(name, "GEMINI_ON_BACKEND_LOSS"))
        fits = !strcmp(value, "wait") || !strcmp(value, "run");
    else
        fuzz_require(error == -ENOENT);
    fuzz_require(error == 0 ? fits : !fits && (error == -EINVAL || error == -ENOENT));
    if (error) {
        fuzz_require(!memcmp(&before, &options, sizeof options)); /* a value that is no good changes nothing */
        return;
    }
    if (!strcmp(name, "GEMINI_LOG"))
        fuzz_require(options.log_level >= 0 && options.log_level <= 3);
    if (!strcmp(name, "GEMINI_LOG_FILE"))
        fuzz_require(!strcmp(options.log_file, value));
    if (!strcmp(name, "GEMINI_SOCKET"))
        fuzz_require(!strcmp(options.socket, value[0] == '/' ? value : value + 6));
    if (!strcmp(name, "GEMINI_MEMORY_LIMIT"))
        fuzz_require(options.memory_limit_bytes == number);
    if (!strcmp(name, "GEMINI_ON_BACKEND_LOSS"))
        fuzz_require(options.run_on_loss == (value[0] == 'r'));
}

static void check_machine(const char *text) {
    struct sim_spec spec, again;
    uint32_t given = 0;
    char why[200];

    memset(why, 0x5A, sizeof why);
    if (sim_spec_parse(text, &spec, &given, why, sizeof why)) {
        fuzz_require(strnlen(why, sizeof why) < sizeof why && why[0]);
        return;
    }
    fuzz_require(spec.gpus >= 1 && spec.gpus <= SIM_DEVICES);
    fuzz_require(memchr(spec.id, 0, sizeof spec.id) && memchr(spec.name, 0, sizeof spec.name) && !strchr(spec.id, '/'));
    fuzz_require(spec.driver_version >= 11000 && spec.driver_version <= 99990);
    fuzz_require(spec.memory_bytes >= 1 && spec.memory_bytes <= 9000000000000000000u);
    fuzz_require(spec.host_bytes_per_s && spec.device_bytes_per_s && spec.peer_bytes_per_s && spec.context_bytes);
    fuzz_require(spec.slice_ns <= 9000000000000000000u && spec.kernel_ns <= 9000000000000000000u);
    fuzz_require(!sim_spec_parse(text, &again, NULL, why, sizeof why) && !memcmp(&spec, &again, sizeof spec));
    fuzz_require(sim_spec_agree(&spec, &again, given));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size)
        return 0;
    char *value = malloc(size); /* just as long as it is: reading past its end is seen */
    memcpy(value, data + 1, size - 1);
    value[size - 1] = 0;
    if (data[0] % (NAME_COUNT + 1) == NAME_COUNT)
        check_machine(value);
    else
        check_option(NAMES[data[0] % (NAME_COUNT + 1)], value);
    free(value);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *out) {
    static const struct {
        uint8_t name;
        const char *value;
    } SEEDS[] = {{0, "debug"}, {0, "warn"}, {1, "/tmp/log"}, {2, "ipc:///run/gemini/tenants/a/tenant.sock"}, {2, "/a"},
        {3, "17179869184"}, {3, "18446744073709551615"}, {4, "run"}, {4, "wait"}, {5, "x"},
        {6, "gpus=2,memory=80GiB,name=NVIDIA H200,id=lab"},
        {6, "driver=12.4,slice=2ms,switch=1.5us,kernel=10us,kernels=/nowhere,host_bandwidth=25GB,name=A,B"},
        {6, "context=1MiB,device_bandwidth=1e12B,peer_bandwidth=0.5TB,copy_latency=1s,drained=0"}};

    if (index >= sizeof SEEDS / sizeof *SEEDS)
        return 0;
    out[0] = SEEDS[index].name;
    memcpy(out + 1, SEEDS[index].value, strlen(SEEDS[index].value));
    return 1 + strlen(SEEDS[index].value);
}
