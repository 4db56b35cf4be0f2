/*
 * strict.S - what the driver exports for the rows of strict_calls.h: is there a current context? (strict.h)
 *
 * Nothing of the call is touched, and the function returns straight to the caller.
 */
#include "libhook/sim/driver/strict.h"

#define STRICT(symbol)              \
    .globl symbol;                  \
    .type symbol, @function;        \
    .hidden strict_##symbol;        \
    .p2align 4;                     \
    symbol:                         \
    endbr64;                        \
    movq thread@gottpoff(%rip), %rax; \
    cmpl $0, %fs:SIM_THREAD_DEPTH(%rax); \
    jne strict_##symbol;            \
    cmpl $0, strict_calls(%rip);    \
    je strict_##symbol;             \
    movl $201, %eax; /* CUDA_ERROR_INVALID_CONTEXT */ \
    ret;                            \
    .size symbol, . - symbol;

    .text
    .hidden strict_calls
#include "libhook/sim/driver/strict_calls.h"

    .section .note.GNU-stack, "", @progbits
