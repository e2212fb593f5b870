/* What the time of a run went into, over all processes that ran it: kept in every checkpoint, so
 * that the log of a run that was resumed tells the whole run's. */
#ifndef PLANC_GOODPUT_H
#define PLANC_GOODPUT_H

#include <stdint.h>

/* began: when the run's first process started, seconds since 1970 (UTC); the others are seconds:
 * steps: of steps that count; starts: from a process to its first step; saves: held up by them. */
struct spent {
    int64_t began;
    double steps, starts, saves, validations;
};
/* The last lines of a log. at_begin: what `now` was when this process began; wall: its seconds. */
void goodput_say(const struct spent *now, const struct spent *at_begin, double wall,
                 int64_t restarts);
/* "2026-11-30T10:00:00Z" */
const char *utc_text(int64_t seconds, char text[32]);
/* The seconds since 1970 of such a text; -1: it is none. */
int64_t utc_seconds(const char *text);

#endif
