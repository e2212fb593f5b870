/* The model writes: each token is chosen by the logits behind all tokens before it. One token costs
 * one forward pass of a micro-batch up to the logits, by the schedule and in the memory of
 * training. All samples of all ranks hold the same tokens, and rank 0 chooses, so what is written
 * does not depend on the mesh. Behind the last token stand zeros; attention is causal and no token
 * competes for an expert, so they change nothing. When the context is full, the oldest tokens leave
 * it. */
#define _GNU_SOURCE
#include "sample.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int64_t wanted;     /* tokens to write; 0: none */
    int64_t prompt, n;  /* tokens of the prompt; all tokens so far */
    int32_t *token;     /* prompt, then what was written */
    int32_t *row;       /* sequence + 1 tokens: a sample */
    double temperature; /* 0: greedy */
    uint64_t key;
    float *logits; /* of one position */
    int64_t place; /* of that position in the sample; -1: no logits are looked at */
    double *all;   /* what ranks tell each other behind a token */
    int64_t rows;  /* shown so far in this micro-batch */
} sample = {.place = -1};

/* ── the prompt ──────────────────────────────────────────────────────────────── */

static bool is_text(void)
{
    return program.data_trains ? data_is_text() : program.data_format == FORMAT_BYTES;
}

static bool prompt_of_bytes(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c >= program.vocabulary)
            return fail_note("--prompt: byte %d is not in the vocabulary, ids 0 to %lld", *c,
                             (long long)program.vocabulary - 1);
        sample.token[sample.n++] = *c;
    }
    return true;
}

/* "464, 2068, 7586": ids with commas or blanks between. */
static bool prompt_of_ids(const char *text)
{
    for (const char *at = text; at += strspn(at, ", "), *at;) {
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || (*end && !strchr(", ", *end)) || errno)
            return fail_note("--prompt wants ids (464,2068), not '%s': the plan's tokens are no "
                             "bytes, and a trainer has no tokenizer",
                             text);
        if (id < 0 || id >= program.vocabulary)
            return fail_note("--prompt: %lld is not in the vocabulary, ids 0 to %lld", id,
                             (long long)program.vocabulary - 1);
        sample.token[sample.n++] = (int32_t)id;
        at = end;
    }
    return sample.n > 0 || fail_note("--prompt '%s' holds no ids", text);
}

bool sample_open(const struct options *o)
{
    if (o->sample == 0) return true;
    sample.wanted = o->sample;
    sample.temperature = o->temperature;
    sample.key = random_key(o->seed, "sample");
    sample.token = ROOM(int32_t, o->sample + (o->prompt ? (int64_t)strlen(o->prompt) : 1));
    sample.all = ROOM(double, 2 * world.size);
    sample.row = ROOM(int32_t, program.sequence + 1);
    sample.logits = ROOM(float, program.vocabulary);
    data_fill(sample.row); /* takes the memory of a batch, where nothing is trained */
    if (!o->prompt)
        sample.token[sample.n++] = is_text() && '\n' < program.vocabulary ? '\n' : 0;
    else if (!(is_text() ? prompt_of_bytes(o->prompt) : prompt_of_ids(o->prompt)))
        return false;
    sample.prompt = sample.n;
    return true;
}

/* ── one token ───────────────────────────────────────────────────────────────── */

void sample_tap(struct device *d, const char *name, enum element_type type, const void *value,
                int64_t rows, int64_t columns)
{
    if (sample.place < 0 || strcmp(name, "logits") || columns != program.vocabulary) return;
    const int64_t row = sample.place - sample.rows, bytes = type == TYPE_BF16 ? 2 : 4;
    sample.rows += rows;
    if (row < 0 || row >= rows) return;
    char *to = (char *)sample.logits + (4 - bytes) * columns;
    device_read(d, to, (const char *)value + row * columns * bytes, columns * bytes);
    /* the upper halves of floats, widened from the first one on */
    for (int64_t i = 0; i < columns && type == TYPE_BF16; i++) {
        uint16_t half;
        memcpy(&half, to + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(sample.logits + i, &bits, sizeof bits);
    }
}

/* In [0, 1), of the token at this place. */
static double uniform(int64_t place)
{
    return (double)(shuffle_mix(sample.key ^ shuffle_mix((uint64_t)place)) >> 11) * 0x1p-53;
}

/* The likeliest id, the lowest of equals; with a temperature, id i has the probability
 * exp(logit i / temperature) / sum. -1: no logit is a number. */
static int64_t choose(void)
{
    const int64_t n = program.vocabulary;
    int64_t best = -1, last = -1;
    double sum = 0;
    if (sample.rows <= sample.place) return -1;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(sample.logits[i]) && (best < 0 || sample.logits[i] > sample.logits[best]))
            best = i;
    if (best < 0 || sample.temperature <= 0) return best;
    const double most = (double)sample.logits[best];
    for (int64_t i = 0; i < n; i++)
        if (isfinite(sample.logits[i]))
            sum += exp(((double)sample.logits[i] - most) / sample.temperature);
    double left = sum * uniform(sample.n);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(sample.logits[i])) continue;
        left -= exp(((double)sample.logits[i] - most) / sample.temperature);
        last = i;
        if (left < 0) break;
    }
    return last;
}

static void forward(struct device *d)
{
    const int64_t have = sample.n < program.sequence ? sample.n : program.sequence;
    memset(sample.row, 0, (size_t)(program.sequence + 1) * sizeof *sample.row);
    memcpy(sample.row, sample.token + sample.n - have, (size_t)have * sizeof *sample.row);
    data_fill(sample.row);
    sample.place = have - 1;
    sample.rows = 0;
    device_play(d, PLAY_MICRO_BATCH, MICRO_FIRST | MICRO_LAST | MICRO_LOGITS);
    device_drain(d);
}

/* ── what people see ─────────────────────────────────────────────────────────── */

/* Bytes of a character of UTF-8 that may be shown; 0: none. */
static int64_t shown_bytes(const unsigned char *at, int64_t n)
{
    const unsigned char c = at[0];
    if (c < 0x80) return c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f);
    const int64_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || want > n) return 0;
    uint32_t code = c & (0xffu >> (want + 1));
    for (int64_t i = 1; i < want; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_control = code < 0xa0, is_surrogate = code >= 0xd800 && code < 0xe000;
    return code < least[want] || code > 0x10ffff || is_control || is_surrogate ? 0 : want;
}

/* Everything that was written, in pieces that a pipe takes whole. */
static void say_tokens(void)
{
    enum { PIECE = 1024, LONGEST = 32 };
    char piece[PIECE];
    size_t used = 0;
    for (int64_t i = 0; i < sample.n;) {
        unsigned char at[4];
        int64_t n = 0;
        for (; n < 4 && i + n < sample.n; n++) at[n] = (unsigned char)sample.token[i + n];
        const int64_t shown = is_text() ? shown_bytes(at, n) : 0;
        if (shown > 0)
            memcpy(piece + used, at, (size_t)shown), used += (size_t)shown;
        else if (is_text())
            used += (size_t)snprintf(piece + used, LONGEST, "\\x%02x", at[0]);
        else
            used += (size_t)snprintf(piece + used, LONGEST, "%s%d", i ? " " : "", sample.token[i]);
        i += shown > 0 ? shown : 1;
        if (used + LONGEST > PIECE || i >= sample.n) say_piece(piece, used), used = 0;
    }
    say("%s", "");
}

int sample_write(struct device *d)
{
    int stop = 0;
    double mine[2], *all = sample.all;
    for (int64_t i = 0; i < sample.wanted && !stop; i++) {
        forward(d);
        mine[0] = signals_stop();
        mine[1] = (double)choose();
        sample.place = -1;
        world_exchange(mine, 2, all);
        for (int r = 0; r < world.size && !stop; r++) stop = (int)all[2 * r];
        if (all[1] < 0) fail_note("--sample: the model shows no logit that is a number");
        if (all[1] < 0) break;
        sample.token[sample.n++] = (int32_t)all[1];
    }
    position_set(0);
    world_agree();
    char how[64] = "greedy";
    if (sample.temperature > 0) snprintf(how, sizeof how, "temperature %g", sample.temperature);
    say("sample: %lld tokens after a prompt of %lld, %s%s", (long long)(sample.n - sample.prompt),
        (long long)sample.prompt, how, is_text() ? "" : "; ids");
    say_tokens();
    return stop;
}
