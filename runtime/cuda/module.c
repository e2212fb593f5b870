/* Kernels: where the cubin comes from, and how kernels are launched. A build leaves
 * DIR/kernels.ARCH.cubin for the requested architectures. On another GPU kernels.cu is compiled
 * when the trainer starts, once per host, into a file named after everything that it depends on.
 * DIR is the folder of the program. */
#define _GNU_SOURCE
#include "device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = PATH_MAX, NAME_BYTES = 96, PLAIN_SHARED = 48 << 10, ALL_FILES = 256 };

static const char *const runtime_name[RUNTIME_KERNELS] = {"runtime_cast_bf16", "runtime_split_bf16",
                                                          "runtime_set_f32",   "runtime_add_f32",
                                                          "runtime_publish",   "runtime_checksum"};

static struct {
    char dir[PATH_BYTES - 2 * NAME_BYTES], name[NAME_BYTES]; /* of the cubin that was loaded */
    cuda_module loaded;                                      /* for the whole process */
    /* launch_function's, in their order */
    cuda_function *function;
    /* dynamic shared memory that a function may have so far */
    int64_t *shared;
    cuda_function runtime[RUNTIME_KERNELS];
} module;

const char *cuda_module_name(void) { return module.name; }

/* ── files ───────────────────────────────────────────────────────────────────── */

static bool find_dir(void)
{
    char who[CUDA_WHO];
    ssize_t n = readlink("/proc/self/exe", module.dir, sizeof module.dir - 1);
    char *slash = n > 0 ? (module.dir[n] = 0, strrchr(module.dir, '/')) : NULL;
    if (!slash)
        return fail_note("%s: /proc/self/exe does not say where this program lies: /proc is not "
                         "mounted",
                         cuda_who(who));
    *slash = 0;
    return true;
}

static const char *in_dir(const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%.*s", module.dir, NAME_BYTES - 1, name);
    return path;
}

/* All of a file, with a 0 after it; NULL: errno says why. To be freed. */
static char *read_whole(const char *path, size_t *bytes)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) text = malloc((size_t)s.st_size + 1);
    size_t done = 0;
    while (text && done < (size_t)s.st_size) {
        ssize_t n = read(fd, text + done, (size_t)s.st_size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            free(text);
            text = NULL;
        } else
            done += (size_t)n;
    }
    if (fd >= 0) close(fd);
    if (text) text[ *bytes = done] = 0;
    return text;
}

static bool write_whole(const char *path, const char *bytes, size_t n)
{
    char partial[PATH_BYTES + 32];
    /* other hosts write here too, in containers under the same pid */
    snprintf(partial, sizeof partial, "%s.XXXXXX", path);
    int fd = mkostemp(partial, O_CLOEXEC);
    bool fine = fd >= 0 && fchmod(fd, 0644) == 0;
    for (size_t done = 0; fine && done < n;) {
        ssize_t wrote = write(fd, bytes + done, n - done);
        fine = wrote > 0 || (wrote < 0 && errno == EINTR);
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    fine = fine && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && fine) error = errno, fine = false;
    if (fine && rename(partial, path) != 0) error = errno, fine = false;
    if (!fine && fd >= 0) unlink(partial);
    errno = error;
    return fine;
}

/* ── made at start ───────────────────────────────────────────────────────────── */

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

/* Everything that the kernels of this DIR are made of: kernels.cu, op_math.h and the like,
 * cuda/. */
static uint64_t sources_hash(const char *arch, int major, int minor)
{
    static char name[ALL_FILES][NAME_BYTES];
    int n = 0;
    uint64_t h = shuffle_mix((uint64_t)major << 32 | (uint64_t)minor);
    for (const char *c = arch; *c; c++) h = shuffle_mix(h ^ (unsigned char)*c);
    for (int folder = 0; folder < 2; folder++) {
        char path[PATH_BYTES];
        DIR *dir = opendir(in_dir(folder ? "cuda" : ".", path));
        for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
            const char *dot = strrchr(e->d_name, '.');
            bool ours = dot && (!strcmp(dot, ".cu") || !strcmp(dot, ".cuh") || !strcmp(dot, ".h"));
            if (ours && n < ALL_FILES && strlen(e->d_name) + 6 < NAME_BYTES)
                snprintf(name[n++], NAME_BYTES, "%s%s", folder ? "cuda/" : "", e->d_name);
        }
        if (dir) closedir(dir);
    }
    qsort(name, (size_t)n, sizeof *name, by_name);
    for (int i = 0; i < n; i++) {
        char path[PATH_BYTES];
        size_t bytes = 0;
        char *text = read_whole(in_dir(name[i], path), &bytes);
        for (const char *c = name[i]; *c; c++)
            h = (h ^ (unsigned char)*c) * 0x9fb21c651e98df25u, h ^= h >> 29;
        for (size_t k = 0; k < bytes; k++)
            h = (h ^ (unsigned char)text[k]) * 0x9fb21c651e98df25u, h ^= h >> 29;
        free(text);
    }
    return shuffle_mix(h);
}

/* The compiler's log on one line, as much as fits. */
static const char *log_of(struct _nvrtcProgram *made, char text[512])
{
    size_t bytes = 0;
    text[0] = 0;
    if (nvrtc.nvrtcGetProgramLogSize(made, &bytes) != 0 || bytes == 0) return text;
    char *log = malloc(bytes + 1);
    if (log && nvrtc.nvrtcGetProgramLog(made, log) == 0) snprintf(text, 512, "%s", log);
    free(log);
    return text;
}

static bool compile(const char *arch, const char *text, const char *to)
{
    char who[CUDA_WHO];
    struct _nvrtcProgram *made = NULL;
    char log[512], target[64], include[PATH_BYTES + 8], templates[PATH_BYTES + 16];
    size_t bytes = 0;
    bool fine = false;
    snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
    snprintf(include, sizeof include, "-I%s", module.dir);
    snprintf(templates, sizeof templates, "-I%s/cuda", module.dir);
    /* as planc does it */
    const char *option[] = {target,  "--std=c++17", "--fmad=false", "-default-device",
                            include, templates};
    unsigned result = nvrtc.nvrtcCreateProgram(&made, text, "kernels.cu", 0, NULL, NULL);
    if (result == 0)
        result = nvrtc.nvrtcCompileProgram(made, sizeof option / sizeof *option, option);
    if (result == 0) result = nvrtc.nvrtcGetCUBINSize(made, &bytes);
    char *cubin = result == 0 ? malloc(bytes) : NULL;
    if (cubin) result = nvrtc.nvrtcGetCUBIN(made, cubin);
    if (result != 0)
        fail_note("%s: %s/kernels.cu is not compiled for %s: %s: %s", cuda_who(who), module.dir,
                  arch, nvrtc.nvrtcGetErrorString(result), made ? log_of(made, log) : "");
    else if (!cubin)
        fail_note("%s: no host memory for the kernels' %zu bytes", cuda_who(who), bytes);
    else if (!(fine = write_whole(to, cubin, bytes)))
        fail_note("%s: the kernels made for %s cannot be kept: %s: %s; build with --arch %s",
                  cuda_who(who), arch, to, strerror(errno), arch);
    free(cubin);
    if (made) nvrtc.nvrtcDestroyProgram(&made);
    return fine;
}

/* ── which cubin ─────────────────────────────────────────────────────────────── */

/* The architecture whose every instruction this GPU has; later ones have some that later ones do
 * not ("a"). */
static const char *own_arch(char text[16])
{
    snprintf(text, 16, "sm_%d%d%s", gpu.major, gpu.minor, gpu.major >= 9 ? "a" : "");
    return text;
}

static bool there(const char *name)
{
    char path[PATH_BYTES];
    snprintf(module.name, sizeof module.name, "%s", name);
    return access(in_dir(name, path), R_OK) == 0;
}

/* What was built ahead: exactly this architecture, or an older one of its family, which runs here
 * too. */
static bool built(void)
{
    char arch[16], name[NAME_BYTES];
    snprintf(name, sizeof name, "kernels.%s.cubin", own_arch(arch));
    if (there(name)) return true;
    for (int minor = gpu.minor; minor >= 0; minor--) {
        snprintf(name, sizeof name, "kernels.sm_%d%d.cubin", gpu.major, minor);
        if (there(name)) return true;
    }
    return false;
}

/* The lowest rank of a host compiles; the others find the file or learn, when all agree, why there
 * is none. */
static bool made_at_start(void)
{
    char who[CUDA_WHO], arch[16], why[LIBRARY_WHY], name[NAME_BYTES], path[PATH_BYTES];
    int major = 0, minor = 0;
    size_t bytes;
    own_arch(arch);
    if (!cuda_library_open(LIBRARY_NVRTC, why))
        return fail_note(
            "%s: %s has no kernels for %s, and to make them there is %s: build with --arch %s",
            cuda_who(who), module.dir, arch, why, arch);
    if (nvrtc.nvrtcVersion(&major, &minor) != 0)
        return fail_note("%s: nvrtcVersion fails: build with --arch %s", cuda_who(who), arch);
    snprintf(name, sizeof name, "kernels.%s.%016llx.cubin", arch,
             (unsigned long long)sources_hash(arch, major, minor));
    if (there(name) || world.host_rank != 0) return true;
    char *text = read_whole(in_dir("kernels.cu", path), &bytes);
    if (!text)
        return fail_note("%s: %s has no kernels for %s, and %s: %s; build with --arch %s",
                         cuda_who(who), module.dir, arch, path, strerror(errno), arch);
    const double from = clock_seconds();
    bool fine = compile(arch, text, in_dir(name, path));
    free(text);
    if (fine)
        say("kernels: compiled for %s in %.1f s, kept as %s; planc build --arch %s does it ahead",
            arch, clock_seconds() - from, name, arch);
    return fine;
}

static bool load(void)
{
    char who[CUDA_WHO], path[PATH_BYTES], text[CUDA_ERROR];
    size_t bytes = 0;
    char *image = read_whole(in_dir(module.name, path), &bytes);
    if (!image) return fail_note("%s: %s: %s", cuda_who(who), path, strerror(errno));
    unsigned result = driver.cuModuleLoadData(&module.loaded, image);
    free(image);
    if (result != CUDA_OK)
        return fail_note("%s: %s does not load: cuModuleLoadData: %s; it is damaged, or made by a "
                         "newer CUDA than the driver is of",
                         cuda_who(who), path, cuda_error_text(result, text));
    module.function = ROOM(cuda_function, launch_functions + 1);
    module.shared = ROOM(int64_t, launch_functions + 1);
    for (int i = 0; i < launch_functions + RUNTIME_KERNELS; i++) {
        bool own = i >= launch_functions;
        const char *name = own ? runtime_name[i - launch_functions] : launch_function[i];
        cuda_function *to = own ? &module.runtime[i - launch_functions] : &module.function[i];
        /* shared memory; asking for it loads the function now and not in the middle of a step */
        int fixed = 0;
        result = driver.cuModuleGetFunction(to, module.loaded, name);
        if (result != CUDA_OK ||
            (result = driver.cuFuncGetAttribute(&fixed, CUDA_FUNCTION_SHARED, *to)) != CUDA_OK)
            return fail_note("%s: %s has no kernel %s, it is of another build: %s", cuda_who(who),
                             path, name, cuda_error_text(result, text));
        if (!own) module.shared[i] = PLAIN_SHARED - fixed;
    }
    return true;
}

bool cuda_module_open(void)
{
    bool fine = find_dir() && (built() || made_at_start());
    world_host_barrier();
    return fine && load();
}

/* ── launches ────────────────────────────────────────────────────────────────── */

static void check_launch(unsigned result, const char *name)
{
    char where[CUDA_WHERE], text[CUDA_ERROR];
    if (result != CUDA_OK)
        fail_now("%s: launch of %s: %s", cuda_where(where), name, cuda_error_text(result, text));
}

static void allow_shared(int function, int64_t bytes)
{
    char who[CUDA_WHO], arch[16];
    if (bytes > gpu.shared)
        fail_now("%s: kernel %s wants %lld bytes of shared memory per block, there are %d: a build "
                 "with --arch %s cuts products smaller",
                 cuda_who(who), launch_function[function], (long long)bytes, gpu.shared,
                 own_arch(arch));
    check_launch(driver.cuFuncSetAttribute(module.function[function], CUDA_FUNCTION_DYNAMIC_SHARED,
                                           (int)bytes),
                 launch_function[function]);
    module.shared[function] = bytes;
}

struct CUtensorMap_st {
    _Alignas(128) uint64_t opaque[16];
};

/* Made when a launch is issued, of which a graph keeps a copy: no table of them has to agree with
 * the schedule. */
static void encode(struct CUtensorMap_st *map, const struct tensor_operand *t, void *at,
                   const char *name)
{
    char who[CUDA_WHO], text[CUDA_ERROR], why[LIBRARY_WHY];
    const uint64_t size[] = {(uint64_t)t->elements, (uint64_t)t->lines, (uint64_t)t->planes},
                   line = 2 * size[0], stride[] = {line, line * size[1]};
    const uint32_t box[] = {64, (uint32_t)t->box, 1}, step[] = {1, 1, 1};
    if (!cuda_library_open(LIBRARY_TENSORS, why))
        fail_now("%s: kernel %s reads by tensor copies, and %s; a build with --arch sm_90 does "
                 "without",
                 cuda_who(who), name, why);
    unsigned result = tensors.cuTensorMapEncodeTiled(
        map, CUDA_TENSOR_BF16, 3, at, size, stride, box, step, CUDA_TENSOR_PLAIN,
        CUDA_TENSOR_SWIZZLE_128, CUDA_TENSOR_FETCH_256, CUDA_TENSOR_ZEROS);
    if (result != CUDA_OK)
        fail_now("%s: kernel %s: no tensor copies of %lld x %lld x %lld elements at %p: "
                 "cuTensorMapEncodeTiled: %s; a build with --arch sm_90 does without",
                 cuda_who(who), name, (long long)t->planes, (long long)t->lines,
                 (long long)t->elements, at, cuda_error_text(result, text));
}

void launch(const struct shot *s, void **argument)
{
    char who[CUDA_WHO];
    struct CUtensorMap_st map[SHOT_TENSORS];
    if (s->x <= 0 || s->y <= 0 || s->z <= 0) return; /* nothing to do */
    if (s->x > INT_MAX || s->y > UINT16_MAX || s->z > UINT16_MAX)
        fail_now("%s: %s wants a grid of %lld x %lld x %lld blocks, more than a GPU takes: a "
                 "smaller batch.local asks for fewer",
                 cuda_who(who), launch_function[s->function], (long long)s->x, (long long)s->y,
                 (long long)s->z);
    if (s->shared_bytes > module.shared[s->function]) allow_shared(s->function, s->shared_bytes);
    for (int i = 0; i < SHOT_TENSORS && s->tensor[i].box; i++) {
        void **at = &argument[s->tensor[i].argument];
        encode(&map[i], &s->tensor[i], *(void **)*at, launch_function[s->function]);
        *at = &map[i];
    }
    check_launch(driver.cuLaunchKernel(module.function[s->function], (unsigned)s->x, (unsigned)s->y,
                                       (unsigned)s->z, (unsigned)s->threads, 1, 1,
                                       (unsigned)s->shared_bytes, cuda.stream[LANE_COMPUTE],
                                       argument, NULL),
                 launch_function[s->function]);
}

bool launch_wgmma(void) { return gpu.major == 9 && gpu.minor == 0; }

void cuda_launch_runtime(enum runtime_kernel kernel, enum lane lane, int64_t blocks, int threads,
                         void **argument)
{
    if (blocks > 0)
        check_launch(driver.cuLaunchKernel(module.runtime[kernel], (unsigned)blocks, 1, 1,
                                           (unsigned)threads, 1, 1, 0, cuda.stream[lane], argument,
                                           NULL),
                     runtime_name[kernel]);
}

void *workspace(void) { return local(&cuda, program.workspace); }
