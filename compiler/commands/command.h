/* What the commands share: the words of the command line, sorted once in main.c, and the way from a
 * file to a checked plan. A command is one file with one public function that returns the exit
 * status; main prints the diagnostics. stdout has the result of the command and nothing else. */
#ifndef PLANC_COMMAND_H
#define PLANC_COMMAND_H

#include "base/arguments.h"
#include "check/plan.h"
#include "text/constant.h"

#define PLANC_VERSION "0.1"

/* The tables of main.c; manual and completion are written from them. */
struct command_row {
    const char *name;
    int bit; /* 0: planned */
    int (*run)(const struct arguments *);
    const char *usage, *help;
};
/* value: NULL for a switch */
struct option_row {
    const char *name;
    int option;
    int commands;
    const char *value, *help;
};
extern const struct command_row command_rows[];
extern const struct option_row option_rows[];
extern const int command_count, option_count;

/* Whether model.vocab holds the ids of data.tokenizer; false after a diagnostic. */
bool tokenizer_fits(const struct plan *p);
/* Warns of token files that are not there, or are not what the plan says. */
void data_files_check(const struct plan *p);
int command_check(const struct arguments *a);
int command_memory(const struct arguments *a);
int command_simulate(const struct arguments *a);
int command_tune(const struct arguments *a);
int command_report(const struct arguments *a);
int command_diff(const struct arguments *a);
int command_build(const struct arguments *a);
int command_run(const struct arguments *a);
int command_dump(const struct arguments *a);
int command_keys(const struct arguments *a); /* word: none or one section */
/* What `planc keys WORD` says of a section, a key, a family, a word of other tools; false:
 * nothing. */
bool keys_print(const char *wanted);
int command_import(const struct arguments *a);
int command_calibrate(const struct arguments *a);
int command_export(const struct arguments *a);
int command_checkpoint(const struct arguments *a);
int command_data(const struct arguments *a);
int command_preflight(const struct arguments *a);
int command_plot(const struct arguments *a);
int command_format(const struct arguments *a);
/* `planc help TOPIC`: a command, `man`, `bash`, `zsh` (the manual page and the completions), or
 * what `keys` knows. False when it is none of them. */
bool help_print(const char *topic);

/* The plan of a file under --set, complete and without open keys; NULL after a message, *status
 * then set. */
struct plan *command_plan(const struct arguments *a, const char *path, int *status);
/* The same from one reading of the file, but a plan with open keys is no mistake: its space then,
 * and no plan. */
struct plan *command_plan_or_space(const struct arguments *a, const char *path,
                                   struct space **space, int *status);
/* option_value.c: the number that an option's value says in a plan's units, "120GiB", "30min": of
 * range.unit and at least range.least, below 9e18. False after one line, "--at takes WHAT". */
struct option_range {
    enum unit_kind unit;
    double least;
    const char *what;
};
bool option_quantity(const char *option, const char *text, struct option_range range,
                     double *number);
/* The running compiler's folder ("/usr/lib/planc/build"), for what lies beside it; NULL when it
 * cannot be found. */
const char *command_home(void);
/* From here on what jansson makes is the arena's, like everything else: nothing of it is freed one
 * by one. */
void json_in_arena(void);
/* Folders made as needed, like mkdir -p. False with errno. */
bool make_folders(const char *path);
bool make_private_folders(const char *path); /* those that it makes are only its user's */
/* Opens /dev/null as stdin, stdout and stderr where they are closed. False: it cannot. */
bool have_standard_files(void);
double command_clock(void); /* seconds since some moment, which setting the time does not move */
/* Two names of one plain file; NULL is the name of none. */
bool is_same_file(const char *a, const char *b);
/* Whether file_write() will find a folder that takes this file; asked before what takes minutes.
 * False with errno. */
bool can_write(const char *path);
/* Starts a program (found along PATH); both its streams go to the file `log` when that is not NULL.
 * False with errno. */
bool start_program(char *const *argv, const char *log, int *process);
/* Waits for it: its exit status, 128 + signal, or -1 with errno. */
int end_program(int process);

#endif
