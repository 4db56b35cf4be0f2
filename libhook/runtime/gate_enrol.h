/*
 * gate_enrol.h - threads come and go: whose block is whose (gate_thread.h).
 */
#ifndef GEMINI_RUNTIME_GATE_ENROL_H
#define GEMINI_RUNTIME_GATE_ENROL_H

struct gate_thread;

#pragma GCC visibility push(hidden)

struct gate_thread *gate_enrol(void); /* the calling thread's, made at its first call; NULL: no memory */
void gate_enrol_start(void); /* once per process image: from here on it is seen when a thread ends */

#pragma GCC visibility pop

#endif
