/* wire.c - placeholder until the codec lands */
#include "libhook/core/wire.h"
