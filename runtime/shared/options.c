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

bool options_read(struct options *o, int argc, char **argv)
{
    *o = (struct options){.steps = -1, .log_every = 0, .resume_step = -1};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            o->help = true;
            return true;
        }
        if (strcmp(a, "--explain") == 0) {
            o->explain = true;
            continue;
        }
        if (strcmp(a, "--fresh") == 0) {
            o->fresh = true;
            continue;
        }
        if (names(a, "--resume")) { /* its value only after '=': --resume alone is one too */
            o->resume = true;
            if (a[8] == '=' && !whole("--resume", a + 9, 0, &o->resume_step)) return false;
            continue;
        }
        static const char *const valued[] = {
            "--steps",       "--log-every",   "--metrics", "--final",          "--probe",
            "--compare",     "--profile",     "--trace",   "--checkpoint-dir", "--allow",
            "--profile-out", "--tensorboard", "--sample",  "--prompt",         "--temperature",
            "--seed",        "--preflight"};
        int which = -1;
        for (int k = 0; k < (int)(sizeof valued / sizeof *valued); k++)
            if (names(a, valued[k])) which = k;
        if (which < 0)
            return fail_note(
                "unknown option '%s' (there are --steps N, --metrics FILE, --tensorboard DIR, "
                "--final FILE, --probe "
                "FILE, --log-every N, --compare FILE, --profile N, --profile-out FILE, --trace "
                "FILE, --explain, --sample N, --prompt TEXT, --temperature X, --seed N, "
                "--preflight FILE, "
                "--checkpoint-dir DIR, --resume, --resume=STEP, --fresh, --allow KEY, --help)",
                a);
        const char *value = strchr(a, '=') ? strchr(a, '=') + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value || !*value) return fail_note("%s wants a value", valued[which]);
        bool fine = true;
        switch (which) {
        case 0: fine = whole("--steps", value, 0, &o->steps); break;
        case 1: fine = whole("--log-every", value, 1, &o->log_every); break;
        case 2: o->metrics = value; break;
        case 3: o->final = value; break;
        case 4: o->probe = value; break;
        case 5: o->compare = value; break;
        case 6: fine = whole("--profile", value, 1, &o->profile); break;
        case 7: o->trace = value; break;
        case 8: o->checkpoint_dir = value; break;
        case 9:
            if (o->allows == OPTION_ALLOWS)
                return fail_note("more than %d times --allow; it takes keys with commas between",
                                 OPTION_ALLOWS);
            o->allow[o->allows++] = value;
            break;
        case 10: o->profile_out = value; break;
        case 11: o->tensorboard = value; break;
        case 12: fine = whole("--sample", value, 1, &o->sample); break;
        case 13: o->prompt = value; break;
        case 14: fine = temperature(value, &o->temperature); break;
        case 15: fine = whole("--seed", value, 0, &o->seed); break;
        case 16: o->preflight = value; break;
        }
        if (!fine) return false;
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
