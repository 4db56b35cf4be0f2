/* plain.c - a program without CUDA, for C libraries that are not glibc's: says hello. */
#include <stdio.h>

int main(void) {
    return puts("hello") < 0;
}
