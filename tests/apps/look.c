/* look.c - a library that looks up on its own account: the caller whom RTLD_NEXT and RTLD_DEFAULT are about. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *look(const char *name, int next);
void *look(const char *name, int next) {
    void *volatile found = dlsym(next ? RTLD_NEXT : RTLD_DEFAULT, name);
    return found;
}
