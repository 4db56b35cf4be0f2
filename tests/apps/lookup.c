/*
 * lookup.c - look functions up in the ways that programs do, and say in whose file each answer lies.
 *
 * Arguments, one line of output each (`-` stands for NULL):
 *     open                      dlopen libcuda.so.1 RTLD_LOCAL; reopen: close it and open it again
 *     load:FILE                 dlopen a library RTLD_LOCAL, whose look() later `via` look-ups call
 *     handle:NAME default:NAME next:NAME self:NAME     dlsym of that kind (self: the handle of dlopen(NULL))
 *     via:NAME                  RTLD_NEXT from within the library of `load`; viadefault:NAME the same with RTLD_DEFAULT
 *     proc:NAME:VERSION:FLAGS   cuGetProcAddress_v2;  proc1:... the first version
 *     call:NAME                 dlsym(handle) and call without arguments
 *     threads                   the tasks and descriptors of this process
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *driver;
static void *(*via)(const char *name, int next);

static const char *name_of(char *text) {
    return strcmp(text, "-") == 0 ? NULL : text;
}

static void say(const char *what, void *found) {
    Dl_info info;
    const char *error = dlerror();
    if (found == NULL) {
        printf("%s: none%s\n", what, error != NULL ? " error" : "");
        return;
    }
    if (dladdr(found, &info) == 0) {
        printf("%s: nowhere\n", what);
        return;
    }
    const char *base = strrchr(info.dli_fname, '/');
    printf("%s: %s %s%s\n", what, base == NULL ? info.dli_fname : base + 1,
        info.dli_sname == NULL ? "?" : info.dli_sname, error != NULL ? " error" : "");
}

static int count(const char *folder) {
    int entries = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL)
        entries++;
    if (dir != NULL)
        closedir(dir);
    return entries;
}

static void proc(const char *what, int first_version, char *arguments) {
    char *name = strtok(arguments, ":");
    int version = atoi(strtok(NULL, ":"));
    uint64_t flags = strtoull(strtok(NULL, ":"), NULL, 0);
    void *found = NULL;
    int status = -1;
    int result;
    if (name != NULL && strcmp(name, "empty") == 0)
        name = "";
    if (first_version) {
        int (*ask)(const char *, void **, int, uint64_t) = dlsym(driver, "cuGetProcAddress");
        result = ask(name_of(name), &found, version, flags);
    } else {
        int (*ask)(const char *, void **, int, uint64_t, int *) = dlsym(driver, "cuGetProcAddress_v2");
        result = ask(name_of(name), &found, version, flags, flags == 8 ? NULL : &status);
        if (flags == 4)
            result = ask(name_of(name), NULL, version, flags, NULL);
    }
    printf("[%d %d] ", result, status);
    say(what, found);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *what = strdup(argv[i]);
        char *kind = strtok(argv[i], ":");
        char *rest = strtok(NULL, "");
        if (strcmp(kind, "open") == 0)
            driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        else if (strcmp(kind, "reopen") == 0 && dlclose(driver) == 0)
            driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        else if (strcmp(kind, "load") == 0)
            via = (void *(*)(const char *, int))dlsym(dlopen(rest, RTLD_NOW | RTLD_LOCAL), "look");
        else if (strcmp(kind, "handle") == 0)
            say(what, dlsym(driver, rest));
        else if (strcmp(kind, "default") == 0)
            say(what, dlsym(RTLD_DEFAULT, rest));
        else if (strcmp(kind, "next") == 0)
            say(what, dlsym(RTLD_NEXT, rest));
        else if (strcmp(kind, "self") == 0)
            say(what, dlsym(dlopen(NULL, RTLD_NOW), rest));
        else if (strcmp(kind, "via") == 0)
            say(what, via(rest, 1));
        else if (strcmp(kind, "viadefault") == 0)
            say(what, via(rest, 0));
        else if (strcmp(kind, "proc") == 0 || strcmp(kind, "proc1") == 0)
            proc(what, kind[4] == '1', rest);
        else if (strcmp(kind, "call") == 0)
            printf("%s: %d\n", what, ((int (*)(void))dlsym(driver, rest))());
        else if (strcmp(kind, "threads") == 0)
            printf("%d %d\n", count("/proc/self/task") - 2, count("/proc/self/fd") - 3);
    }
    return 0;
}
