/*
 * leaving.c - preloaded behind the library: when the process ends, it writes how many threads and which kinds of
 * descriptors it has, to the file that LEAVING names. So a process is judged without strace and without its help.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((destructor)) static void leaving(void) {
    const char *path = getenv("LEAVING");
    char line[4096] = "", name[300], target[256];
    int threads = 0;
    if (path == NULL)
        return;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        threads += entry->d_name[0] != '.';
    closedir(dir);
    dir = opendir("/proc/self/fd");
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        snprintf(name, sizeof(name), "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(name, target, sizeof(target) - 1);
        if (length <= 0 || atoi(entry->d_name) == dirfd(dir))
            continue;
        target[length] = '\0';
        if (strncmp(target, "socket:", 7) == 0 || strncmp(target, "anon_inode:", 11) == 0 ||
            strncmp(target, "/memfd:", 7) == 0)
            snprintf(line + strlen(line), sizeof(line) - strlen(line), " %.20s", target);
    }
    closedir(dir);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    dprintf(file, "%d%s\n", threads, line);
    close(file);
}
