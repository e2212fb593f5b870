/* What the files that write schedule.c share: schedule.c, functions and calls of kernels;
 * schedule_lanes.c, collectives and waits. */
#ifndef PLANC_EMIT_SCHEDULE_H
#define PLANC_EMIT_SCHEDULE_H

#include "emit/place.h"

struct schedule_text {
    struct places places;
    const struct emit *e;
    const struct plan *plan;
    struct text bodies;
};

/* A line of a body before it is aligned. A line that begins with if depends on the number of layers
 * and is not aligned. */
struct line {
    const char *code, *comment;
};
struct lines {
    VECTOR(struct line) item;
};

/* Appends a line of code. */
void schedule_say(struct lines *to, const char *comment, const char *format, ...) PRINTF_LIKE(3, 4);

/* The constant of an event's number: "GATHER_LAYERS_FORWARD_DONE". */
const char *schedule_event(struct schedule_text *s, int64_t event);
/* The constant of the number of iterations of a loop. */
const char *schedule_loop_count(struct schedule_text *s, const char *loop, int64_t count);
/* C of the number of a unit's instance; `index`: C of the iteration. */
const char *schedule_instance(struct schedule_text *s, const struct unit *u, const char *index);

/* The call of one node of a lane. */
void schedule_say_gather(struct schedule_text *s, struct lines *to, struct here h,
                         const struct node *n);
void schedule_say_wait(struct schedule_text *s, struct lines *to, struct here h,
                       const struct node *n);
void schedule_say_reduce(struct schedule_text *s, struct lines *to, struct here h,
                         const struct node *n);

#endif
