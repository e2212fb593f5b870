/* Copies what NVRTC needs into DIR (a trainer on a device of another architecture compiles there
 * when it starts) and compiles the cubins. Kernels do not depend on the mesh, so cubins are cached
 * like the objects of a cpu build. Each architecture is compiled in a process of its own: NVRTC
 * compiles with one thread, and if it crashes, planc can still report that. */
#include "commands/build_cuda.h"
#include "commands/build_job.h"
#include "commands/build_kept.h"
#include "commands/nvrtc.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ── templates ───────────────────────────────────────────────────────────────── */
struct copies {
    const struct places *places;
    const char *directory;
    struct text *all;
    VECTOR(const char *) name;
};

/* The path in DIR of an #include: a template by its path in templates, a runtime header by its
 * name. */
static const char *resolve_include(const struct copies *c, const char *name, const char **from)
{
    const char *const to[] = {name, text_format("cuda/%s", name), name};
    const char *const path[] = {text_format("%s/%s", c->places->templates, name),
                                text_format("%s/cuda/%s", c->places->templates, name),
                                text_format("%s/%s", c->places->runtime, name)};
    for (size_t i = 0; i < COUNT_OF(path); i++)
        if (!access(path[i], R_OK)) return *from = path[i], to[i];
    return NULL;
}

static bool copy_one(struct copies *c, const char *name)
{
    const char *from, *to = resolve_include(c, name, &from);
    size_t n;
    if (!to)
        return command_fail(EXIT_ENVIRONMENT,
                            "the kernels include '%s', which lies neither in '%s' nor in '%s'",
                            name, c->places->templates, c->places->runtime),
               false;
    for (int i = 0; i < c->name.n; i++)
        if (!strcmp(c->name.item[i], to)) return true;
    PUSH(&c->name, to);
    const char *bytes = file_read(from, &n), *target = text_format("%s/%s", c->directory, to);
    if (!bytes)
        return command_fail(EXIT_ENVIRONMENT, "cannot read '%s': %s", from, strerror(errno)), false;
    if (!file_write(target, bytes, n))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", target, strerror(errno)),
               false;
    text_add_bytes(c->all, bytes, n);
    for (const char *s = strstr(bytes, "#include \""); s; s = strstr(s, "#include \"")) {
        s += strlen("#include \"");
        if (!copy_one(c, text_format("%.*s", (int)strcspn(s, "\"\n"), s))) return false;
    }
    return true;
}

bool cuda_copy_templates(const struct graph *g, const struct places *p, const char *directory,
                         struct text *all)
{
    struct copies c = {.places = p, .directory = directory, .all = all};
    if (!make_folders(text_format("%s/cuda", directory)))
        return command_fail(EXIT_ENVIRONMENT, "cannot make the folder '%s/cuda': %s", directory,
                            strerror(errno)),
               false;
    for (const char *const *name = emit_cuda_templates(g); *name; name++)
        if (!copy_one(&c, *name)) return false;
    for (const char *const *name = emit_cuda_headers(); *name; name++)
        if (!copy_one(&c, *name)) return false;
    return true;
}

/* ── cubins ──────────────────────────────────────────────────────────────────── */
struct cubin {
    const char *arch, *path, *log, *kept, *kept_log;
    int process;
};

static const char *hash_of(const char *arch, const struct text *kernels, const struct text *copied)
{
    struct text all = {0};
    text_add(&all, "%s %s ", arch, nvrtc_identity());
    text_add_bytes(&all, kernels->bytes, kernels->length);
    text_add_bytes(&all, copied->bytes, copied->length);
    return hash_text(&all);
}

static bool copy_kept(const struct cubin *c)
{
    size_t n, log_n;
    const char *bytes = c->kept ? kept_read(c->kept, &n) : NULL,
               *log = bytes ? kept_read(c->kept_log, &log_n) : NULL;
    return log && file_write(c->path, bytes, n) && file_write(c->log, log, log_n);
}

static void keep(const struct cubin *c)
{
    size_t n;
    const char *bytes = file_read(c->path, &n);
    if (bytes) kept_write(c->kept, bytes, n);
    bytes = file_read(c->log, &n);
    if (bytes) kept_write(c->kept_log, bytes, n);
}

/* Runs in a child process: 0 done, 1 the text does not compile, 2 the file cannot be written. */
static int compile(const struct cubin *c, const struct text *kernels, const char *directory)
{
    struct text bytes = {0}, log = {0};
    bool fine = nvrtc_compile(kernels->bytes, directory, c->arch, &bytes, &log);
    if (!file_write(c->log, log.bytes ? log.bytes : "", log.length)) return 2;
    return !fine ? 1 : file_write(c->path, bytes.bytes, bytes.length) ? 0 : 2;
}

static bool start(struct cubin *c, const struct text *kernels, const char *directory)
{
    fflush(NULL);
    c->process = fork();
    if (c->process == 0) _exit(compile(c, kernels, directory));
    return c->process > 0;
}

static void show(const char *path)
{
    size_t n;
    const char *bytes = file_read(path, &n);
    if (bytes) fwrite(bytes, 1, n, stderr);
}

static int check_archs(const struct plan *p)
{
    for (int i = 0; i < p->n_arch; i++) {
        const char *arch = p->arch[i], *known;
        if ((known = nvrtc_refuses(arch)))
            return command_fail(EXIT_ENVIRONMENT,
                                "%s compiles for %s, not for %s: --arch may name another, "
                                "PLANC_NVRTC=FILE another toolkit's libnvrtc.so",
                                nvrtc_identity(), known, arch);
    }
    return EXIT_FINE;
}

static int finish(struct cubin *all, int n, const char *directory)
{
    const struct cubin *wrong = NULL, *lost = NULL;
    for (int i = 0; i < n; i++) {
        if (!all[i].process) continue;
        int status = end_program(all[i].process);
        if (status == 2)
            lost = &all[i];
        else if (status)
            wrong = &all[i];
        if (status)
            remove_file(all[i].path);
        else if (all[i].kept)
            keep(&all[i]);
    }
    if (lost) return command_fail(EXIT_ENVIRONMENT, "cannot write '%s'", lost->path);
    if (!wrong) return EXIT_FINE;
    show(wrong->log);
    bug("%s/kernels.cu does not compile for %s: the words above are in %s", directory, wrong->arch,
        wrong->log);
}

int cuda_cubins(const struct trainer *t, const char *directory, const struct text *copied,
                bool demanded)
{
    const struct plan *p = t->plan;
    const char *missing = nvrtc_open(), *cache = cache_folder();
    if (missing && demanded)
        return command_fail(EXIT_ENVIRONMENT,
                            "--arch wants kernels compiled, and there is no NVRTC: %s", missing);
    if (missing) {
        fprintf(stderr,
                "planc: no NVRTC: %s; '%s' has no cubins, and the trainer compiles its kernels "
                "when it starts\n",
                missing, directory);
        return EXIT_FINE;
    }
    int status = check_archs(p);
    if (status != EXIT_FINE) return status;
    struct text kernels = {0};
    emit_kernels_cu(&kernels, t->graph);
    struct cubin *all = TAKE_MANY(struct cubin, p->n_arch);
    bool started = true;
    for (int i = 0; i < p->n_arch; i++) {
        struct cubin *c = &all[i];
        c->arch = p->arch[i];
        c->path = text_format("%s/kernels.%s.cubin", directory, c->arch),
        c->log = text_format("%s/kernels.%s.log", directory, c->arch);
        const char *hash = cache ? hash_of(c->arch, &kernels, copied) : NULL;
        if (hash)
            c->kept = text_format("%s/%s.cubin", cache, hash),
            c->kept_log = text_format("%s/%s.log", cache, hash);
        if (!copy_kept(c)) started &= start(c, &kernels, directory);
    }
    status = finish(all, p->n_arch, directory);
    return started ? status
                   : command_fail(EXIT_ENVIRONMENT, "cannot start a process for NVRTC: %s",
                                  strerror(errno));
}

void cuda_remove_stale(const char *directory)
{
    DIR *d = opendir(directory);
    if (!d) return;
    VECTOR(const char *) old = {0};
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (!strncmp(e->d_name, "kernels.", 8) &&
            (strstr(e->d_name, ".cubin") || strstr(e->d_name, ".log")))
            PUSH(&old, text_format("%s/%s", directory, e->d_name));
    closedir(d);
    for (int i = 0; i < old.n; i++) remove_file(old.item[i]);
}
