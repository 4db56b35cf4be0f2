/*
 * stubs.S - what the rows of `real` (real.h) lead to until the driver is found.
 *
 * Each stub pushes its row's number and goes to common code that saves every register in which an argument can stand,
 * asks the binding function in C for the real one, restores them, and jumps there. The real function returns straight
 * to the caller: nothing of us stays on the stack. One stub per row, from the same table as the pointers themselves.
 */
/* clang-format off */
#if !defined(__x86_64__)
#error "the stubs and the dlsym entry are written for x86-64"
#endif

#define STUB(symbol)             \
    .hidden real_stub_##symbol;  \
    .globl real_stub_##symbol;   \
    .type real_stub_##symbol, @function; \
    real_stub_##symbol:          \
    endbr64;                     \
    pushq $stub_row;             \
    jmp stub_bind;               \
    .size real_stub_##symbol, . - real_stub_##symbol; \
    .set stub_row, stub_row + 1

    .text
    .p2align 4
    .type stub_bind, @function
/* On entry: the row's number at 0(%rsp), the caller's return address at 8(%rsp), so %rsp is a multiple of 16. */
stub_bind:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    subq $192, %rsp
    .cfi_adjust_cfa_offset 192
    movq %rdi, 0(%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movq %rax, 48(%rsp)
    movups %xmm0, 64(%rsp)
    movups %xmm1, 80(%rsp)
    movups %xmm2, 96(%rsp)
    movups %xmm3, 112(%rsp)
    movups %xmm4, 128(%rsp)
    movups %xmm5, 144(%rsp)
    movups %xmm6, 160(%rsp)
    movups %xmm7, 176(%rsp)
    movq 192(%rsp), %rdi
    call real_bind
    movq %rax, %r11
    movq 0(%rsp), %rdi
    movq 8(%rsp), %rsi
    movq 16(%rsp), %rdx
    movq 24(%rsp), %rcx
    movq 32(%rsp), %r8
    movq 40(%rsp), %r9
    movq 48(%rsp), %rax
    movups 64(%rsp), %xmm0
    movups 80(%rsp), %xmm1
    movups 96(%rsp), %xmm2
    movups 112(%rsp), %xmm3
    movups 128(%rsp), %xmm4
    movups 144(%rsp), %xmm5
    movups 160(%rsp), %xmm6
    movups 176(%rsp), %xmm7
    addq $200, %rsp /* the row's number too */
    .cfi_adjust_cfa_offset -200
    jmp *%r11
    .cfi_endproc
    .size stub_bind, . - stub_bind

    .set stub_row, 0
#define HOOK(symbol, name, since, flavour, class_) STUB(symbol)
#define PASS(symbol, name, since, flavour, reason) STUB(symbol)
#include "libhook/driver/cuda_hooks.h"

    .section .note.GNU-stack, "", @progbits
