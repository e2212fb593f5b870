/* Initial and final weights. Each rank reads and writes only what its shard holds; names, shapes
 * and pieces come from segments.c, so a file is the same for every mesh. A file that does not match
 * the model tensor for tensor is refused, because a weight silently left at its random value trains
 * a wrong model. That includes a stored copy of a tied head, unless the architecture lists it among
 * the tensors to ignore. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "output.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { SHAPE_BYTES = 128 };

/* Host memory that all of them pass through, and where an element of the resident shards lies on
 * the device. */
static float *staging_of(struct device *d) { return device_staging(d); }
static float *master_at(struct device *d, int64_t element)
{
    return (float *)local(d, program.master) + element;
}
static int64_t staging_floats(void) { return program.staging_bytes / 4; }

/* ── the first weights ───────────────────────────────────────────────────────── */

static void first_values(const struct stored *s, const char *name, int64_t from, int64_t n,
                         float *to)
{
    switch ((enum init_kind)s->tensor->init) {
    case INIT_NORMAL:
        random_normal(random_key(program.init_seed, name), s->tensor->std, from, n, to);
        break;
    case INIT_ONES:
        for (int64_t i = 0; i < n; i++) to[i] = 1;
        break;
    case INIT_ZEROS: memset(to, 0, (size_t)n * sizeof *to); break;
    }
}

/* A billion normal numbers take a core the better part of a minute, so those of a piece are shared
 * out over the cores that are this rank's. Each is a function of its place alone: how many threads
 * there are changes no bit. */
enum { SEEDERS = 32, WORTH_A_THREAD = 1 << 13, SEEDER_STACK = 1 << 18 };
struct share {
    const struct stored *s;
    const char *name;
    int64_t from, n;
    float *to;
};

static void *seed_share(void *argument)
{
    const struct share *h = argument;
    first_values(h->s, h->name, h->from, h->n, h->to);
    return NULL;
}

static int64_t own_cores(void)
{
    cpu_set_t set;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN),
               fair = cores > world.host_size ? cores / world.host_size : 1;
    const long bound = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const long n = bound < fair ? bound : fair;
    return n < 1 ? 1 : n < SEEDERS ? n : SEEDERS;
}

/* Where a thread cannot be had its share is done here. */
static void seed_piece(const struct stored *s, const char *name, int64_t from, int64_t n, float *to)
{
    pthread_t thread[SEEDERS];
    struct share share[SEEDERS];
    bool started[SEEDERS] = {false};
    pthread_attr_t attributes;
    const int64_t cores = own_cores(), worth = (n + WORTH_A_THREAD - 1) / WORTH_A_THREAD,
                  threads = cores < worth ? cores : worth;
    const bool able = pthread_attr_init(&attributes) == 0 &&
                      pthread_attr_setstacksize(&attributes, SEEDER_STACK) == 0;
    for (int64_t i = threads - 1; i >= 0; i--) {
        const int64_t low = n * i / threads, high = n * (i + 1) / threads;
        share[i] = (struct share){s, name, from + low, high - low, to + low};
        started[i] =
            i > 0 && able && pthread_create(&thread[i], &attributes, seed_share, &share[i]) == 0;
        if (!started[i]) seed_share(&share[i]);
    }
    for (int64_t i = 0; i < threads; i++)
        if (started[i]) pthread_join(thread[i], NULL);
    pthread_attr_destroy(&attributes);
}

static void seed(struct device *d)
{
    struct stored s;
    char name[TENSOR_NAME_BYTES];
    for (bool more = stored_first(&s); more; more = stored_next(&s)) {
        struct piece p = stored_piece(&s, world.part);
        stored_name(&s, name, sizeof name);
        for (int64_t done = 0; done < p.count; done += staging_floats()) {
            const int64_t n = p.count - done < staging_floats() ? p.count - done : staging_floats();
            seed_piece(&s, name, p.element + done, n, staging_of(d));
            device_write(d, master_at(d, p.at + done), staging_of(d), 4 * n);
            position_moved();
        }
    }
}

/* The name under which a stored tensor may also be found: another prefix in place of
 * tensor_prefix[0]. */
static bool other_name(const char *name, int prefix, char to[TENSOR_NAME_BYTES])
{
    size_t n = strlen(program.tensor_prefix[0]);
    if (strncmp(name, program.tensor_prefix[0], n)) return false;
    snprintf(to, TENSOR_NAME_BYTES, "%s%s", program.tensor_prefix[prefix], name + n);
    return true;
}

static struct st_tensor *find(struct st_set *set, const char *name)
{
    char other[TENSOR_NAME_BYTES];
    struct st_tensor *t = st_find(set, name);
    for (int i = 1; !t && i < program.tensor_prefixes; i++)
        if (other_name(name, i, other)) t = st_find(set, other);
    return t;
}

static bool ignored(const char *name)
{
    char other[TENSOR_NAME_BYTES];
    for (int k = 0; k < program.tensor_ignores; k++) {
        if (st_matches(program.tensor_ignore[k], name)) return true;
        for (int i = 1; i < program.tensor_prefixes; i++)
            if (other_name(program.tensor_ignore[k], i, other) && st_matches(other, name))
                return true;
    }
    return false;
}

/* Ignored, and not by a pattern. */
static bool is_named(const char *name)
{
    for (int k = 0; k < program.tensor_ignores; k++)
        if (!strpbrk(program.tensor_ignore[k], "*{") && !strcmp(program.tensor_ignore[k], name))
            return true;
    return false;
}

static bool fits(const struct st_set *set, const struct stored *s, const char *name,
                 const struct st_tensor *t)
{
    int64_t dim[4];
    int rank = stored_shape(s, dim);
    char want[SHAPE_BYTES], have[SHAPE_BYTES];
    st_shape_text(rank, dim, want, sizeof want);
    if (!t) return fail_note("%s: tensor %s %s is missing", set->path, name, want);
    bool same = t->rank == rank;
    for (int i = 0; same && i < rank; i++) same = t->dim[i] == dim[i];
    st_shape_text(t->rank, t->dim, have, sizeof have);
    if (!same)
        return fail_note("%s: tensor %s is %s, the plan's is %s", t->file, t->name, have, want);
    if (t->type == ST_OTHER)
        return fail_note("%s: tensor %s is %s: F32, BF16 and F16 are read", t->file, t->name,
                         t->dtype);
    return true;
}

static struct {
    struct st_set set;
    struct agreed_file *file;
    int64_t files;
    bool certain; /* all ranks have the same: agree_files */
} from;

/* Tensors of one file share one descriptor, in any order. */
static void list_files(void)
{
    from.file = ROOM(struct agreed_file, from.set.tensors);
    for (int64_t i = 0; i < from.set.tensors; i++) {
        const struct st_tensor *t = &from.set.tensor[i];
        int64_t k = 0;
        while (k < from.files && from.file[k].fd != t->fd) k++;
        if (k == from.files) {
            from.file[from.files++] = (struct agreed_file){t->file, t->fd, 0};
            output_spare("init.from", t->file);
        }
        if (t->begin + t->bytes > from.file[k].bytes) from.file[k].bytes = t->begin + t->bytes;
    }
}

/* All names and shapes are compared with the model before a single value is read. */
bool weights_open(void)
{
    struct stored s;
    char name[TENSOR_NAME_BYTES], shape[SHAPE_BYTES];
    if (!program.init_from) return true;
    if (!st_open(&from.set, program.init_from)) return fail_note("%s", st_why());
    for (bool more = stored_first(&s); more; more = stored_next(&s)) {
        stored_name(&s, name, sizeof name);
        struct st_tensor *t = find(&from.set, name);
        /* a model that was balanced by a loss has no biases yet: they start as the plan says */
        if (!t && s.tensor->balance_mean > 0) continue;
        if (!fits(&from.set, &s, name, t)) return false;
        t->used = true;
    }
    for (int64_t i = 0; i < from.set.tensors; i++)
        if (!from.set.tensor[i].used && !ignored(from.set.tensor[i].name)) {
            const struct st_tensor *t = &from.set.tensor[i];
            st_shape_text(t->rank, t->dim, shape, sizeof shape);
            return fail_note("%s: tensor %s %s is not part of this model", t->file, t->name, shape);
        }
    /* What is ignored by its whole name is something stored twice: the head of a model that ties it
     * to its table. One of its own would be lost. */
    for (int64_t i = 0; i < from.set.tensors; i++) {
        const struct st_tensor *t = &from.set.tensor[i];
        if (!t->used && is_named(t->name) && !st_is_copy(&from.set, t, world.rank, world.size))
            return fail_note(
                "%s: tensor %s is no copy of another tensor: the model ties its head to "
                "its table, the file has a head of its own; model.tied = off trains it",
                t->file, t->name);
    }
    list_files();
    return true;
}

void weights_agree(void)
{
    if (program.init_from) from.certain = agree_files("init.from", from.file, from.files);
}

/* The values of a part, to the device (keep) or only for their hash. */
static bool read_part(struct device *d, int64_t part, bool keep, uint64_t *hash)
{
    static XXH3_state_t state;
    struct stored s;
    char name[TENSOR_NAME_BYTES];
    XXH3_64bits_reset(&state);
    for (bool more = stored_first(&s); more; more = stored_next(&s)) {
        struct piece p = stored_piece(&s, part);
        stored_name(&s, name, sizeof name);
        const struct st_tensor *t = p.count ? find(&from.set, name) : NULL;
        for (int64_t done = 0; done < p.count; done += staging_floats()) {
            int64_t n = p.count - done < staging_floats() ? p.count - done : staging_floats();
            if (!t)
                seed_piece(&s, name, p.element + done, n, staging_of(d));
            else if (!st_read(t, p.element + done, n, staging_of(d)))
                return fail_note("%s", st_why());
            if (!from.certain) XXH3_64bits_update(&state, staging_of(d), (size_t)(4 * n));
            if (keep) device_write(d, master_at(d, p.at + done), staging_of(d), 4 * n);
            position_moved();
        }
    }
    *hash = XXH3_64bits_digest(&state);
    return true;
}

/* What a rank has read is read once more by another one. */
static bool is_as_others_have_it(struct device *d, uint64_t own)
{
    enum { HALF_BITS = 32 };
    const int other = (world.rank + agree_shift(0)) % world.size;
    const int64_t shard = other % program.fsdp, replica = other / program.fsdp,
                  part = program.parts ? shard * program.parts + replica : shard;
    double mine[2] = {(double)(own >> HALF_BITS), (double)(own & UINT32_MAX)},
           *all = ROOM(double, 2 * (int64_t)world.size);
    uint64_t again;
    world_exchange(mine, 2, all);
    if (!read_part(d, part, false, &again)) return false;
    const double *told = all + 2 * other;
    return again == ((uint64_t)told[0] << HALF_BITS) + (uint64_t)told[1] ||
           fail_note(
               "init.from: %s: ranks %d and %d have not the same weights in it: their copies of "
               "its files differ",
               from.set.path, world.rank, other);
}

static bool load(struct device *d)
{
    uint64_t own;
    read_part(d, world.part, true, &own);
    world_agree();
    const bool fine = from.certain || world.size == 1 || is_as_others_have_it(d, own);
    for (int64_t i = 0; i < from.files; i++) close(from.file[i].fd);
    return fine;
}

bool weights_start(struct device *d)
{
    if (program.init_from) return load(d);
    seed(d);
    return true;
}

/* ── the last weights ────────────────────────────────────────────────────────── */

enum { FINAL_MEET = 64 << 20 };
static struct {
    struct output file; /* rank 0's */
    char *header;
    const struct stored *sorted;
    int64_t header_bytes;
} final;

/* The header is made before the first step: its text depends on names and shapes only. */
static void final_header(void)
{
    char name[TENSOR_JSON_BYTES], shape[SHAPE_BYTES];
    int64_t size = 128, begin = 0;
    for (int64_t i = 0; i < stored_count(); i++) {
        stored_name_json(&final.sorted[i], name);
        size += (int64_t)strlen(name) + SHAPE_BYTES + 96;
    }
    char *text = room(size);
    int64_t n = snprintf(text, (size_t)size, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < stored_count(); i++) {
        const struct stored *s = &final.sorted[i];
        int64_t dim[4], end = begin + 4 * stored_elements(s);
        stored_name_json(s, name);
        st_shape_text(stored_shape(s, dim), dim, shape, sizeof shape);
        n += snprintf(text + n, (size_t)(size - n),
                      ",%s:{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%lld,%lld]}", name,
                      shape, (long long)begin, (long long)end);
        begin = end;
    }
    n += snprintf(text + n, (size_t)(size - n), "}");
    while (n % 8) text[n++] = ' ';
    final.header = text;
    final.header_bytes = n;
}

bool weights_final_open(const char *path)
{
    final.sorted = stored_sorted();
    if (world.rank != 0) return true;
    if (!output_prepare(&final.file, "--final", path)) return false;
    final_header();
    return true;
}

/* The first message between two ranks may need the launcher, which may be gone when weights are
 * saved. */
void weights_final_connect(void)
{
    double nothing = 0;
    if (world.rank != state_owner(world.part)) return;
    if (world.rank != 0) world_send(&nothing, sizeof nothing, 0);
    for (int64_t part = 1; part < state_parts() && world.rank == 0; part++)
        world_receive(&nothing, sizeof nothing, state_owner(part));
}

static bool final_begin(void)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t) final.header_bytes >> 8 * i);
    return output_begin(&final.file) && output_put(&final.file, length, 8) &&
           output_put(&final.file, final.header, final.header_bytes);
}

/* The ranks of the first replica, or all that have a part of their own, send their pieces in file
 * order; rank 0 writes. All meet every
 * FINAL_MEET bytes: who waits for as long as run.timeout knows that another stands still, wherever
 * it is. When writing fails it goes on receiving until then. */
bool weights_final(struct device *d)
{
    bool writing = world.rank == 0 ? final_begin() : true;
    int64_t apart = 0;
    for (int64_t i = 0; i < stored_count(); i++)
        for (int64_t part = 0; part < state_parts(); part++) {
            const int owner = state_owner(part);
            struct piece p = stored_piece(&final.sorted[i], part);
            for (int64_t done = 0; done < p.count; done += staging_floats()) {
                int64_t n = p.count - done < staging_floats() ? p.count - done : staging_floats();
                if (apart >= FINAL_MEET) world_agree(), apart = 0;
                apart += 4 * n;
                if (world.rank != 0 && world.rank != owner) continue;
                if (world.rank == owner)
                    device_read(d, staging_of(d), master_at(d, p.at + done), 4 * n);
                else
                    world_receive(staging_of(d), 4 * n, owner);
                if (world.rank != 0)
                    world_send(staging_of(d), 4 * n, 0);
                else
                    writing = writing && output_put(&final.file, staging_of(d), 4 * n);
            }
        }
    return world.rank == 0 ? writing && output_end(&final.file) : true;
}
