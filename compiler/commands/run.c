/* `planc run`: starts the trainer of this plan, and builds it first if it is not there. The exit
 * status is the launcher's; signals go through launch.c. */
#define _GNU_SOURCE
#include "commands/build_kept.h"
#include "commands/build.h"
#include "commands/launch.h"
#include "commands/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a trainer of this host leaves the one line of its failure; NULL: nowhere. */
static const char *failure_file(const char *trainer)
{
    const char *path = text_format("%s.failure.%ld", trainer, (long)getpid());
    (void)unlink(path); /* of a process that had our number */
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return NULL;
    close(file);
    return setenv("PLANC_FAILURE", path, 1) ? NULL : path;
}

/* mpirun explains at length that a process ended; why it did is said last. */
static void say_failure(const char *path, int status)
{
    size_t n = 0;
    char *line = file_read(path, &n), *text = line;
    (void)unlink(path);
    if (!line || status <= 0) return;
    if (!strncmp(line, "trainer: ", 9)) text += 9;
    text[strcspn(text, "\n")] = 0;
    if (*text) fprintf(stderr, "planc: %s\n", text);
}

int run_start(const struct trainer *t, const char *trainer, const char *const *option, int n)
{
    VECTOR(char *) argv = {0};
    if (t->device != EMIT_TRACE) {
        const char *const start[] = {"mpirun", "-n",
                                     text_format("%lld", (long long)(t->plan->fsdp * t->plan->dp))};
        for (size_t i = 0; i < COUNT_OF(start); i++) PUSH(&argv, (char *)(uintptr_t)start[i]);
    }
    PUSH(&argv, (char *)(uintptr_t)trainer);
    for (int i = 0; i < n; i++) PUSH(&argv, (char *)(uintptr_t)option[i]);
    PUSH(&argv, NULL);
    if (!launcher_settings())
        return command_fail(EXIT_ENVIRONMENT, "cannot set the launcher's variables: %s",
                            strerror(errno));
    fflush(NULL);
    if (t->device == EMIT_TRACE)
        execvp(argv.item[0], argv.item);
    else {
        const char *failure = failure_file(trainer);
        int status = launch(argv.item, (long long)(t->plan->fsdp * t->plan->dp));
        if (failure) say_failure(failure, status);
        if (status >= 0) return status;
    }
    return command_fail(EXIT_ENVIRONMENT, "cannot start %s: %s", argv.item[0], strerror(errno));
}

int run_prepare(const struct trainer *t, const char **trainer)
{
    const char *cache = cache_folder(), *hash = trainer_hash(t);
    if (!hash) return EXIT_ENVIRONMENT;
    if (!cache)
        return command_fail(EXIT_ENVIRONMENT, "there is no folder for built trainers: set HOME or "
                                              "XDG_CACHE_HOME to one that only you can "
                                              "write into, or use build");
    const char *directory = text_format("%s/run-%s", cache, hash);
    *trainer = text_format("%s/trainer", directory);
    if (!make_private_folders(directory) || !trainer_folder(directory)) return EXIT_ENVIRONMENT;
    if (access(*trainer, X_OK) || !folder_is_sealed(directory)) {
        const int status = trainer_build(t, directory);
        if (status != EXIT_FINE) return status;
        folder_seal(directory);
    }
    return EXIT_FINE;
}

static void nothing_to_save(int number) { (void)number; }

int command_run(const struct arguments *a)
{
    struct trainer t;
    struct sigaction saves = {.sa_handler = nothing_to_save, .sa_flags = SA_RESTART}, now;
    /* asked to save and to go on: while the trainer is built there is nothing to save */
    if (sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        (void)sigaction(SIGUSR2, &saves, NULL);
    int status = trainer_plan(a, &t);
    if (status != EXIT_FINE) return status;
    long long ranks = t.plan->fsdp * t.plan->dp;
    char *end = NULL;
    if (a->ranks && (strtoll(a->ranks, &end, 10) != ranks || *end))
        return command_fail(
            EXIT_USAGE,
            "the plan's mesh is fsdp %lld x dp %lld, so it runs on %lld ranks, not on %s",
            (long long)t.plan->fsdp, (long long)t.plan->dp, ranks, a->ranks);
    const char *trainer = NULL;
    status = run_prepare(&t, &trainer);
    if (status != EXIT_FINE) return status;
    diagnostics_print(stderr, a->colour); /* warnings: nobody is here to print them later */
    return run_start(&t, trainer, a->rest.item, a->rest.n);
}
