/* libnvrtc.so.13 that compiles kernel text for this processor: module.sh's shared object is what
 * planc keeps as a cubin and what the stand-in driver loads, so building, keeping and compiling at
 * start go their usual ways (PLANC_NVRTC names this file). */
#define _GNU_SOURCE
#include "streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6, MOST_OPTIONS = 30 };
struct bytes {
    char *at;
    size_t n;
};
struct _nvrtcProgram {
    char *text;
    struct bytes cubin, log;
};
typedef struct _nvrtcProgram *program_t;

EXPORTED unsigned nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, SUCCESS; }
static const int arch[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
EXPORTED unsigned nvrtcGetNumSupportedArchs(int *n)
{
    return *n = sizeof arch / sizeof *arch, SUCCESS;
}
EXPORTED unsigned nvrtcGetSupportedArchs(int *to) { return memcpy(to, arch, sizeof arch), SUCCESS; }
EXPORTED const char *nvrtcGetErrorString(unsigned error)
{
    return error == SUCCESS       ? "NVRTC_SUCCESS"
           : error == COMPILATION ? "NVRTC_ERROR_COMPILATION"
                                  : "NVRTC_ERROR_INVALID_INPUT";
}

EXPORTED unsigned nvrtcCreateProgram(program_t *p, const char *text, const char *name, int headers,
                                     const char *const *header, const char *const *header_name)
{
    (void)name, (void)header, (void)header_name;
    if (headers) return INVALID_INPUT;
    *p = calloc(1, sizeof **p);
    (*p)->text = strdup(text);
    return SUCCESS;
}
EXPORTED unsigned nvrtcDestroyProgram(program_t *p)
{
    free((*p)->text), free((*p)->cubin.at), free((*p)->log.at), free(*p);
    *p = NULL;
    return SUCCESS;
}
static struct bytes read_all(const char *path)
{
    struct bytes b = {calloc(1, 1), 0};
    FILE *f = fopen(path, "rb");
    char piece[65536];
    for (size_t n; f && (n = fread(piece, 1, sizeof piece, f)) > 0; b.n += n) {
        b.at = realloc(b.at, b.n + n + 1);
        memcpy(b.at + b.n, piece, n);
        b.at[b.n + n] = 0;
    }
    if (f) fclose(f);
    return b;
}
EXPORTED unsigned nvrtcCompileProgram(program_t p, int options, const char *const *option)
{
    char folder[] = "/tmp/standin-nvrtc-XXXXXX", path[3][64];
    if (!mkdtemp(folder)) return INVALID_INPUT;
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder,
                 (const char *const[]){"kernels.cu", "kernels.so", "log"}[i]);
    FILE *f = fopen(path[0], "wb");
    bool fine = f && fwrite(p->text, 1, strlen(p->text), f) == strlen(p->text);
    fine = f && fclose(f) == 0 && fine;
    const char *command[MOST_OPTIONS + 5] = {STANDIN_MODULE, path[0], path[1]};
    for (int i = 0, n = 3; i < options && i < MOST_OPTIONS; i++)
        if (!strncmp(option[i], "-I", 2)) command[n++] = option[i];
    pid_t child = fine ? fork() : -1;
    if (child == 0) {
        if (!freopen(path[2], "wb", stderr) || dup2(2, 1) < 0) _exit(1);
        execv(STANDIN_MODULE, (char *const *)command);
        _exit(1);
    }
    int status = 1;
    if (child > 0) waitpid(child, &status, 0);
    p->log = read_all(path[2]);
    if (status == 0) p->cubin = read_all(path[1]);
    for (int i = 0; i < 3; i++) unlink(path[i]);
    rmdir(folder);
    return status == 0 && p->cubin.n ? SUCCESS : COMPILATION;
}
EXPORTED unsigned nvrtcGetCUBINSize(program_t p, size_t *bytes)
{
    return *bytes = p->cubin.n, SUCCESS;
}
EXPORTED unsigned nvrtcGetCUBIN(program_t p, char *to)
{
    return memcpy(to, p->cubin.at, p->cubin.n), SUCCESS;
}
EXPORTED unsigned nvrtcGetProgramLogSize(program_t p, size_t *bytes)
{
    return *bytes = p->log.n + 1, SUCCESS;
}
EXPORTED unsigned nvrtcGetProgramLog(program_t p, char *to)
{
    memcpy(to, p->log.at ? p->log.at : "", p->log.n);
    to[p->log.n] = 0;
    return SUCCESS;
}
