/*
 * mark.h - marks on descriptors of exported memory: whose tenant is charged for it (wire.h, WIRE_MEM_EXPORTED).
 *
 * A descriptor of the driver has nothing in it that a program may write. But a read lock of the open file description
 * (F_OFD_SETLK) goes with it wherever it is sent, is seen by whoever has it (/proc/self/fdinfo), holds up nobody, and
 * ends with it. So the mark is where such a lock begins, far beyond all bytes of a file, and its length is the size of
 * the memory. Whoever has the descriptor may mark it, too: it tells the honest apart, as the library itself does.
 */
#ifndef GEMINI_HOOKS_MARK_H
#define GEMINI_HOOKS_MARK_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Mark it; where that cannot be, importers pay. */
void mark_set(int fd, uint64_t mark, uint64_t bytes);
/* The mark and the size that the descriptor says; 0 where it says none. */
uint64_t mark_get(int fd, uint64_t *bytes);

#pragma GCC visibility pop

#endif
