/*
 * dlsym.S - dlsym and dlopen as other programs call them.
 *
 * RTLD_NEXT and RTLD_DEFAULT depend on who calls, and so do the folders that dlopen looks in; the C library learns it
 * from the return address. So for every name that is not ours the real function must be jumped to with the caller's
 * arguments and return address, as if this entry were not there. A C function cannot promise that (its call may not be
 * turned into a jump); these lines do.
 *
 * They carry the C library's two versions of each (exports.map): an interposer before us looks for what comes next by
 * dlvsym with one of them, and without them would go past us to the C library.
 */
/* clang-format off */
    .macro ENTRY symbol, decide
    .globl \symbol\()_old, \symbol\()_new
    .type \symbol\()_old, @function
    .type \symbol\()_new, @function
    .p2align 4
\symbol\()_old:
\symbol\()_new:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    movq 24(%rsp), %rdx
    call \decide
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    testq %rdx, %rdx
    jz 1f
    jmp *%rdx
1:  ret
    .cfi_endproc
    .size \symbol\()_old, . - \symbol\()_old
    .size \symbol\()_new, . - \symbol\()_new
    .endm

    .text
    ENTRY dlsym, entry_dlsym
    ENTRY dlopen, opened_dlopen
    .symver dlsym_old, dlsym@GLIBC_2.2.5
    .symver dlsym_new, dlsym@@GLIBC_2.34
    .symver dlopen_old, dlopen@GLIBC_2.2.5
    .symver dlopen_new, dlopen@@GLIBC_2.34

    .section .note.GNU-stack, "", @progbits
