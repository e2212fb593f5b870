/* One program that a build runs, and its output if it fails. */
#ifndef PLANC_BUILD_JOB_H
#define PLANC_BUILD_JOB_H

#include "commands/command.h"

/* `log`: where its words go until it ends. */
struct job {
    VECTOR(char *) word;
    const char *log;
    int process;
    bool running;
};

void job_say(struct job *j, const char *word);
void job_say_all(struct job *j, const char *words); /* at blanks */
/* False after saying why it could not be started. */
bool job_start(struct job *j);
/* True when it ended well; otherwise its own words are shown, and the command that it was. The log
 * is gone. */
bool job_end(struct job *j);
/* Runs it and gives what it printed; NULL after a message. */
const char *job_answer(struct job *j, size_t *bytes);

/* What is not there need not be removed. */
void remove_file(const char *path);

#endif
