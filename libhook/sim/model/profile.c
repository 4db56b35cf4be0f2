#include "libhook/sim/model/profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FILE_BYTES = 64 << 10 };

bool profile_is_file(const char *value) {
    return strpbrk(value, "./") != NULL;
}

static const char *after_space(const char *at) {
    return at + strspn(at, " \t\r\n");
}

/* A text in quotes at `at`, unescaped; what stands behind it, or NULL. */
static const char *text(const char *at, char *into, size_t size) {
    size_t length = 0;
    if (*at++ != '"')
        return NULL;
    for (; *at && *at != '"'; at++) {
        if (*at == '\\' && at[1])
            at++;
        if (length + 1 < size)
            into[length++] = *at;
    }
    into[length] = 0;
    return *at ? at + 1 : NULL;
}

static int read_pairs(const char *at, int (*each)(const char *key, const char *value, void *data), void *data) {
    char key[32], value[256];
    at = strstr(at, "\"profile\"");
    at = at ? after_space(at + strlen("\"profile\"")) : "";
    if (*at != ':' || *(at = after_space(at + 1)) != '{')
        return -EINVAL;
    at = after_space(at + 1);
    while (*at != '}') {
        at = text(at, key, sizeof(key));
        if (!at || *(at = after_space(at)) != ':' || !(at = text(after_space(at + 1), value, sizeof(value))))
            return -EINVAL;
        int result = each(key, value, data);
        if (result)
            return result;
        at = after_space(at);
        if (*at == ',')
            at = after_space(at + 1);
        else if (*at != '}')
            return -EINVAL;
    }
    return 0;
}

int profile_read(const char *path, int (*each)(const char *key, const char *value, void *data), void *data) {
    char content[FILE_BYTES];
    FILE *file = fopen(path, "re");
    if (!file)
        return -errno;
    size_t length = fread(content, 1, sizeof(content) - 1, file);
    content[length] = 0;
    fclose(file);
    return read_pairs(content, each, data);
}
