/* Loads NVRTC by name and calls the nine functions that compile a text. Its header is not included:
 * the few declarations here are a stable interface, and planc can be built without the CUDA
 * toolkit. */
#define _GNU_SOURCE
#include "commands/nvrtc.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct nvrtc_program *program;
static struct {
    void *library;
    int (*version)(int *major, int *minor);
    int (*count_archs)(int *n);
    int (*archs)(int *arch);
    int (*create)(program *p, const char *text, const char *name, int headers,
                  const char *const *header, const char *const *header_name);
    int (*destroy)(program *p);
    int (*compile)(program p, int options, const char *const *option);
    int (*cubin_bytes)(program p, size_t *bytes);
    int (*cubin)(program p, char *bytes);
    int (*log_bytes)(program p, size_t *bytes);
    int (*log)(program p, char *bytes);
} nvrtc;

static bool find_functions(void)
{
    const struct {
        const char *name;
        void *to;
    } row[] = {{"nvrtcVersion", &nvrtc.version},
               {"nvrtcGetNumSupportedArchs", &nvrtc.count_archs},
               {"nvrtcGetSupportedArchs", &nvrtc.archs},
               {"nvrtcCreateProgram", &nvrtc.create},
               {"nvrtcDestroyProgram", &nvrtc.destroy},
               {"nvrtcCompileProgram", &nvrtc.compile},
               {"nvrtcGetCUBINSize", &nvrtc.cubin_bytes},
               {"nvrtcGetCUBIN", &nvrtc.cubin},
               {"nvrtcGetProgramLogSize", &nvrtc.log_bytes},
               {"nvrtcGetProgramLog", &nvrtc.log}};
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        void *at = dlsym(nvrtc.library, row[i].name);
        if (!at) return false;
        /* ISO C knows no cast from an object's address to a function's */
        memcpy(row[i].to, &at, sizeof at);
    }
    return true;
}

static bool open_one(const char *path)
{
    nvrtc.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (nvrtc.library && find_functions()) return true;
    if (nvrtc.library) dlclose(nvrtc.library);
    nvrtc.library = NULL;
    return false;
}

const char *nvrtc_open(void)
{
    static const char *const usual[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12"};
    const char *named = getenv("PLANC_NVRTC");
    if (nvrtc.library) return NULL;
    if (named && *named)
        return open_one(named)
                   ? NULL
                   : text_format("PLANC_NVRTC is '%s', which cannot be loaded as NVRTC", named);
    for (size_t i = 0; i < COUNT_OF(usual); i++)
        if (open_one(usual[i])) return NULL;
    return "neither libnvrtc.so.13 nor .12 lies along the loader's path or in "
           "/usr/local/cuda/lib64 (PLANC_NVRTC=FILE names it)";
}

const char *nvrtc_identity(void)
{
    int major = 0, minor = 0;
    Dl_info of = {0};
    void *inside;
    struct stat st = {0};
    memcpy(&inside, &nvrtc.version, sizeof inside);
    if (!dladdr(inside, &of) || !of.dli_fname || stat(of.dli_fname, &st)) st.st_size = 0;
    nvrtc.version(&major, &minor);
    return text_format("NVRTC %d.%d (%s, %s B)", major, minor, of.dli_fname ? of.dli_fname : "?",
                       text_count(st.st_size));
}

const char *nvrtc_refuses(const char *arch)
{
    int n = 0, wanted = atoi(arch + 3), low = 0, high = 0;
    if (nvrtc.count_archs(&n) || n < 1) return NULL;
    int *all = TAKE_MANY(int, n);
    if (nvrtc.archs(all)) return NULL;
    for (int i = 0; i < n; i++) {
        if (all[i] == wanted) return NULL;
        if (!low || all[i] < low) low = all[i];
        if (all[i] > high) high = all[i];
    }
    return text_format("sm_%d to sm_%d", low, high);
}

static void take_log(program p, struct text *log)
{
    size_t n = 0;
    if (nvrtc.log_bytes(p, &n) || n < 2) return;
    char *bytes = TAKE_MANY(char, n);
    if (!nvrtc.log(p, bytes)) text_add_bytes(log, bytes, n - 1);
}

static bool take_cubin(program p, struct text *cubin)
{
    size_t n = 0;
    if (nvrtc.cubin_bytes(p, &n) || !n) return false;
    char *bytes = TAKE_MANY(char, n);
    if (nvrtc.cubin(p, bytes)) return false;
    text_add_bytes(cubin, bytes, n);
    return true;
}

bool nvrtc_compile(const char *text, const char *folder, const char *arch, struct text *cubin,
                   struct text *log)
{
    const char *const option[] = {text_format("--gpu-architecture=%s", arch),
                                  "--std=c++17",
                                  "--fmad=false",
                                  "-default-device",
                                  "--ptxas-options=-v",
                                  text_format("-I%s", folder)};
    program p;
    if (nvrtc.create(&p, text, "kernels.cu", 0, NULL, NULL)) return false;
    bool fine = !nvrtc.compile(p, (int)COUNT_OF(option), option);
    take_log(p, log);
    fine = fine && take_cubin(p, cubin);
    nvrtc.destroy(&p);
    return fine;
}
