/* The options of the trainer. The plan fixes the run; options only say where to stop and what to
 * write, so none of them can change a number that the plan determines. --allow permits what would
 * otherwise be refused. */
#include "trainer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps are told in doubles too; samples (steps x the global batch) are counted in 63 bits. */
static const int64_t WHOLE_LIMIT = (int64_t)1 << 53;

static bool names(const char *argument, const char *option)
{
    size_t n = strlen(option);
    return strncmp(argument, option, n) == 0 && (argument[n] == 0 || argument[n] == '=');
}

static bool whole(const char *option, const char *text, int64_t least, int64_t *to)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < least)
        return fail_note("%s wants a whole number of at least %lld, not '%s'", option,
                         (long long)least, text);
    if (value > WHOLE_LIMIT || value > ((int64_t)1 << 62) / program.global)
        return fail_note("%s %s is more than a run can count", option, text);
    *to = value;
    return true;
}

const char options_help[] =
    "usage: mpirun -n RANKS trainer [options]\n"
    "  --steps N             stop after N steps; the learning rate follows the plan's schedule\n"
    "  --metrics FILE        one JSON object for each step\n"
    "  --tensorboard DIR     the same numbers for TensorBoard, in a file of this folder\n"
    "  --log-every N         a line every N steps\n"
    "  --final FILE          the last weights as safetensors\n"
    "  --sample N            after the last step the model writes N tokens (0 steps are enough)\n"
    "  --prompt TEXT         what they follow: text for bytes, else ids with commas between\n"
    "  --temperature X       choose by probability instead of the likeliest; 1: as the model says\n"
    "  --seed N              of these choices; default 0\n"
    "  --checkpoint-dir DIR  another folder than the plan's checkpoint.directory\n"
    "  --resume[=STEP]       refuse to start without a checkpoint (of this step)\n"
    "  --fresh               start a new run; delete nothing\n"
    "  --allow KEY           resume although this key differs (several: with commas)\n"
    "  --explain             name every unit and every step of the schedule first\n"
    "  --profile N           time of every kernel in steps 1 to N\n"
    "  --profile-out FILE    what --profile measured, for planc calibrate\n"
    "  --trace FILE          steps 1 and 2 on all lanes, for Perfetto\n"
    "  --preflight FILE      train nothing: what the ranks run on and how fast it is, as JSON\n"
    "  --compare LIB         compare the kernels of step 0 with reference.so\n"
    "  --probe FILE          logits and gradient norms of step 0";

static bool temperature(const char *text, double *to)
{
    char *end;
    *to = strtod(text, &end);
    if (end == text || *end || !isfinite(*to) || *to < 0)
        return fail_note("--temperature wants a number of at least 0, not '%s'", text);
    return true;
}

/* What may follow the name of an option. */
enum { NOTHING, VALUE, PERHAPS }; /* PERHAPS: only after '='; the name alone is an option too */
enum option {
    STEPS,
    LOG_EVERY,
    METRICS,
    FINAL,
    PROBE,
    COMPARE,
    PROFILE,
    PROFILE_OUT,
    TRACE,
    CHECKPOINT_DIR,
    ALLOW,
    TENSORBOARD,
    SAMPLE,
    PROMPT,
    TEMPERATURE,
    SEED,
    PREFLIGHT,
    RESUME,
    FRESH,
    EXPLAIN,
    OPTIONS
};
static const struct {
    const char *name;
    int takes;
} option_rows[OPTIONS] = {
    [STEPS] = {"--steps", VALUE},
    [LOG_EVERY] = {"--log-every", VALUE},
    [METRICS] = {"--metrics", VALUE},
    [FINAL] = {"--final", VALUE},
    [PROBE] = {"--probe", VALUE},
    [COMPARE] = {"--compare", VALUE},
    [PROFILE] = {"--profile", VALUE},
    [PROFILE_OUT] = {"--profile-out", VALUE},
    [TRACE] = {"--trace", VALUE},
    [CHECKPOINT_DIR] = {"--checkpoint-dir", VALUE},
    [ALLOW] = {"--allow", VALUE},
    [TENSORBOARD] = {"--tensorboard", VALUE},
    [SAMPLE] = {"--sample", VALUE},
    [PROMPT] = {"--prompt", VALUE},
    [TEMPERATURE] = {"--temperature", VALUE},
    [SEED] = {"--seed", VALUE},
    [PREFLIGHT] = {"--preflight", VALUE},
    [RESUME] = {"--resume", PERHAPS},
    [FRESH] = {"--fresh", NOTHING},
    [EXPLAIN] = {"--explain", NOTHING},
};

/* The option that an argument names, OPTIONS for none. A switch with a value is none. */
static enum option named(const char *argument)
{
    int which = 0;
    while (which < OPTIONS && (!names(argument, option_rows[which].name) ||
                               (option_rows[which].takes == NOTHING && strchr(argument, '='))))
        which++;
    return (enum option)which;
}

static bool unknown(const char *argument)
{
    return fail_note("unknown option '%s' (there are --steps N, --metrics FILE, --tensorboard DIR, "
                     "--final FILE, --probe "
                     "FILE, --log-every N, --compare FILE, --profile N, --profile-out FILE, "
                     "--trace FILE, --explain, --sample N, --prompt TEXT, --temperature X, "
                     "--seed N, --preflight FILE, "
                     "--checkpoint-dir DIR, --resume, --resume=STEP, --fresh, --allow KEY, --help)",
                     argument);
}

/* One option; `value` is NULL for a switch. */
static bool take(struct options *o, enum option which, const char *value)
{
    switch (which) {
    case STEPS: return whole("--steps", value, 0, &o->steps);
    case LOG_EVERY: return whole("--log-every", value, 1, &o->log_every);
    case METRICS: o->metrics = value; return true;
    case FINAL: o->final = value; return true;
    case PROBE: o->probe = value; return true;
    case COMPARE: o->compare = value; return true;
    case PROFILE: return whole("--profile", value, 1, &o->profile);
    case PROFILE_OUT: o->profile_out = value; return true;
    case TRACE: o->trace = value; return true;
    case CHECKPOINT_DIR: o->checkpoint_dir = value; return true;
    case ALLOW:
        if (o->allows == OPTION_ALLOWS)
            return fail_note("more than %d times --allow; it takes keys with commas between",
                             OPTION_ALLOWS);
        o->allow[o->allows++] = value;
        return true;
    case TENSORBOARD: o->tensorboard = value; return true;
    case SAMPLE: return whole("--sample", value, 1, &o->sample);
    case PROMPT: o->prompt = value; return true;
    case TEMPERATURE: return temperature(value, &o->temperature);
    case SEED: return whole("--seed", value, 0, &o->seed);
    case PREFLIGHT: o->preflight = value; return true;
    case RESUME: o->resume = true; return !value || whole("--resume", value, 0, &o->resume_step);
    case FRESH: o->fresh = true; return true;
    case EXPLAIN: o->explain = true; return true;
    case OPTIONS: break;
    }
    return false;
}

bool options_read(struct options *o, int argc, char **argv)
{
    *o = (struct options){.steps = -1, .log_every = 0, .resume_step = -1};
    bool given[OPTIONS] = {false};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
            o->help = true;
            return true;
        }
        enum option which = named(a);
        if (which == OPTIONS) return unknown(a);
        const char *value = strchr(a, '=') ? strchr(a, '=') + 1 : NULL;
        if (option_rows[which].takes == VALUE) {
            if (!value && i + 1 < argc) value = argv[++i];
            if (!value || !*value) return fail_note("%s wants a value", option_rows[which].name);
        }
        /* as with planc: of two values one would be ignored */
        if (given[which] && which != ALLOW)
            return fail_note("%s is given twice", option_rows[which].name);
        given[which] = true;
        if (!take(o, which, value)) return false;
    }
    if (o->profile_out && !o->profile)
        return fail_note("--profile-out writes what --profile N measured: it wants --profile too");
    if (!o->sample && (o->prompt || o->temperature > 0 || o->seed > 0))
        return fail_note("--prompt, --temperature and --seed are of --sample N: it is missing");
    if (o->preflight && argc != (strchr(argv[1], '=') ? 2 : 3))
        return fail_note("--preflight trains nothing: it takes no other option");
    if (o->fresh && (o->resume || o->allows))
        return fail_note("--fresh starts anew, %s goes on from a checkpoint: one of the two",
                         o->resume ? "--resume" : "--allow");
    return true;
}
