/*
 * answer.h - what dlsym and dlopen answer in the C library's place, or who is to answer.
 */
#ifndef GEMINI_HOOKS_ANSWER_H
#define GEMINI_HOOKS_ANSWER_H

/* Returned in two registers. */
struct entry_answer {
    void *value;   /* what the call returns, where forward is NULL */
    void *forward; /* the function that is to answer in our place, as if we were not there */
};

#endif
