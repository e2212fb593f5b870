/* The cuda device of these tests: kernels.cu runs on this processor thread by thread
 * (tests/cuda_on_cpu), launched by the very launch.c of a build. What launch.h promises is here,
 * without a driver: a launch is done when it returns. */
#define _GNU_SOURCE
#include "fibers.h"

#include "../cuda_on_cpu/fiber_kernel.h"
#include "../cuda_on_cpu/fiber_tensor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

static struct {
    const struct fiber_kernel *kernel;
    fiber_module_runs *run;
    const char *const *function;
    char *workspace;
    int64_t workspace_bytes;
} fibers;

enum { GUARD = 256 };

bool fibers_open(void *module, void *launches, int64_t workspace_bytes)
{
    fibers.kernel = dlsym(module, "fiber_kernels");
    fibers.run = (__typeof__(fibers.run))dlsym(module, "fiber_module_run");
    fibers.function = dlsym(launches, "launch_function");
    free(fibers.workspace);
    fibers.workspace_bytes = (workspace_bytes + 255) / 256 * 256;
    fibers.workspace = aligned_alloc(256, (size_t)fibers.workspace_bytes + GUARD);
    /* as NaN: nothing may be read that was not written */
    memset(fibers.workspace, 0xff, (size_t)fibers.workspace_bytes);
    memset(fibers.workspace + fibers.workspace_bytes, 0xa5, GUARD);
    return fibers.kernel && fibers.run && fibers.function;
}

bool fibers_overrun(void)
{
    for (int i = 0; i < GUARD && fibers.workspace; i++)
        if ((unsigned char)fibers.workspace[fibers.workspace_bytes + i] != 0xa5) return true;
    return false;
}

static _Noreturn void wrong(const char *function, const char *why)
{
    printf("FAIL %s: %s\n", function, why);
    exit(1);
}

void launch(const struct shot *s, void **argument)
{
    const char *name = fibers.function[s->function];
    const struct fiber_kernel *k = fibers.kernel;
    while (k->name && strcmp(k->name, name)) k++;
    if (!k->name) wrong(name, "no such function");
    if (s->threads < 1 || s->threads > k->threads) wrong(name, "threads beyond its launch bounds");
    if (s->x < 1 || s->y < 1 || s->z < 1 || s->x > INT32_MAX || s->y > 65535 || s->z > 65535)
        wrong(name, "a grid that no device takes");
    const unsigned grid[3] = {(unsigned)s->x, (unsigned)s->y, (unsigned)s->z},
                   block[3] = {(unsigned)s->threads, 1, 1};
    struct {
        _Alignas(128) struct fiber_tensor of;
    } map[SHOT_TENSORS];
    for (int i = 0; i < SHOT_TENSORS && s->tensor[i].box; i++) {
        const struct tensor_operand *t = &s->tensor[i];
        void **at = &argument[t->argument];
        const char *why =
            fiber_tensor_of(&map[i], *(void **)*at, t->planes, t->lines, t->elements, t->box);
        if (why) wrong(name, why);
        *at = &map[i];
    }
    const char *why = fibers.run(k, grid, block, s->shared_bytes, argument);
    if (why) wrong(name, why);
}

bool launch_wgmma(void) { return true; }
void *workspace(void) { return fibers.workspace; }

void product(const struct product *p, const void *a, const void *b, void *c)
{
    launch(&p->ours, (void *[]){(void *)&a, (void *)&b, (void *)&c});
}
