/*
 * strict.h - each row of strict_calls.h stands behind an entry (strict.S) that looks for the thread's current context.
 *
 * A driver may answer INVALID_CONTEXT to a call that does not need one, and the reference says for which. So that none
 * is forgotten, the functions here are renamed for the linker, and what the driver exports under their names is the
 * entry. Calls within the driver do not pass there.
 */
#ifndef GEMINI_SIM_STRICT_H
#define GEMINI_SIM_STRICT_H

#define SIM_THREAD_DEPTH 256 /* offset of thread.depth */

#ifndef __ASSEMBLER__
extern int strict_calls; /* not 0: the card is strict, and cuInit succeeded */

#ifndef SIM_BY_EXPORT /* who asks for the exported functions themselves defines it */
#define STRICT(symbol)                                                                                                 \
    extern __typeof__(symbol) symbol __asm__("strict_" #symbol);                                                       \
    __asm__(".hidden strict_" #symbol);
#include "libhook/sim/driver/strict_calls.h"
#undef STRICT
#endif
#endif

#endif
