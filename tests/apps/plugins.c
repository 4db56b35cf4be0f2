/*
 * plugins.c - a program that leaves CUDA to a library which it opens: `plugins WAY PLUGIN DRIVER`.
 *
 *     plain   dlopen
 *     lazy    dlopen, each function bound at its first call
 *     deep    dlopen with RTLD_DEEPBIND
 *     deeplazy   the same, each function bound at its first call
 *     space   dlmopen, into a namespace of its own
 *     cache   dlopen; the driver is the one that `ldconfig -p -C DRIVER` names, the loader's cache
 *
 * plugin.c does the work. Exit status 0 where all went well, else a line on stderr.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int from_cache(const char *cache, char *path, size_t bytes) {
    char command[1024], line[1024];
    snprintf(command, sizeof(command), "/sbin/ldconfig -p -C %s", cache);
    FILE *said = popen(command, "r");
    int found = 0;
    while (said && fgets(line, sizeof(line), said)) { /* the first is the one that the loader takes */
        char *arrow = strstr(line, "=> ");
        if (!found && strstr(line, "libcuda.so.1 ") && arrow)
            found = snprintf(path, bytes, "%.*s", (int)strcspn(arrow + 3, "\n"), arrow + 3) > 0;
    }
    return !said || pclose(said) || !found;
}

int main(int count, char **words) {
    char path[1024];
    if (count != 4)
        return 2;
    const char *way = words[1], *driver = words[3];
    void *plugin = strcmp(way, "space") == 0      ? dlmopen(LM_ID_NEWLM, words[2], RTLD_NOW)
                   : strcmp(way, "deep") == 0     ? dlopen(words[2], RTLD_NOW | RTLD_DEEPBIND)
                   : strcmp(way, "deeplazy") == 0 ? dlopen(words[2], RTLD_LAZY | RTLD_DEEPBIND)
                   : strcmp(way, "lazy") == 0     ? dlopen(words[2], RTLD_LAZY)
                                                  : dlopen(words[2], RTLD_NOW);
    if (plugin == NULL) {
        fprintf(stderr, "plugins: %s\n", dlerror());
        return 1;
    }
    if (strcmp(way, "cache") == 0) {
        if (from_cache(driver, path, sizeof(path))) {
            fprintf(stderr, "plugins: no driver in %s\n", driver);
            return 1;
        }
        driver = path;
    }
    int (*work)(const char *) = (int (*)(const char *))dlsym(plugin, "plugin_work");
    return work == NULL || work(driver);
}
