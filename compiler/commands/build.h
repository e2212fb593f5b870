/* A built trainer, for the commands that make one or start one. */
#ifndef PLANC_COMMAND_BUILD_H
#define PLANC_COMMAND_BUILD_H

#include "commands/command.h"
#include "emit/emit.h"

struct trainer {
    struct plan *plan;
    struct graph *graph; /* LEVEL_MEMORY */
    enum emit_device device;
    bool reference, demanded; /* cuda: DIR/reference.so is wanted too; --arch named the cubins */
};
/* Where the compiler finds what trainers are made of. */
struct places {
    const char *runtime, *templates, *library, *compiler;
};
/* The plan of a command's one word, taken through the pipeline for the device that was asked for;
 * anything but EXIT_FINE after a message. */
int trainer_plan(const struct arguments *a, struct trainer *t);
/* Makes DIR where it is not there, and waits for other builds in it: it is this process's until
 * that ends. */
bool trainer_folder(const char *directory);
/* Writes DIR's sources and compiles DIR/trainer. A failed build leaves no trainer. */
int trainer_build(const struct trainer *t, const char *directory);
/* What a built trainer depends on, as 32 digits: generated texts, flags, libraries, processor. */
const char *trainer_hash(const struct trainer *t);
/* Compiles templates/cpu/measure.c as kernels are compiled, and links it for each mesh with the
 * runtime of cpu: DIR/PROGRAM. False after a message. */
struct measured_mesh {
    int64_t fsdp, dp;
    const char *program;
};
bool measure_build(const char *directory, const struct measured_mesh *mesh, int n);

#endif
