/* What samples are taken from: the files to train on, one stream or the sources of a mixture.
 * Sample n of the run is the same on every mesh: place n % epoch of epoch n / epoch of the stream,
 * in its order or shuffled by seed and epoch (shuffle.c). In a mixture it is that of one of several
 * streams, and n counts the samples of that one (mixture.c). */
#include "sources.h"
#include "mixture.h"

#include <stdio.h>

static struct stream *source;
static int sources;

/* Sources are shuffled each in its own way: the first one as if it were alone. */
static int64_t seed_of(int number)
{
    return number == 0 ? program.data_seed
                       : (int64_t)(shuffle_mix((uint64_t)program.data_seed) ^ (uint64_t)number);
}

const struct stream *sources_sample(int64_t n, int64_t *sample)
{
    const int number = program.sources ? mixture_source(n, &n) : 0;
    const struct stream *s = &source[number];
    const int64_t epoch = n / s->samples, place = n % s->samples;
    *sample = program.data_order == ORDER_SEQUENTIAL
                  ? place
                  : shuffle_place(seed_of(number), epoch, s->samples, place);
    return s;
}

int64_t data_taken(int number, int64_t n) { return program.sources ? mixture_count(number, n) : n; }

static void say_epoch(int number, int64_t step, int64_t sample)
{
    const int64_t first = data_taken(number, sample),
                  behind = data_taken(number, sample + program.global),
                  samples = source[number].samples;
    const int64_t before = first > 0 ? (first - 1) / samples : 0,
                  epoch = behind > 0 ? (behind - 1) / samples : 0;
    if (epoch > before)
        say("data: epoch %lld%s%s begins in step %lld", (long long)epoch,
            program.sources ? " of " : "", program.sources ? program.source[number].name : "",
            (long long)step);
}

void sources_say_epochs(int64_t step, int64_t sample)
{
    for (int i = 0; i < sources; i++) say_epoch(i, step, sample);
}

/* ── coming up ───────────────────────────────────────────────────────────────── */

static bool open_source(int i, struct reader *r)
{
    struct stream *s = &source[i];
    const char *const *name = program.sources ? program.source[i].files : program.data_train;
    const int n = program.sources ? program.source[i].n_files : program.data_trains;
    if (!stream_open(s, "data.train", name, n, r)) return false;
    if (s->samples < 1)
        return fail_note("%s: %lld tokens, one sample of sequence %lld needs %lld", name[0],
                         (long long)s->tokens, (long long)program.sequence,
                         (long long)program.sequence + 1);
    return stream_scan(s, r);
}

bool sources_open(struct reader *r)
{
    sources = program.sources ? program.sources : 1;
    source = ROOM(struct stream, sources);
    if (program.sources) mixture_open();
    for (int i = 0; i < sources; i++)
        if (!open_source(i, r)) return false;
    return true;
}

int64_t data_tokens(void)
{
    int64_t tokens = 0;
    for (int i = 0; i < sources; i++) tokens += source[i].tokens;
    return tokens;
}

bool data_is_text(void)
{
    for (int i = 0; i < sources; i++)
        if (!source[i].is_text) return false;
    return sources > 0;
}

uint64_t sources_fingerprint(struct reader *r)
{
    static bool known;
    static uint64_t fingerprint;
    if (known || !sources) return fingerprint;
    known = true;
    return fingerprint = stream_fingerprint(source, sources, r);
}

bool sources_agree(void)
{
    bool same = true;
    for (int i = 0; i < sources; i++)
        if (!stream_agree(&source[i], program.sources ? program.source[i].name : "data.train"))
            same = false;
    return same;
}

int data_sources(void) { return program.sources; }
double data_epochs(int number, int64_t sample)
{
    return (double)data_taken(number, sample) / (double)source[number].samples;
}

static void describe_source(int i, int64_t first, int64_t last)
{
    char tokens[32], samples[32], more[48] = "", order[64] = "", text[64], mixed[TOKENS_WHY] = "";
    const bool shuffled = program.data_order == ORDER_SHUFFLED, alone = !program.sources;
    const struct stream *s = &source[i];
    const char *const *name = alone ? program.data_train : program.source[i].files;
    const int names = alone ? program.data_trains : program.source[i].n_files;
    if (names > 1) snprintf(more, sizeof more, " and %d more", names - 1);
    if (shuffled)
        snprintf(order, sizeof order, ", shuffled with seed %lld", (long long)program.data_seed);
    if (!alone)
        snprintf(mixed, sizeof mixed, "%s: %.4g %% of the samples, ", program.source[i].name,
                 100.0 * (double)program.source[i].share[0] / (double)mixture_period(0));
    say("data: %s%s%s, %s, %s tokens in %lld file%s, %s samples an epoch%s", mixed, name[0], more,
        stream_format(s, text), count_text(s->tokens, tokens), (long long)s->files,
        s->files == 1 ? "" : "s", count_text(s->samples, samples), order);
    if (!alone && last > first)
        say("data: %s: %.3g epochs by the end of the run, %.3g so far", program.source[i].name,
            data_epochs(i, last), data_epochs(i, first));
    else if (alone && last > s->samples)
        say("data: shorter than the run: after sample %s the stream begins again%s", samples,
            shuffled ? ", in another order" : " from its first token");
}

void data_describe(int64_t first, int64_t count)
{
    for (int i = 0; i < sources; i++) describe_source(i, first, first + count * program.global);
    if (program.separate && program.end_token >= 0)
        say("data: documents are separate; token %lld ends one, and so do marks of the files",
            (long long)program.end_token);
    else if (program.separate)
        say("data: documents are separate, by the marks of the files");
    for (int k = 1; k < program.stages; k++) {
        char text[512];
        int used = 0;
        int64_t period = 0;
        for (int i = 0; i < sources; i++) period += program.source[i].share[k];
        for (int i = 0; i < sources && used < (int)sizeof text; i++)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%s %.4g %%", i ? ", " : "",
                             program.source[i].name,
                             100.0 * (double)program.source[i].share[k] / (double)period);
        say("data: from step %lld on %s", (long long)program.stage_step[k], text);
    }
}
