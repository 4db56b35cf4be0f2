/*
 * log.h - lines for people. `gemini: ...`, to stderr or to GEMINI_LOG_FILE, one write() each.
 *
 * A guest in a stranger's process may not write to stdout, take stdio's locks, raise SIGPIPE, block on a full pipe,
 * keep a descriptor that the program may close and reuse, or change errno. So a line that cannot be written at once is
 * lost, and a log file is opened for each line (the debug level is for tests and for people who look for a fault).
 */
#ifndef GEMINI_RUNTIME_LOG_H
#define GEMINI_RUNTIME_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_configure(int level, const char *file); /* an empty file means stderr; called once, by options.c */
bool log_wants(enum log_level level);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
