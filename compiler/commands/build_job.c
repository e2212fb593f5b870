/* Runs compilers. Their output goes to a file and is shown only if they fail. */
#include "commands/build_job.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void remove_file(const char *path)
{
    if (unlink(path) && errno != ENOENT)
        command_fail(EXIT_ENVIRONMENT, "cannot remove '%s': %s", path, strerror(errno));
}

void job_say(struct job *j, const char *word)
{
    PUSH(&j->word, (char *)(uintptr_t)text_format("%s", word));
}

void job_say_all(struct job *j, const char *words)
{
    for (const char *s = words; *s;) {
        size_t n = strcspn(s, " ");
        if (n) job_say(j, text_format("%.*s", (int)n, s));
        s += n + (s[n] == ' ');
    }
}

bool job_start(struct job *j)
{
    PUSH(&j->word, NULL);
    j->running = start_program(j->word.item, j->log, &j->process);
    if (j->running) return true;
    command_fail(EXIT_ENVIRONMENT, "cannot start %s: %s", j->word.item[0], strerror(errno));
    remove_file(j->log);
    return false;
}

bool job_end(struct job *j)
{
    if (!j->running) return false;
    j->running = false;
    int status = end_program(j->process);
    size_t n = 0;
    char *words = status ? file_read(j->log, &n) : NULL;
    remove_file(j->log);
    if (!status) return true;
    struct text command = {0};
    for (int i = 0; j->word.item[i]; i++) text_add(&command, "%s%s", i ? " " : "", j->word.item[i]);
    if (words && n) fwrite(words, 1, n, stderr);
    command_fail(EXIT_ENVIRONMENT, "this command failed (status %d): %s", status, command.bytes);
    return false;
}

const char *job_answer(struct job *j, size_t *bytes)
{
    if (!job_start(j)) return NULL;
    int status = end_program(j->process);
    char *words = file_read(j->log, bytes);
    remove_file(j->log);
    if (!status && words) return words;
    if (words) fwrite(words, 1, *bytes, stderr);
    command_fail(EXIT_ENVIRONMENT, "%s cannot say what it compiles for", j->word.item[0]);
    return NULL;
}
