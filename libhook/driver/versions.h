/*
 * versions.h - old versions of the C library's functions, asked for by name; floor.h says why. No other header is
 * included and nothing declared, so that it may go before any source.
 *
 * They are weak because on an old system libdl and libpthread may not be there, in a program that has no use for them;
 * libcuda needs both, so where it is, they are.
 */
#ifndef GEMINI_DRIVER_VERSIONS_H
#define GEMINI_DRIVER_VERSIONS_H
#ifndef __ASSEMBLER__

#define FLOOR(symbol, version) __asm__(".symver " #symbol "," #symbol "@" version)

FLOOR(dladdr, "GLIBC_2.2.5");
FLOOR(dladdr1, "GLIBC_2.3.3");
FLOOR(dlclose, "GLIBC_2.2.5");
FLOOR(dlerror, "GLIBC_2.2.5");
FLOOR(dlinfo, "GLIBC_2.3.3");
FLOOR(dlvsym, "GLIBC_2.2.5");
FLOOR(pthread_create, "GLIBC_2.2.5");
FLOOR(pthread_detach, "GLIBC_2.2.5");
FLOOR(pthread_join, "GLIBC_2.2.5");
FLOOR(pthread_kill, "GLIBC_2.2.5");
FLOOR(pthread_once, "GLIBC_2.2.5");
FLOOR(pthread_setname_np, "GLIBC_2.12");
FLOOR(pthread_sigmask, "GLIBC_2.2.5");
FLOOR(pthread_key_create, "GLIBC_2.2.5");
FLOOR(pthread_setspecific, "GLIBC_2.2.5");
FLOOR(pthread_getspecific, "GLIBC_2.2.5");
FLOOR(pthread_attr_setstacksize, "GLIBC_2.2.5");

#pragma weak dladdr
#pragma weak dladdr1
#pragma weak dlclose
#pragma weak dlerror
#pragma weak dlinfo
#pragma weak dlvsym
#pragma weak pthread_create
#pragma weak pthread_detach
#pragma weak pthread_join
#pragma weak pthread_kill
#pragma weak pthread_once
#pragma weak pthread_setname_np
#pragma weak pthread_sigmask
#pragma weak pthread_key_create
#pragma weak pthread_setspecific
#pragma weak pthread_getspecific
#pragma weak pthread_attr_setstacksize

#endif /* __ASSEMBLER__ */
#endif
