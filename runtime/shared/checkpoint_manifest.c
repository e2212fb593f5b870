/* The manifest: the last file of a checkpoint, and the one that makes it complete. It says where
 * every element of every tensor lies, what the files must hash to, how far the run had come in
 * steps and in its data, and by which plan. All but a few numbers is known before the first step
 * and made into text then: nothing is allocated while the run goes on. Its last line is the hash of
 * what is above it, so that a manifest is right or refused. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    NAME_BYTES = 512,
    FORMAT = 1,
    PART_BYTES = 256,
    HEAD_BYTES = 16384,
    SOURCE_BYTES = 24 /* of a source of a mixture */
};

struct text {
    char *bytes;
    int64_t n, size;
};
static struct {
    struct text plan, tensors; /* made before the first step */
    struct text all;           /* the file; room for the most that it can become */
    int64_t *header_bytes, *elements;
} manifest;

uint64_t manifest_hash(const char *text, int64_t n) { return XXH3_64bits(text, (size_t)n); }

void split_hash(uint64_t hash, double *low, double *top)
{
    *low = (double)(hash & UINT32_MAX);
    *top = (double)(hash >> 32);
}
uint64_t joined_hash(double low, double top) { return (uint64_t)low | (uint64_t)top << 32; }

/* ── text ────────────────────────────────────────────────────────────────────── */

PRINTF_LIKE(2, 3) static void add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int64_t left = t->size - t->n;
    const int n =
        vsnprintf(t->bytes ? t->bytes + t->n : NULL, t->bytes ? (size_t)left : 0, format, args);
    va_end(args);
    if (n < 0 || (t->bytes && n >= left))
        fail_now("the text of a manifest is longer than its room");
    t->n += n;
}

/* Names and titles come from outside. */
static void add_string(struct text *t, const char *s)
{
    add(t, "\"");
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            add(t, "\\%c", *s);
        else if ((unsigned char)*s < 32)
            add(t, "\\u%04x", (unsigned char)*s);
        else
            add(t, "%c", *s);
    add(t, "\"");
}

/* Written twice: once to be measured, once into its room. */
static void make(struct text *t, void (*write_it)(struct text *))
{
    write_it(t);
    *t = (struct text){.bytes = room(t->n + 1), .size = t->n + 1};
    write_it(t);
}

static void write_plan(struct text *t)
{
    char machine[192];
    add(t, "\"plan\": {\"title\": ");
    add_string(t, program.title ? program.title : "");
    add(t, ", \"file\": ");
    add_string(t, program.plan_path ? program.plan_path : "");
    for (int rest = 0; rest < 2; rest++) {
        bool first = true;
        add(t, ",\n \"%s\": {", rest ? "rest" : "mathematics");
        for (int i = 0; i < program.plan_keys; i++) {
            const struct plan_key *k = &program.plan_key[i];
            if (k->mathematics == rest) continue;
            add(t, "%s\n  ", first ? "" : ",");
            add_string(t, k->path);
            add(t, ": %s", k->json);
            first = false;
        }
        add(t, "}");
    }
    add(t, "},\n\"versions\": {\"format\": %d, \"device\": ", FORMAT);
    add_string(t, program.device);
    add(t, ", \"trainer\": \"%016" PRIx64 "\", \"machine\": ", agree_own_program());
    add_string(t, device_machine(machine));
    add(t, "},\n");
}

/* Segments of a tensor in the order of its elements: [part, at, element, count]: elements
 * [element, element + count) of it are those from `at` on of each kind in that part. */
static void write_tensors(struct text *t)
{
    struct stored s;
    char name[NAME_BYTES];
    int64_t *filled = manifest.elements + world.size; /* scratch: elements of each part so far */
    memset(filled, 0, (size_t)world.size * sizeof *filled);
    bool first = true;
    add(t, "\"tensors\": {");
    for (bool more = stored_first(&s); more; more = stored_next(&s)) {
        int64_t dim[4];
        const int rank = stored_shape(&s, dim);
        stored_name(&s, name, sizeof name);
        add(t, "%s\n  ", first ? "" : ",");
        first = false;
        add_string(t, name);
        add(t, ": {\"shape\": [");
        for (int i = 0; i < rank; i++) add(t, "%s%lld", i ? ", " : "", (long long)dim[i]);
        add(t, "], \"segments\": [");
        bool one = true;
        for (int shard = 0; shard < program.fsdp; shard++) {
            if (!program.parts && stored_piece(&s, shard).count == 0) continue;
            for (int replica = 0; replica < program.dp; replica++) {
                const struct piece p = state_piece(&s, shard, replica);
                const int part = replica * (int)program.fsdp + shard;
                if (p.count == 0) continue;
                add(t, "%s[%d, %lld, %lld, %lld]", one ? "" : ", ", part, (long long)filled[part],
                    (long long)p.element, (long long)p.count);
                one = false;
                filled[part] += p.count;
            }
        }
        add(t, "]}");
    }
    add(t, "},\n");
}

void manifest_ready(const int64_t *header_bytes, const int64_t *elements)
{
    manifest.header_bytes = ROOM(int64_t, world.size);
    manifest.elements = ROOM(int64_t, 2 * world.size);
    memcpy(manifest.header_bytes, header_bytes, (size_t)world.size * sizeof *header_bytes);
    memcpy(manifest.elements, elements, (size_t)world.size * sizeof *elements);
    make(&manifest.plan, write_plan);
    make(&manifest.tensors, write_tensors);
    const int64_t size = HEAD_BYTES + manifest.plan.n + manifest.tensors.n +
                         PART_BYTES * (int64_t)world.size + SOURCE_BYTES * (int64_t)data_sources();
    manifest.all = (struct text){.bytes = room(size), .size = size};
}

/* ── the file ────────────────────────────────────────────────────────────────── */

static void fill(const struct counters *at, int64_t run, const uint64_t *hash)
{
    struct text *t = &manifest.all;
    char when[32], name[CHECKPOINT_NAME];
    t->n = 0;
    add(t, "{\n\"format\": %d,\n\"step\": %lld,\n\"run\": %lld,\n\"saved\": \"%s\",\n", FORMAT,
        (long long)at->step, (long long)run, utc_text((int64_t)time(NULL), when));
    add(t,
        "\"counters\": {\"step\": %lld, \"sample\": %lld, \"skipped_updates\": %lld, \"restarts\": "
        "%lld%s},\n",
        (long long)at->step, (long long)at->sample, (long long)at->skipped, (long long)at->restarts,
        at->validates ? ", \"validates\": true" : "");
    add(t,
        "\"spent\": {\"began\": \"%s\", \"steps\": %.6f, \"starts\": %.6f, \"saves\": %.6f, "
        "\"validations\": %.6f},\n",
        utc_text(at->spent.began, when), at->spent.steps, at->spent.starts, at->spent.saves,
        at->spent.validations);
    add(t, "\"data\": {\"tokens\": %lld, \"hash\": \"%016" PRIx64 "\", \"read\": [",
        (long long)data_tokens(), data_fingerprint());
    for (int i = 0; i < at->read.n; i++)
        add(t, "%s[%lld, %lld, \"%016" PRIx64 "\"]", i ? ", " : "", (long long)at->read.at[i].step,
            (long long)at->read.at[i].sample, at->read.at[i].hash);
    add(t, "]");
    for (int i = 0; i < data_sources(); i++)
        add(t, "%s%lld%s", i ? ", " : ", \"samples_of_sources\": [",
            (long long)data_taken(i, at->sample), i + 1 == data_sources() ? "]" : "");
    add(t, "},\n");
    add(t, "\"mesh\": {\"fsdp\": %lld, \"dp\": %lld},\n", (long long)program.fsdp,
        (long long)program.dp);
    add(t, "%s", manifest.plan.bytes);
    add(t, "\"parts\": [");
    for (int r = 0; r < world.size; r++) {
        part_name(r, name);
        add(t,
            "%s\n  {\"file\": \"%s\", \"header_bytes\": %lld, \"elements\": %lld, \"bytes\": %lld, "
            "\"hash\": \"%016" PRIx64 "\"}",
            r ? "," : "", name, (long long)manifest.header_bytes[r],
            (long long)manifest.elements[r],
            (long long)(manifest.header_bytes[r] + 4 * STATE_KINDS * manifest.elements[r]),
            hash[r]);
    }
    add(t, "],\n%s", manifest.tensors.bytes);
    add(t, "\"hash\": \"%016" PRIx64 "\"\n}\n", manifest_hash(t->bytes, t->n));
}

bool manifest_write(const char *folder, const struct counters *at, int64_t run,
                    const uint64_t *hash, char why[WHY_BYTES])
{
    char path[4096];
    const char *what = "open";
    fill(at, run, hash);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool fine = fd >= 0;
    if (fine) fine = write_exactly(fd, manifest.all.bytes, manifest.all.n), what = "write";
    if (fine) fine = fsync(fd) == 0, what = "fsync";
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && fine) fine = false, error = errno, what = "close";
    if (!fine) snprintf(why, WHY_BYTES, "checkpoint: %s %.800s: %s", what, path, strerror(error));
    return fine;
}
