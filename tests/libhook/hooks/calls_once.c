/* calls_once.c - linked against the driver: one call, its result, and how often the other interposer saw it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int cuCtxSetCurrent(void *context);

int main(void) {
    int result = cuCtxSetCurrent(NULL);
    int *calls = dlsym(RTLD_DEFAULT, "other_calls");
    printf("%d\n%d\n", result, calls == NULL ? -1 : *calls);
    return 0;
}
