/*
 * peek.h - single words that one thread writes while others look, without a lock: each is read and written whole, in no
 * order with anything else. Who needs an order says so at the place (acquire, release). Costs what a plain access does.
 */
#ifndef GEMINI_CORE_PEEK_H
#define GEMINI_CORE_PEEK_H

#define PEEK(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define POKE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)

#endif
