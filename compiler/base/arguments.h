/* The words of the command line, sorted once by commands/main.c, and the function that reports
 * errors that are not mistakes of a plan. They are in base because analyses read the settings
 * (--set, --device) too. */
#ifndef PLANC_ARGUMENTS_H
#define PLANC_ARGUMENTS_H

#include "base/base.h"

enum { EXIT_FINE = 0, EXIT_PLAN = 1, EXIT_NO_FIT = 2, EXIT_USAGE = 3, EXIT_ENVIRONMENT = 4 };

struct arguments {
    const char *command;
    VECTOR(const char *) word;     /* what is no option: plans, a section */
    VECTOR(const char *) set;      /* texts of --set, in order */
    VECTOR(int) set_words;         /* how many of `word` stand before each of them */
    VECTOR(const char *) rest;     /* after -- */
    VECTOR(const char *) profiles; /* of calibrate: --from */
    bool json, colour;             /* colour: for diagnostics, decided */
    const char *output, *device, *arch, *ranks, *after, *all, *from, *pass, *at, *cluster;
    const char *devices, *scaling, *trace; /* of simulate; devices also of tune */
    const char *failures, *stall;          /* of simulate: checkpoints */
    const char *durations;                 /* of simulate: what a run measured */
    const char *dtype, *shard, *tokenizer; /* of export */
    const char *ladder, *top;              /* of tune */
    bool measure;                          /* of tune */
    const char *metrics;                   /* of report */
    const char *key;                       /* of plot */
    bool traces;                           /* the command's --device may be trace */
    bool reference;                        /* of build for cuda */
    bool fusion;                           /* off with --fusion off */
    bool write, check;                     /* of format */
    const char *format, *field, *as;       /* of data: what the files are, what is written */
    const char *end_token, *model;         /* of data */
};

/* One line "planc: ..." on stderr; returns `status`. After command_errors_as_json the line is an
 * error of diagnostics_print_json too. */
void command_errors_as_json(void);
int command_fail(int status, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
