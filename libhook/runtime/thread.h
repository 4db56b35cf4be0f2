/*
 * thread.h - a thread of ours in a stranger's process: it takes no signal of the program's, is small, and wakes in time.
 */
#ifndef GEMINI_RUNTIME_THREAD_H
#define GEMINI_RUNTIME_THREAD_H

#pragma GCC visibility push(hidden)

/* Start it, all signals blocked, never to be joined. Returns 0 or -errno. */
int thread_start(void *(*run)(void *));
/* The thread itself, at first: its name (15 bytes), and that it asks to be woken soon. */
void thread_begins(const char *name);

#pragma GCC visibility pop

#endif
