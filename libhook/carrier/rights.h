/*
 * rights.h - reading and closing Unix sockets to which strangers write, without ever doing their work.
 *
 * Whoever may write to a Unix socket may pass descriptors along (SCM_RIGHTS). A reader that takes none drops them, and
 * so does who closes a socket in which some are unread. Where that was the last reference the kernel ends the file then
 * and there, in that thread. A TCP connection with SO_LINGER and unsent bytes is waited for as long as its owner said,
 * and the pages of a large file are given back one by one. So nobody here drops any.
 *
 * Linux 6.16 has an option by which a socket takes none, and its listener's is its own from the first moment. Before that
 * each read looks first (MSG_PEEK says that descriptors stand there, and leaves them), and a socket with some is closed by
 * a thread of its own, which a signal gets out of its waits.
 */
#ifndef GEMINI_CARRIER_RIGHTS_H
#define GEMINI_CARRIER_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

/* cffi: begin */
/* Nobody may pass descriptors to this socket, nor to what it accepts. For each socket of ours, before it listens or is
 * connected. Returns 0, or -errno: then they are looked for. */
int rights_refuse(int fd);
/* For tests: as before Linux 6.16 from now on. */
void rights_forget_option(void);
/* Are descriptors looked for? From the first rights_refuse on it is known. */
bool rights_are_sought(void);

/* As recv() with MSG_DONTWAIT, of what bears no descriptors. Returns how many bytes, 0 at the end, or -errno; -EPERM:
 * descriptors stand there, and no byte can be read any more: close it. */
int64_t rights_recv(int fd, void *to, uint64_t size);
/* Shut it down and close it, without waiting. `fd` is the only descriptor of that socket. */
void rights_close(int fd);
/* Close one of several descriptors of a socket, which may be the last by then. */
void rights_leave(int fd);
/* Close a listener that does not block, and who waits in its queue. */
void rights_end(int fd);
/* cffi: end */

#endif
