/*
 * profile.h - a card as it was seen: the file that gemini-probe writes, as GEMINI_SIM=profile=FILE takes it.
 *
 * Of its JSON only the object "profile" is read: keys of GEMINI_SIM, each with a text as its value.
 */
#ifndef GEMINI_SIM_PROFILE_H
#define GEMINI_SIM_PROFILE_H

#include <stdbool.h>

/* Is what stands behind profile= a file's name? A data sheet's has neither a dot nor a slash. */
bool profile_is_file(const char *value);

/* Calls `each` with every pair until it returns other than 0, and returns that; -ENOENT and its kin: the file cannot be
 * read; -EINVAL: there is no such object in it. */
int profile_read(const char *path, int (*each)(const char *key, const char *value, void *data), void *data);

#endif
