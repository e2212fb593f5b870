/* Compiles plans in this process, as often and as fast as possible: each file named by the
 * arguments is taken through every setting that its lines "# try A=B C=D" list, from the text to
 * the texts of both devices. A file has a process of its own, so that a crash, a hang or an
 * internal failure ends that process and not the test. For each setting one line is printed:
 *   fine FILE SETTINGS
 *   refused FILE SETTINGS: the first error
 *   FAIL FILE SETTINGS: why */
#define _XOPEN_SOURCE 700
#include "base/diagnostics.h"
#include "emit/emit.h"
#include "ir/ir.h"
#include "passes/pipeline.h"
#include "passes/budget.h"
#include "prove.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SETTINGS = 16, SECONDS = 20 };

static void emit_device(const struct graph *g, const struct plan *p)
{
    struct text t = {0};
    bool cuda = g->facts.device == DEVICE_CUDA;
    emit_kernels_h(&t, g);
    if (cuda)
        emit_kernels_cu(&t, g), emit_launch_c(&t, g);
    else
        emit_kernels_c(&t, g, EMIT_CPU);
    emit_schedule_c(&t, g, p);
    emit_program_c(&t, g, p, cuda ? EMIT_CUDA : EMIT_CPU);
    emit_plan_json(&t, g, p);
}

/* NULL: the plan was refused, and it was said why. */
static struct graph *compiled(const char *path, const char *const *set, int n, bool cuda,
                              struct plan **plan)
{
    const char *const *open_keys;
    int n_open;
    *plan = plan_load(path, set, n, &open_keys, &n_open);
    if (!*plan) return NULL;
    if (cuda) plan_take_device(*plan, "cuda");
    if (!budget_decide(*plan)) return NULL;
    struct graph *g = pass_lower(*plan);
    return g ? pipeline_run(g, LEVEL_MEMORY) : NULL;
}

static void try_one(const char *path, const char *label, const char *const *set, int n, bool cuda)
{
    struct plan *p;
    struct graph *g = compiled(path, set, n, cuda, &p);
    const char *wrong = g ? prove(g) : NULL;
    if (wrong) {
        printf("FAIL %s%s: not proved: %s\n", path, label, wrong);
    } else if (g) {
        emit_device(g, p);
        printf("fine %s%s\n", path, label);
    } else if (error_count()) {
        FILE *said = tmpfile();
        char line[300] = "";
        if (said) {
            diagnostics_print(said, false);
            rewind(said);
            if (!fgets(line, sizeof line, said)) line[0] = 0;
            fclose(said);
        }
        line[strcspn(line, "\n")] = 0;
        printf("%s %s%s: %s\n", strncmp(line, path, strlen(path)) ? "FAIL" : "refused", path, label,
               line);
    } else {
        printf("FAIL %s%s: no program, and nothing said\n", path, label);
    }
    diagnostics_reset();
}

static void try_all(const char *path)
{
    char line[1000];
    FILE *f = fopen(path, "r");
    if (!f) {
        printf("FAIL %s: cannot be read\n", path);
        return;
    }
    while (fgets(line, sizeof line, f)) {
        const char *set[SETTINGS];
        int n = 0;
        bool cuda = false;
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "# try", 5)) continue;
        const char *label = intern(line + 5);
        for (char *word = strtok(line + 5, " "); word && n < SETTINGS; word = strtok(NULL, " ")) {
            if (!strcmp(word, "cuda"))
                cuda = true;
            else
                set[n++] = intern(word);
        }
        fprintf(stderr, "at%s: ", label);
        fflush(stderr);
        try_one(path, label, set, n, cuda);
        fflush(stdout);
        if (ftruncate(2, 0) == 0) rewind(stderr);
    }
    fclose(f);
}

/* What a process that ended before its time has said last. */
static void say_end(const char *path, int status, FILE *said)
{
    char words[400];
    rewind(said);
    size_t n = fread(words, 1, sizeof words - 1, said);
    words[n] = 0;
    for (size_t i = 0; i < n; i++)
        if (words[i] == '\n') words[i] = ' ';
    if (WIFSIGNALED(status))
        printf("FAIL %s: signal %d %s\n", path, WTERMSIG(status), words);
    else
        printf("FAIL %s: status %d %s\n", path, WEXITSTATUS(status), words);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        FILE *said = tmpfile();
        if (!said) return 4;
        fflush(stdout);
        pid_t child = fork();
        if (child < 0) return 4;
        if (!child) {
            dup2(fileno(said), 2);
            alarm(SECONDS);
            try_all(argv[i]);
            fflush(stdout);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child) return 4;
        if (status) say_end(argv[i], status, said);
        fclose(said);
    }
    return 0;
}
