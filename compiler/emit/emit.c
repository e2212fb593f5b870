/* The entry point: which texts make up the folder of a trainer on which device. */
#include "emit/common.h"

bool emit_files(const struct graph *g, const struct plan *plan, enum emit_device device,
                bool reference, const char *directory)
{
    enum {
        KERNELS_H,
        KERNELS_C,
        KERNELS_CU,
        LAUNCH_C,
        ARGUMENTS_C,
        SCHEDULE_C,
        PROGRAM_C,
        PLAN_JSON,
        FILES
    };
    static const char *const name[FILES] = {"kernels.h",   "kernels.c",  "kernels.cu", "launch.c",
                                            "arguments.c", "schedule.c", "program.c",  "plan.json"};
    struct text text[FILES] = {0};
    emit_kernels_h(&text[KERNELS_H], g);
    if (device == EMIT_CUDA)
        emit_kernels_cu(&text[KERNELS_CU], g), emit_launch_c(&text[LAUNCH_C], g);
    else
        emit_kernels_c(&text[KERNELS_C], g, device);
    if (reference)
        emit_kernels_c(&text[KERNELS_C], g, EMIT_CPU), emit_arguments_c(&text[ARGUMENTS_C], g);
    emit_schedule_c(&text[SCHEDULE_C], g, plan);
    emit_program_c(&text[PROGRAM_C], g, plan, device);
    emit_plan_json(&text[PLAN_JSON], g, plan);
    for (int i = 0; i < FILES; i++)
        if (text[i].length &&
            !file_write(text_format("%s/%s", directory, name[i]), text[i].bytes, text[i].length))
            return false;
    return true;
}
