/* Modules and launches of the stand-in driver. An image is a shared object that module.sh made; it
 * says of every kernel how large its arguments are and which are addresses, so a launch copies them
 * at once, as a driver does, and gives each address its memory. The taker's thread has a stack of
 * its own for signals: a kernel that leaves its memory ends the process by name. */
#define _GNU_SOURCE
#include "streams.h"

#include "../fiber_kernel.h"
#include "../fiber_tensor.h"

#include <dlfcn.h>
#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct CUfunc_st {
    const struct fiber_kernel *kernel;
    fiber_module_runs *run;
    int dynamic_shared;
};
struct CUmod_st {
    void *handle;
    const struct fiber_kernel *kernels;
    fiber_module_runs *run;
    struct CUfunc_st *function;
};

EXPORTED unsigned cuModuleLoadData(struct CUmod_st **module, const void *image)
{
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_machine == 190 /* CUDA */ ||
        head.e_type != ET_DYN)
        return head.e_machine == 190 ? NO_BINARY : INVALID_IMAGE;
    /* section headers come last */
    const size_t bytes = head.e_shoff + (size_t)head.e_shentsize * head.e_shnum;
    char path[64];
    int file = memfd_create("kernels", 0);
    for (size_t at = 0; file >= 0 && at < bytes;) {
        ssize_t n = write(file, (const char *)image + at, bytes - at);
        if (n <= 0) return OUT_OF_MEMORY;
        at += (size_t)n;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    struct CUmod_st *m = calloc(1, sizeof *m);
    m->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
    m->kernels = m->handle ? dlsym(m->handle, "fiber_kernels") : NULL;
    void *run = m->handle ? dlsym(m->handle, "fiber_module_run") : NULL;
    if (!m->kernels || !run) {
        fprintf(stderr, "stand-in driver: the image is no module: %s\n", dlerror());
        return INVALID_IMAGE;
    }
    memcpy(&m->run, &run, sizeof run);
    int n = 0;
    while (m->kernels[n].name) n++;
    m->function = calloc((size_t)n + 1, sizeof *m->function);
    for (int i = 0; i < n; i++)
        m->function[i] = (struct CUfunc_st){&m->kernels[i], m->run, 48 << 10};
    *module = m;
    return standin_error_code();
}
EXPORTED unsigned cuModuleUnload(struct CUmod_st *module)
{
    streams_drain();
    dlclose(module->handle);
    return standin_error_code();
}
EXPORTED unsigned cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module,
                                      const char *name)
{
    for (int i = 0; module->kernels[i].name; i++)
        if (strcmp(module->kernels[i].name, name) == 0)
            return *function = &module->function[i], standin_error_code();
    return NOT_FOUND;
}
EXPORTED unsigned cuFuncGetAttribute(int *value, unsigned attribute, struct CUfunc_st *f)
{
    const int known[] = {f->kernel->threads, 0, 0, 0, 32, 90, 90, 0, f->dynamic_shared};
    if (attribute >= sizeof known / sizeof *known) return INVALID_VALUE;
    *value = known[attribute];
    return standin_error_code();
}
EXPORTED unsigned cuFuncSetAttribute(struct CUfunc_st *f, unsigned attribute, int value)
{
    if (attribute == 8 && (value < 0 || value > 227 << 10)) return INVALID_VALUE;
    if (attribute == 8) f->dynamic_shared = value;
    return attribute == 8 || attribute == 9 ? standin_error_code() : INVALID_VALUE;
}

/* ── tensor maps ─────────────────────────────────────────────────────────────── */
EXPORTED unsigned cuTensorMapEncodeTiled(void *map, unsigned type, uint32_t rank, void *at,
                                         const uint64_t *size, const uint64_t *stride,
                                         const uint32_t *box, const uint32_t *step,
                                         unsigned interleave, unsigned swizzle, unsigned promotion,
                                         unsigned fill)
{
    const char *why = standin_setting("STANDIN_NO_TENSORS", 0)
                          ? "STANDIN_NO_TENSORS"
                          : fiber_tensor_encode(map, type, rank, at, size, stride, box, step,
                                                interleave, swizzle, promotion, fill);
    if (why) fprintf(stderr, "stand-in driver: cuTensorMapEncodeTiled: %s\n", why);
    return why ? INVALID_VALUE : standin_error_code();
}

/* ── launches ────────────────────────────────────────────────────────────────── */
enum { MOST_ARGUMENTS = 60, MOST_BYTES = 16, MOST_MAPS = 4, MAP_BYTES = 128 };
struct shot {
    struct CUfunc_st *f;
    unsigned grid[3], block[3];
    int64_t shared_bytes;
    unsigned char argument[MOST_ARGUMENTS][MOST_BYTES];
    struct fiber_tensor map[MOST_MAPS]; /* the arguments of MAP_BYTES, in their order */
};
static const char *volatile now_running;

static void leaves_memory(int signal, siginfo_t *info, void *context)
{
    char text[300];
    (void)context;
    int n = snprintf(text, sizeof text,
                     "stand-in driver: %s touches %p, which is nobody's (signal %d)\n",
                     now_running ? now_running : "the host", info->si_addr, signal);
    if (write(2, text, (size_t)n) < 0 || signal != SIGSEGV) _exit(70);
    _exit(70);
}
static void watch_memory(void)
{
    static __thread bool watching;
    if (watching) return;
    watching = true;
    stack_t stack = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10};
    struct sigaction action = {.sa_sigaction = leaves_memory, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (!stack.ss_sp || sigaltstack(&stack, NULL) || sigaction(SIGSEGV, &action, NULL) ||
        sigaction(SIGBUS, &action, NULL))
        abort();
}

/* A map as the kernel takes it, of memory that the tensor lies in. */
static const char *map_for_kernel(const struct fiber_tensor *from, void *to)
{
    struct fiber_tensor t = *from;
    if (t.mark != FIBER_TENSOR_MARK) return "no tensor map";
    t.at = (uintptr_t)standin_memory((void *)(uintptr_t)t.at, fiber_tensor_bytes(&t));
    memcpy(to, &t, sizeof t);
    return t.at ? NULL : "the map of a tensor that is not in one allocation of the device";
}

static enum standin_progress run_shot(void *data)
{
    struct shot *s = data;
    void *argument[MOST_ARGUMENTS + 1] = {NULL};
    _Alignas(MAP_BYTES) unsigned char map[MOST_MAPS][MAP_BYTES];
    int maps = 0;
    watch_memory();
    for (int i = 0; s->f->kernel->sizes[i]; i++) {
        if (s->f->kernel->sizes[i] == MAP_BYTES) {
            argument[i] = map[maps];
            const char *wrong = map_for_kernel(&s->map[maps], map[maps]);
            maps++;
            if (!wrong) continue;
            standin_error(ILLEGAL_ADDRESS, "kernel %s: argument %d is %s", s->f->kernel->name, i,
                          wrong);
            return STANDIN_FAILED;
        }
        argument[i] = s->argument[i];
        if (!(s->f->kernel->pointers >> i & 1)) continue;
        void *at;
        memcpy(&at, argument[i], sizeof at);
        if (!at) continue;
        void *memory = standin_memory(at, 1);
        if (!memory) {
            standin_error(ILLEGAL_ADDRESS,
                          "kernel %s: argument %d, %p, is no address of the device",
                          s->f->kernel->name, i, at);
            return STANDIN_FAILED;
        }
        memcpy(argument[i], &memory, sizeof memory);
    }
    now_running = s->f->kernel->name;
    const char *wrong = s->f->run(s->f->kernel, s->grid, s->block, s->shared_bytes, argument);
    now_running = NULL;
    if (wrong) standin_error(LAUNCH_FAILED, "kernel %s, %s", s->f->kernel->name, wrong);
    return wrong ? STANDIN_FAILED : STANDIN_DONE;
}

EXPORTED unsigned cuLaunchKernel(struct CUfunc_st *f, unsigned x, unsigned y, unsigned z,
                                 unsigned threads_x, unsigned threads_y, unsigned threads_z,
                                 unsigned shared_bytes, stream_t stream, void **argument,
                                 void **extra)
{
    const uint64_t threads = (uint64_t)threads_x * threads_y * threads_z;
    const char *why = extra                                      ? "arguments by `extra`"
                      : !x || !y || !z || !threads               ? "an empty grid or block"
                      : x > 0x7fffffff || y > 65535 || z > 65535 ? "too large a grid"
                                                                 : NULL;
    if (!why && (threads > 1024 || threads > (uint64_t)f->kernel->threads))
        why = "more threads per block than the kernel is compiled for";
    if (!why && shared_bytes > (unsigned)f->dynamic_shared)
        why = "more dynamic shared memory than was asked for by cuFuncSetAttribute";
    if (why) {
        fprintf(stderr,
                "stand-in driver: kernel %s (%u, %u, %u blocks of %llu threads, %u bytes): %s\n",
                f->kernel->name, x, y, z, (unsigned long long)threads, shared_bytes, why);
        return threads > 1024 || !strncmp(why, "more threads", 12) ? LAUNCH_OUT_OF_RESOURCES
                                                                   : INVALID_VALUE;
    }
    struct shot s = {.f = f,
                     .grid = {x, y, z},
                     .block = {threads_x, threads_y, threads_z},
                     .shared_bytes = shared_bytes};
    for (int i = 0, maps = 0; f->kernel->sizes[i]; i++) {
        const bool map = f->kernel->sizes[i] == MAP_BYTES;
        if (i == MOST_ARGUMENTS || (map ? maps == MOST_MAPS : f->kernel->sizes[i] > MOST_BYTES))
            return INVALID_VALUE;
        if (map)
            memcpy(&s.map[maps++], argument[i], MAP_BYTES);
        else
            memcpy(s.argument[i], argument[i], (size_t)f->kernel->sizes[i]);
    }
    return standin_enqueue(stream, f->kernel->name, run_shot, &s, sizeof s);
}
