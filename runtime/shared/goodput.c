/* Goodput: the part of the time that went into steps that count. A step that was done and lost with
 * its process is not one of them: only what a checkpoint has kept comes back. For the whole run,
 * time is that of the calendar, from the start of its first process to now, so that steps that were
 * lost and time in which nothing ran are in it, too. */
#define _GNU_SOURCE
#include "goodput.h"
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

const char *utc_text(int64_t seconds, char text[32])
{
    struct tm utc;
    const time_t t = (time_t)seconds;
    text[0] = 0;
    if (gmtime_r(&t, &utc)) strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

int64_t utc_seconds(const char *text)
{
    struct tm utc = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return end && !*end ? (int64_t)timegm(&utc) : -1;
}

static void say_part(const char *of, const struct spent *s, double wall, const char *rest)
{
    char validations[64] = "";
    if (s->validations > 0)
        snprintf(validations, sizeof validations, ", %.1f s validation", s->validations);
    say("goodput: %.1f %% of %.1f s%s were steps; %.1f s to start, %.1f s held up by saves%s%s",
        100 * s->steps / wall, wall, of, s->starts, s->saves, validations, rest);
}

void goodput_say(const struct spent *now, const struct spent *at_begin, double wall,
                 int64_t restarts)
{
    const struct spent own = {.steps = now->steps - at_begin->steps,
                              .starts = now->starts - at_begin->starts,
                              .saves = now->saves - at_begin->saves,
                              .validations = now->validations - at_begin->validations};
    char of[96], began[32], rest[128];
    if (wall > 0) say_part(restarts > 0 ? " of this process" : "", &own, wall, "");
    if (restarts == 0) return;
    /* a clock that was set back tells less than what is known to have passed */
    const double known = now->steps + now->starts + now->saves + now->validations,
                 whole = fmax((double)(time(NULL) - (time_t)now->began), known);
    snprintf(of, sizeof of, " since %s", utc_text(now->began, began));
    snprintf(rest, sizeof rest, ", %.1f s lost or not running; the run was resumed %lld time%s",
             whole - known, (long long)restarts, restarts == 1 ? "" : "s");
    if (whole > 0) say_part(of, now, whole, rest);
}
