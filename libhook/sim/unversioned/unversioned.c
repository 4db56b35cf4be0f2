/*
 * Nothing: libcuda.so, the name without a version, by which some programs open the driver, is a library that needs
 * libcuda.so.1. A link of that name would become a copy in a wheel, and a copy a second driver in the process.
 */
typedef int nothing;
