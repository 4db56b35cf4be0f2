/*
 * dlsym.S - dlsym as other programs call it.
 *
 * RTLD_NEXT and RTLD_DEFAULT depend on who calls, which the C library learns from the return address. So for every
 * name that is not ours the real dlsym must be jumped to with the caller's arguments and return address, as if this
 * entry were not there. A C function cannot promise that (its call may not be turned into a jump); these lines do.
 *
 * It carries the C library's two versions of dlsym (exports.map): an interposer before us looks for what comes next by
 * dlvsym with one of them, and without them would go past us to the C library.
 */
/* clang-format off */
    .text
    .p2align 4
    .globl dlsym_old, dlsym_new
    .type dlsym_old, @function
    .type dlsym_new, @function
    .symver dlsym_old, dlsym@GLIBC_2.2.5
    .symver dlsym_new, dlsym@@GLIBC_2.34
dlsym_old:
dlsym_new:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    movq 24(%rsp), %rdx
    call entry_dlsym
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
    .size dlsym_old, . - dlsym_old
    .size dlsym_new, . - dlsym_new

    .section .note.GNU-stack, "", @progbits
