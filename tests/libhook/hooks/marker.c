/*
 * marker.c - other people's preloaded libraries.
 *
 * -DDEFINES  defines marker()
 * -DDLSYM    overrides dlsym in C, answers itself for "marker", and passes the rest on as such libraries do
 * -DDRIVER   overrides cuCtxSetCurrent, counts the calls in other_calls, and passes them on by RTLD_NEXT
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#if defined(DEFINES) || defined(DLSYM)
int marker(void);
int marker(void) {
    return 1;
}
#endif

#ifdef DLSYM
void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (real == NULL)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (strcmp(name, "marker") == 0)
        return (void *)marker;
    return real(handle, name);
}
#endif

#ifdef DRIVER
int other_calls;
int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context) {
    static int (*real)(void *);
    if (real == NULL)
        real = (int (*)(void *))dlsym(RTLD_NEXT, "cuCtxSetCurrent");
    other_calls++;
    return real(context);
}
#endif
