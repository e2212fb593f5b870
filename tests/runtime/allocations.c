/* Linked with --wrap into a trainer: from the first step to the last one nothing of ours may ask
 * for memory. A thread that does ends the run. What MPI and the C library take for themselves is
 * not ours. */
#include "shared/trainer.h"

#include <stdio.h>
#include <stdlib.h>

static bool forbidden;

void *__real_malloc(size_t), *__real_calloc(size_t, size_t), *__real_realloc(void *, size_t);
void __real_position_phase(enum phase);
void *__wrap_malloc(size_t), *__wrap_calloc(size_t, size_t), *__wrap_realloc(void *, size_t);
void __wrap_position_phase(enum phase);

static void refuse(const char *call, size_t bytes)
{
    if (!forbidden) return;
    forbidden = false;
    fail_now("%s of %zu bytes after the first step began", call, bytes);
}

void *__wrap_malloc(size_t n)
{
    refuse("malloc", n);
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t m)
{
    refuse("calloc", n * m);
    return __real_calloc(n, m);
}
void *__wrap_realloc(void *p, size_t n)
{
    refuse("realloc", n);
    return __real_realloc(p, n);
}
void __wrap_position_phase(enum phase phase)
{
    forbidden = phase != PHASE_START;
    if (phase == PHASE_STEPS && getenv("TINY_ALLOCATE"))
        free(room(1)); /* shows that this test can fail */
    __real_position_phase(phase);
}
